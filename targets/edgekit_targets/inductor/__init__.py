"""Programs that TorchInductor compiles: ahead of time, and for NVIDIA GPUs."""
