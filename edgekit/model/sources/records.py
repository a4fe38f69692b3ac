"""The records of edgekit's own sources."""

from __future__ import annotations

from edgekit.doors import Source

PROGRAM = Source(
    form="a saved program's path (model.pt2)", suffixes=(".pt2",), open="edgekit.model.sources.program:open_file"
)
ONNX = Source(form="an ONNX file's path", suffixes=(".onnx",), open="edgekit.model.sources.onnx:open_file")
