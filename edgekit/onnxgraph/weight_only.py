"""Weights that are stored in INT8 and multiplied in float: smaller files where INT8 arithmetic does not pay.

    x -> MatMul, weight fp32 [K, N]
    x -> MatMul, weight int8 [K, N] -> DequantizeLinear, scale [N], zero point [N] -> fp32 [K, N]

Gemm and Conv alike; the weights of a Conv are [D, C, kh, kw], with a scale for each of D, those of a ConvTranspose
[C, D, kh, kw]. Zero points are zero, and written: without them ONNX Runtime refuses a DequantizeLinear with a scale for
each channel under `session.x64quantprecision`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

STORED = "/DequantizeLinear"
"""How the nodes end that make a stored weight a float one."""
LEAST = 4096
"""Elements: a smaller weight is not worth a node."""
CHANNEL = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""Axis of the output channels of the weight, which is the second input; a Gemm with transB has them first."""


def quantize_weights(graph: onnx.ModelProto) -> None:
    """Store the float weights of convolutions and linear layers in INT8, one scale a channel; changes the graph."""
    from onnx import TensorProto, helper, numpy_helper

    weights = {i.name: i for i in graph.graph.initializer if i.data_type == TensorProto.FLOAT}
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    added = []
    for name, weight in weights.items():
        axes = {_axis(node, name) for node in users.get(name, ())}
        values = numpy_helper.to_array(weight)
        if values.size < LEAST or len(axes) != 1 or None in axes:
            continue
        axis = int(next(iter(axes)) or 0)
        peaks = np.abs(values).max(axis=tuple(a for a in range(values.ndim) if a != axis), keepdims=True)
        scale = np.where(peaks > 0, peaks / 127.0, 1.0).astype(np.float32)
        rounded = np.clip(np.round(values / scale), -127, 127).astype(np.int8)
        graph.graph.initializer.remove(weight)
        graph.graph.initializer.extend(
            (
                numpy_helper.from_array(rounded, f"{name}_int8"),
                numpy_helper.from_array(scale.ravel(), f"{name}_scale"),
                numpy_helper.from_array(np.zeros(scale.size, np.int8), f"{name}_zero"),
            )
        )
        added.append(
            helper.make_node(
                "DequantizeLinear",
                [f"{name}_int8", f"{name}_scale", f"{name}_zero"],
                [name],
                name=f"{name}{STORED}",
                axis=axis,
            )
        )
    nodes = list(graph.graph.node)
    del graph.graph.node[:]
    graph.graph.node.extend([*added, *nodes])


def stored(graph: onnx.ModelProto) -> int:
    """How many weights `quantize_weights` stored in a graph."""
    return sum(node.name.endswith(STORED) for node in graph.graph.node)


def _axis(node: onnx.NodeProto, name: str) -> int | None:
    """The channel axis of a weight in a node; None where it is not simply a weight."""
    known = node.op_type in CHANNEL and list(node.input).index(name) == 1
    return channel_axis(node) if known and not _grouped(node) else None


def channel_axis(node: onnx.NodeProto) -> int:
    """The axis of the output channels in the weight of a layer of CHANNEL."""
    return 0 if transposed(node) else CHANNEL[node.op_type]


def _grouped(node: onnx.NodeProto) -> bool:
    """Whether a transposed convolution has groups: an output channel has more than one row of its weight then."""
    return node.op_type == "ConvTranspose" and any(a.name == "group" and a.i > 1 for a in node.attribute)


def transposed(node: onnx.NodeProto) -> bool:
    """Whether a node has its weight as [outputs, inputs]."""
    return any(a.name == "transB" and a.i for a in node.attribute)
