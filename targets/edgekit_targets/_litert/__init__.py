"""LiteRT: what its targets share, and what runs in the environment `litert`."""
