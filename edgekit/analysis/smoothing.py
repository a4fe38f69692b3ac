"""What SmoothQuant divided the channels of a tensor by, read off the two graphs.

A normalisation's scale / s and shift / s come with s W in the layers that read it (onnxgraph/smoothquant.py). The
weights are rounded and tell s about; of the scale and the shift, the one that is nearer to that tells it exactly. A
scale that differs while the weights do not is an error of the normalisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.spec import Array
from edgekit.onnxgraph.groups import LINEAR

if TYPE_CHECKING:
    import onnx

EXACT, NEAR = 0.015, 0.15
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
            carried = _carried(right, node.output[0], one, two)
            if carried is not None and _far(carried, np.ones_like(carried)) > EXACT:
                quotients = [q for name in node.input[1:] if (q := _quotient(one, two, name, carried)) is not None]
                nearest = min(quotients, key=lambda quotient: _far(quotient, carried), default=carried)
                found[node.output[0]] = nearest if _far(nearest, carried) < NEAR else carried
        elif node.op_type == "Reshape" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def _quotient(
    one: Mapping[str, onnx.TensorProto], two: Mapping[str, onnx.TensorProto], name: str, like: Array
) -> Array | None:
    """A constant of a normalisation over what it is in the artifact, [K]; None where one of its values is 0."""
    before, after = _values(one, name), _values(two, name)
    if before is None or after is None or before.shape != like.shape or after.shape != like.shape:
        return None
    return before / after if before.all() and after.all() else None


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
    """A constant in float64, whatever it is stored in; in INT8 it has a scale for each column, or for each row."""
    from onnx import numpy_helper

    stored = next((weights[c.format(name)] for c in STORED if c.format(name) in weights), None)
    if stored is None:
        return None
    values = numpy_helper.to_array(stored).astype(np.float64)
    scale = weights.get(f"{name}_scale") if stored.name != name else None
    if scale is None:
        return values
    scales = numpy_helper.to_array(scale).astype(np.float64)
    if values.ndim == 3 and values.shape[1] == 1:  # as weight_only.py stores those with a scale for each row
        return values[:, 0, :] * scales[:, None]
    return values * scales if values.ndim == 2 else None


def _far(one: Array, two: Array) -> float:
    return float(np.sqrt(np.mean((one / np.where(two == 0, 1.0, two) - 1.0) ** 2)))
