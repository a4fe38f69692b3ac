"""Serving a bundle on this machine."""
