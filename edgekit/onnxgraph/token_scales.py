"""A scale for each token of what a linear layer reads, taken as the graph runs.

    x [..., K] -> MatMul, weight [K, N] -> y [..., N]
    x [..., K] -> Div by s = max|x| [..., 1] -> MatMul, weight [K, N] -> Mul by s -> y [..., N]

Dynamic INT8 has one range for a whole tensor: a single large token makes the grid of all others coarse, and so do the
other images of a batch. Layers that read more channels than they write are given these scales: in a transformer the
second layer of each MLP, which reads what no normalisation has brought to one size. In dynamic INT8 of arr-coc-tiny
these six layers raised the signal-to-noise ratio of the relevance from 37.3 to 39.0 dB; scales for all layers reached
38.7 dB, and cost half of what INT8 gains in speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    import onnx

SMALLEST = 1e-30
"""Of a scale: a token of zeros stays one."""
AXES_AS_INPUT = 18
"""Opset from which ReduceMax reads its axes as an input."""


def scale_tokens(graph: onnx.ModelProto, chosen: Collection[str]) -> None:
    """Insert the scales in place.

    Args:
        graph: In fp32.
        chosen: Names of MatMul nodes with a constant weight; those whose weight is no taller than wide are left alone.
    """
    from onnx import helper, numpy_helper

    weights = {i.name: tuple(i.dims) for i in graph.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in graph.graph.node:
        shape = weights.get(node.input[1], ()) if node.op_type == "MatMul" and node.name in chosen else ()
        inputs, outputs = shape if len(shape) == 2 else (0, 0)
        if inputs <= outputs:
            nodes.append(node)
            continue
        read, written, name = node.input[0], node.output[0], node.name
        size, largest, scale, scaled = (f"{name}_token_{part}" for part in ("size", "largest", "scale", "scaled"))
        nodes += [
            helper.make_node("Abs", [read], [size], name=f"{name}_token/Abs"),
            _largest(graph, size, largest, f"{name}_token/ReduceMax"),
            helper.make_node("Max", [largest, "smallest_token_scale"], [scale], name=f"{name}_token/Max"),
            helper.make_node("Div", [read, scale], [scaled], name=f"{name}_token/Div"),
            helper.make_node("MatMul", [scaled, node.input[1]], [f"{name}_token_product"], name=name),
            helper.make_node("Mul", [f"{name}_token_product", scale], [written], name=f"{name}_token/Mul"),
        ]
    if len(nodes) > len(graph.graph.node):
        constants: dict[str, np.generic | np.ndarray] = {"smallest_token_scale": np.float32(SMALLEST)}
        if _opset(graph) >= AXES_AS_INPUT:
            constants["token_axis"] = np.array([-1], np.int64)
        graph.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items())
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)


def _largest(graph: onnx.ModelProto, read: str, written: str, name: str) -> onnx.NodeProto:
    from onnx import helper

    if _opset(graph) >= AXES_AS_INPUT:
        return helper.make_node("ReduceMax", [read, "token_axis"], [written], name=name, keepdims=1)
    return helper.make_node("ReduceMax", [read], [written], name=name, keepdims=1, axes=[-1])


def _opset(graph: onnx.ModelProto) -> int:
    return int(next(one.version for one in graph.opset_import if one.domain in ("", "ai.onnx")))
