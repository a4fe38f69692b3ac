"""An artifact on disk: its manifest, its result, and the store that commits and checks them."""
