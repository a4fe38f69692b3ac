"""ONNX and what is made from it: fp16, INT8, 4-bit weights, fixed sizes."""
