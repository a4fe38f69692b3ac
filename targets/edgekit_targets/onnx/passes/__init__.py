"""Rewrites of an ONNX graph: one pass, one file."""
