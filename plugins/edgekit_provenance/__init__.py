"""Who made a build, and of what: signatures and bills of materials."""
