"""The layers of one of the user's modules: what is quantized together, and how much it computes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import TYPE_CHECKING

from edgekit_targets.onnx.passes.conv_chain import CONV, convolutions, ends
from edgekit_targets.onnx.passes.quant_config import ObservedRange
from edgekit_targets.onnx.passes.weight_only import RECURRENT

if TYPE_CHECKING:
    import onnx

LINEAR = ("Gemm", "MatMul")
"""Operators with a constant weight that INT8 makes faster; the rest stays in float."""
DEPTH = 3
"""Names of a module path that make a group: `texture.blocks.0` and its kin are told apart, their linears are not."""
EXTREMES = ("ReduceMax", "ReduceMin")
_MOVING = (
    *("Concat", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape", "Resize", "Slice", "Split"),
    *("Squeeze", "Tile", "Transpose", "Unsqueeze"),
)
_ELEMENTWISE = (
    *("Abs", "Add", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Max"),
    *("Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Relu", "Sigmoid", "Softplus", "Sqrt", "Sub", "Tanh"),
)
FUSED = frozenset(_MOVING + _ELEMENTWISE)
"""Operators that may be fused into the reduction, or that rounding moves through."""


def groups(graph: onnx.ModelProto, dynamic: bool = False) -> dict[str, tuple[str, ...]]:
    """Names of the quantizable nodes by group, in the graph's order.

    Static INT8 takes linear layers and convolutions, dynamic INT8 linear and recurrent layers: ONNX Runtime computes a
    convolution with dynamic ranges slower than in float.
    """
    others = _recurrent(graph) if dynamic else set(convolutions(graph))
    weights = {i.name for i in graph.graph.initializer if len(i.dims) == 2}
    names: dict[str, list[str]] = {}
    for node in graph.graph.node:
        if node.name in others or (node.op_type in LINEAR and node.input[1] in weights):
            names.setdefault(group_of(node.name), []).append(node.name)
    return {name: tuple(nodes) for name, nodes in names.items()}


def linear_groups(graph: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """The linear layers of `groups` alone: constant fp32 weight [K, N], rows [..., K], channels on the last axis."""
    from onnx import TensorProto

    weights = {i.name for i in graph.graph.initializer if i.data_type == TensorProto.FLOAT}
    constants = {i.name for i in graph.graph.initializer}
    able = {
        node.name
        for node in graph.graph.node
        if node.op_type in LINEAR and node.input[1] in weights and node.input[0] not in constants
        if not any(a.name == "transA" and a.i for a in node.attribute)
    }
    linear = {name: tuple(node for node in nodes if node in able) for name, nodes in groups(graph).items()}
    return {name: nodes for name, nodes in linear.items() if nodes}


def _recurrent(graph: onnx.ModelProto) -> set[str]:
    weights = {i.name for i in graph.graph.initializer}
    return {n.name for n in graph.graph.node if n.op_type == RECURRENT and set(n.input[1:3]) <= weights}


def group_of(node: str) -> str:
    """The group of a node named `module.path/Operator`: its module, or the part of a numbered block that it is in."""
    path = node.partition("/")[0].split(".")
    numbered = next((i for i, word in enumerate(path) if word.isdigit() and i < len(path) - 1), None)
    if numbered is None or numbered == 0:
        return path[0] if len(path) < DEPTH else ".".join(path[: DEPTH - 1])
    return ".".join(path[: numbered + 2])


def nodes_of(parts: Mapping[str, tuple[str, ...]], without: tuple[str, ...]) -> list[str]:
    """All nodes but those of some groups."""
    return [node for name, nodes in parts.items() if name not in without for node in nodes]


def multiplications(
    graph: onnx.ModelProto, layers: Collection[str], observed: Mapping[str, ObservedRange]
) -> dict[str, int]:
    """Multiplications of linear layers and convolutions, by node.

    Args:
        graph: In fp32.
        layers: Names of the nodes.
        observed: What a linear layer [rows, K] x [K, N] reads, and what a convolution gives: each of its values is a
            sum over [C, kh, kw].
    """
    sizes = {i.name: i.dims for i in graph.graph.initializer}
    outputs, counts = ends(graph), {}
    for node in graph.graph.node:
        if node.name not in layers:
            continue
        if node.op_type == CONV:
            counts[node.name] = observed[outputs[node.name]].elements * prod(sizes[node.input[1]][1:])
        else:
            counts[node.name] = observed[node.input[0]].rows * prod(sizes[node.input[1]])
    return counts


def groups_after_extremes(graph: onnx.ModelProto) -> tuple[str, ...]:
    """The groups of static INT8 with a layer that reads what ReduceMax or ReduceMin gave, through FUSED operators.

        x -> ReduceMax -> QuantizeLinear -> DequantizeLinear -> Gemm

    OpenVINO 2026.4.1 fuses what stands between the reduction and the layer into the reduction, and the largest value
    comes out wrong (CPU plugin, its default mode; other reductions are right, GlobalMaxPool too, and all of it with
    LP_TRANSFORMS_MODE=NO). Such layers stay in float arithmetic.
    """
    extreme: set[str] = set()  # tensors; nodes stand in topological order
    for node in graph.graph.node:
        if node.op_type in EXTREMES or (node.op_type in FUSED and not extreme.isdisjoint(node.input)):
            extreme.update(node.output)
    nodes = {node.name: node for node in graph.graph.node}
    return tuple(group for group, names in groups(graph).items() if any(nodes[n].input[0] in extreme for n in names))
