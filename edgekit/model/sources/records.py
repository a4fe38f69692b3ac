"""The records of edgekit's own sources."""

from __future__ import annotations

from edgekit.doors import Source

ONNX = Source(form="an ONNX file's path", suffixes=(".onnx",), open="edgekit.model.sources.onnx:open_file")
