"""Places that run artifacts: a worker process on this host, another Python, a host over ssh, or a pack."""
