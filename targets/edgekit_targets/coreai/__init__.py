"""Core AI packages."""
