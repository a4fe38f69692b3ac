"""A scale for each channel of what a linear layer reads, where no normalisation can take it (see smoothquant.py).

    x [..., K] -> MatMul or Gemm, weight W [K, N]
    x [..., K] -> Mul, 1 / s [K] -> MatMul or Gemm, weight s W [K, N]

One range must hold all channels of a quantized tensor. After GELU and after attention the channels' peaks differ
several times, and most channels use a few of the 256 steps; the scales are SmoothQuant's. The multiplication is a pass
over the tensor in front of the quantization, which is a small part of the layer's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.spec import Array
from edgekit.onnxgraph import weight_only
from edgekit.onnxgraph.groups import linear_groups, nodes_of
from edgekit.onnxgraph.smoothquant import FLOOR

if TYPE_CHECKING:
    import onnx

LAYOUT = frozenset(("Reshape", "Transpose", "Cast", "Identity"))
"""Operators that leave the values of an input as they are."""


def scale_channels(
    graph: onnx.ModelProto,
    alpha: float,
    peaks: Mapping[str, Array],
    floats: tuple[str, ...] = (),
    without: frozenset[str] = frozenset(),
) -> dict[str, Array]:
    """Insert the multiplications in place; returns what each new tensor's channels were divided by, and of what.

    Inputs of the graph, as they are or in another layout, stay: pixels and embeddings have one scale already.

    Args:
        graph: In fp32.
        alpha: How much of the difference moves into the weights, in [0, 1].
        peaks: Largest magnitude of each channel, [K], by tensor.
        floats: Groups that stay in float arithmetic and need no scales.
        without: Tensors that have been smoothed already.
    """
    from onnx import helper, numpy_helper

    weights = {i.name: i for i in graph.graph.initializer}
    chosen = set(nodes_of(linear_groups(graph), floats))
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.graph.node:
        if node.name in chosen and node.input[0] in peaks and node.input[0] not in without:
            readers.setdefault(node.input[0], []).append(node)
    given = _given(graph)
    once = _read_once(graph)
    divided: dict[str, Array] = {}
    for name, nodes in readers.items():
        if name in given or not all(node.input[1] in once for node in nodes):
            continue
        columns = [np.abs(_inputs_first(weights[n.input[1]], n)).max(1) for n in nodes]
        high = np.maximum(peaks[name], FLOOR).astype(np.float64)
        factors = high**alpha / np.maximum(np.max(columns, axis=0), FLOOR) ** (1.0 - alpha)
        factors = np.maximum(factors, FLOOR).astype(np.float32)
        graph.graph.initializer.append(numpy_helper.from_array(np.float32(1.0) / factors, f"{name}_channel_scales"))
        place = list(graph.graph.node).index(nodes[0])
        scaled = helper.make_node("Mul", [name, f"{name}_channel_scales"], [f"{name}_scaled"], name=f"{name}/Mul")
        graph.graph.node.insert(place, scaled)
        for node in nodes:
            weight = weights[node.input[1]]
            values = numpy_helper.to_array(weight)
            values = values * (factors[None, :] if weight_only.transposed(node) else factors[:, None])
            weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values), weight.name))
            node.input[0] = f"{name}_scaled"
        divided[name] = factors
    return divided


def _inputs_first(weight: onnx.TensorProto, node: onnx.NodeProto) -> Array:
    """A weight as [inputs, outputs]."""
    from onnx import numpy_helper

    values = np.asarray(numpy_helper.to_array(weight))
    return values.T if weight_only.transposed(node) else values


def _given(graph: onnx.ModelProto) -> set[str]:
    """The graph's inputs and what has their values in another layout."""
    given = {value.name for value in graph.graph.input}
    for node in graph.graph.node:
        if node.op_type in LAYOUT and node.input[0] in given:
            given.update(node.output)
    return given


def _read_once(graph: onnx.ModelProto) -> set[str]:
    """What one node reads, once."""
    read = [name for node in graph.graph.node for name in node.input]
    return {name for name in read if read.count(name) == 1}
