"""Provenance of a build: signatures and bills of materials."""
