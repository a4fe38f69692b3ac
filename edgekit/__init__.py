"""edgekit."""
