"""TorchScript, and PyTorch Mobile lite models."""
