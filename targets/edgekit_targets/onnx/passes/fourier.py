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
        if _is_own_length(node):
            node.replace_input_with(1, None)


def _is_own_length(node: ir.Node) -> bool:
    """Return whether a transform's length is that of its input along its axis, measured on any tensor of that size."""
    from onnx_ir import convenience

    value, length, axis = node.inputs[0], node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    squeeze = length.producer() if length is not None else None
    shape = squeeze.inputs[0].producer() if squeeze is not None and squeeze.inputs[0] is not None else None
    measured = shape.inputs[0] if shape is not None and shape.op_type == "Shape" else None
    if value is None or value.shape is None or measured is None or measured.shape is None or shape is None:
        return False
    place = convenience.get_const_tensor(axis) if axis is not None else None
    # The default axis is the last but the one of real and imaginary parts.
    along = int(place.numpy().item()) if place is not None else None if axis is not None else -2
    start, end = shape.attributes.get_int("start", 0), shape.attributes.get_int("end", None)
    if along is None or end is None or len(measured.shape[start:end]) != 1:
        return False
    size, own = measured.shape[start], value.shape[along]
    return size == own and (isinstance(size, int) or size.value is not None)
