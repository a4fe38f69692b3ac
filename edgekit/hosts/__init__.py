"""Where artifacts are asked: a worker process on this host, another Python, a host over ssh, a pack that is carried."""
