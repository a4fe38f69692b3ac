"""SmoothQuant: what makes activations hard to quantize moves into the weights (Xiao et al., 2023, equation 4).

Each input channel of a linear layer that follows a LayerNormalization is divided by
`max|X_j|^alpha / max|W_j|^(1 - alpha)`; the division is folded into the normalisation's scale and shift, the
multiplication into the weights, so that the graph computes the same and runs as fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgekit.quantization.groups import LINEAR
from edgekit.quantization.ranges import Observed
from edgekit.spec import Array

if TYPE_CHECKING:
    import onnx

FLOOR = 1e-5
"""Smallest magnitude that counts, of activations and weights; SmoothQuant's own code has it too."""


def apply(graph: onnx.ModelProto, alpha: float, observed: Mapping[str, Observed]) -> dict[str, Array]:
    """Smooth a graph in place; returns what each smoothed tensor's channels were divided by."""
    from onnx import numpy_helper

    weights = {i.name: i for i in graph.graph.initializer}
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    divided: dict[str, Array] = {}
    for node in graph.graph.node:
        read = _read_by_linears(node, users, weights)
        if read is None or (tensor := _observed(node.output[0], users, observed)) is None:
            continue
        peaks = np.maximum(observed[tensor].peaks.astype(np.float64), FLOOR)
        columns = [np.abs(numpy_helper.to_array(weights[name])).max(axis=1) for name in read]
        factors = (peaks**alpha / np.maximum(np.max(columns, axis=0), FLOOR) ** (1.0 - alpha)).astype(np.float32)
        factors = np.maximum(factors, FLOOR).astype(np.float32)
        for name in node.input[1:]:
            _change(weights[name], numpy_helper.to_array(weights[name]) / factors)
        for name in read:
            _change(weights[name], numpy_helper.to_array(weights[name]) * factors[:, None])
        divided[tensor] = factors
    return divided


def _read_by_linears(
    node: onnx.NodeProto, users: Mapping[str, list[onnx.NodeProto]], weights: Mapping[str, onnx.TensorProto]
) -> tuple[str, ...] | None:
    """Names of the weights of the linear layers that alone read a normalisation; None where others read it too."""
    if node.op_type != "LayerNormalization" or any(len(users[n]) > 1 for n in node.input[1:]):
        return None
    readers = _through_reshapes(node.output[0], users)
    alone = all(r.op_type in LINEAR and r.input[1] in weights and len(users[r.input[1]]) == 1 for r in readers)
    plain = all(not any(a.name in ("transA", "transB") and a.i for a in r.attribute) for r in readers)
    return tuple(r.input[1] for r in readers) if readers and alone and plain else None


def _through_reshapes(name: str, users: Mapping[str, list[onnx.NodeProto]]) -> list[onnx.NodeProto]:
    found = []
    for user in users.get(name, ()):
        found += _through_reshapes(user.output[0], users) if user.op_type == "Reshape" else [user]
    return found


def _observed(name: str, users: Mapping[str, list[onnx.NodeProto]], observed: Mapping[str, Observed]) -> str | None:
    """The observed tensor that a normalisation's output is, as it is or reshaped."""
    names = [name, *(u.output[0] for u in users.get(name, ()) if u.op_type == "Reshape")]
    return next((n for n in names if n in observed), None)


def _change(weight: onnx.TensorProto, values: Array) -> None:
    from onnx import numpy_helper

    weight.CopyFrom(numpy_helper.from_array(np.asarray(values, dtype=np.float32), weight.name))
