"""A target of edgekit in a package of its own: an ONNX graph as JSON."""
