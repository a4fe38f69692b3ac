"""What the TorchScript targets share: compiling, control flow, determinism, archives."""
