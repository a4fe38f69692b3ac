"""What SmoothQuant divided the channels of a tensor by, read off the two graphs.

A normalisation's scale / s comes with s W in the layers that read it (onnxgraph/smoothquant.py). A scale that differs
while the weights do not is an error of the normalisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.spec import Array
from edgekit.onnxgraph.groups import LINEAR

if TYPE_CHECKING:
    import onnx

NEAR = 0.15
"""Relative. Weights rounded to INT8 tell s to a hundredth; 32 columns with noise of half their size, to a tenth."""
STORED = ("{}", "{}_quantized", "{}_int8")
"""What a weight may be called in the artifact."""


def smoothed(right: onnx.ModelProto, other: onnx.ModelProto) -> dict[str, Array]:
    """What each normalisation's output, and its reshaped twin, was divided by, [K].

    Args:
        right: The fp32 graph.
        other: The artifact's graph.
    """
    one, two = ({i.name: i for i in graph.graph.initializer} for graph in (right, other))
    found: dict[str, Array] = {}
    for node in right.graph.node:
        if node.op_type == "LayerNormalization":
            before, after = _values(one, node.input[1]), _values(two, node.input[1])
            carried = _carried(right, node.output[0], one, two)
            if before is None or after is None or carried is None or before.shape != after.shape:
                continue
            if before.shape != carried.shape or _far(carried, np.ones_like(carried)) < NEAR / 10:
                continue
            quotient = np.divide(before, after, out=np.ones_like(before), where=after != 0)
            found[node.output[0]] = quotient if _far(quotient, carried) < NEAR else carried
        elif node.op_type == "Reshape" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def _carried(
    right: onnx.ModelProto, name: str, one: Mapping[str, onnx.TensorProto], two: Mapping[str, onnx.TensorProto]
) -> Array | None:
    """What the weights that read a tensor were multiplied by, [K], by least squares; None where none is known."""
    tensors, pairs = {name}, []
    for node in right.graph.node:
        if node.op_type == "Reshape" and node.input[0] in tensors:
            tensors.add(node.output[0])
        elif node.op_type in LINEAR and node.input[0] in tensors:
            before, after = _values(one, node.input[1]), _values(two, node.input[1])
            if before is not None and after is not None and before.shape == after.shape and before.ndim == 2:
                scales = _values(two, f"{node.input[0]}_channel_scales")  # a Mul of its own undoes these
                pairs.append((before, after if scales is None else after * scales[:, None]))
    if not pairs:
        return None
    before, after = (np.concatenate(each, axis=1) for each in zip(*pairs, strict=True))
    power = (before * before).sum(1)
    carried: Array = np.divide((before * after).sum(1), power, out=np.ones_like(power), where=power > 0)
    return carried


def _values(weights: Mapping[str, onnx.TensorProto], name: str) -> Array | None:
    """A constant in float64, whatever it is stored in; a scale for each column where it is in INT8."""
    from onnx import numpy_helper

    stored = next((weights[c.format(name)] for c in STORED if c.format(name) in weights), None)
    if stored is None:
        return None
    values = numpy_helper.to_array(stored).astype(np.float64)
    scale = weights.get(f"{name}_scale") if stored.name != name else None
    return values if scale is None else values * numpy_helper.to_array(scale).astype(np.float64)


def _far(one: Array, two: Array) -> float:
    return float(np.sqrt(np.mean((one / np.where(two == 0, 1.0, two) - 1.0) ** 2)))
