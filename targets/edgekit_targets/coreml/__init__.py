"""Core ML packages."""
