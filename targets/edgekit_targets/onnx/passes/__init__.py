"""Rewrites of an ONNX graph, one pass per file."""
