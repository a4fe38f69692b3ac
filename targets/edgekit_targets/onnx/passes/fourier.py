"""Fourier transforms of open lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


def drop_own_lengths(model: ir.Model) -> None:
    """Remove a forward transform's length where it is the input's own, which is the default.

    ONNX's shape inference takes a one-sided transform with a computed length to be as long as its input. ONNX Runtime
    then plans to reuse its memory, and stops at "Shape mismatch attempting to re-use buffer".
    """
    for node in model.graph.all_nodes():
        if node.op_type != "DFT" or len(node.inputs) < 2 or node.attributes.get_int("inverse", False):
            continue
        length = node.inputs[1]
        squeeze = length.producer() if length is not None else None
        size = squeeze.inputs[0].producer() if squeeze is not None and squeeze.inputs[0] is not None else None
        if size is not None and size.op_type == "Shape":
            node.replace_input_with(1, None)
