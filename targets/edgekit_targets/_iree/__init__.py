"""IREE: what imports an ONNX file, in a process of its own."""
