"""SmoothQuant: what makes activations hard to quantize moves into the weights (Xiao et al., 2023, equation 4).

    LayerNormalization, scale and shift [K] -> X [..., K] -> MatMul, weight W [K, N]
    LayerNormalization, scale / s and shift / s -> X / s [..., K] -> MatMul, weight s W [K, N]; s [K]

Each input channel of a linear layer that follows a LayerNormalization is divided by
`max|X_j|^alpha / max|W_j|^(1 - alpha)`; the division is folded into the normalisation's scale and shift, the
multiplication into the weights, so that the graph computes the same and runs as fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.spec import Array
from edgekit.onnxgraph.groups import LINEAR
from edgekit.onnxgraph.quant_config import ObservedRange

if TYPE_CHECKING:
    import onnx

FLOOR = 1e-5
"""Smallest magnitude that counts, of activations and weights; SmoothQuant's own code has it too."""


def smooth(graph: onnx.ModelProto, alpha: float, observed: Mapping[str, ObservedRange]) -> dict[str, Array]:
    """Smooth a graph in place; returns what each smoothed tensor's channels were divided by."""
    from onnx import numpy_helper

    weights = {i.name: i for i in graph.graph.initializer}
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    ends = {value.name for value in graph.graph.output}
    divided: dict[str, Array] = {}
    for node in graph.graph.node:
        if node.op_type != "LayerNormalization" or not set(node.input[1:]) <= set(weights):
            continue
        tensors = _with_reshapes(node.output[0], users)
        read = _read_by_linears(node, tensors, users, weights)
        seen = [name for name in tensors if name in observed]
        channels = list(weights[node.input[1]].dims)
        if not read or not seen or ends & set(tensors) or any([len(observed[n].low)] != channels for n in seen):
            continue
        peaks = np.maximum(np.max([observed[name].peaks for name in seen], axis=0).astype(np.float64), FLOOR)
        columns = [np.abs(numpy_helper.to_array(weights[name])).max(axis=1) for name in read]
        factors = (peaks**alpha / np.maximum(np.max(columns, axis=0), FLOOR) ** (1.0 - alpha)).astype(np.float32)
        factors = np.maximum(factors, FLOOR).astype(np.float32)
        for name in node.input[1:]:
            _set_values(weights[name], numpy_helper.to_array(weights[name]) / factors)
        for name in read:
            _set_values(weights[name], numpy_helper.to_array(weights[name]) * factors[:, None])
        divided.update(dict.fromkeys(seen, factors))
    return divided


def _read_by_linears(
    node: onnx.NodeProto,
    tensors: Sequence[str],
    users: Mapping[str, list[onnx.NodeProto]],
    weights: Mapping[str, onnx.TensorProto],
) -> tuple[str, ...]:
    """Names of the weights of the linear layers that alone read a normalisation; none where others read it too."""
    if any(len(users[name]) > 1 for name in node.input[1:]):
        return ()
    readers = [user for name in tensors for user in users.get(name, ()) if user.op_type not in ("Reshape", "Shape")]
    alone = all(r.op_type in LINEAR and r.input[1] in weights and len(users[r.input[1]]) == 1 for r in readers)
    alone = alone and all(len(weights[r.input[1]].dims) == 2 for r in readers)
    plain = all(not any(a.name in ("transA", "transB") and a.i for a in r.attribute) for r in readers)
    return tuple(r.input[1] for r in readers) if alone and plain else ()


def _with_reshapes(name: str, users: Mapping[str, list[onnx.NodeProto]]) -> list[str]:
    """A tensor and what it is reshaped to."""
    reshaped = [user.output[0] for user in users.get(name, ()) if user.op_type == "Reshape"]
    return [name, *(same for one in reshaped for same in _with_reshapes(one, users))]


def _set_values(weight: onnx.TensorProto, values: Array) -> None:
    from onnx import numpy_helper

    weight.CopyFrom(numpy_helper.from_array(np.asarray(values, dtype=np.float32), weight.name))
