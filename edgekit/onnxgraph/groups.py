"""The parts of a graph that are quantized together: the layers of one of the user's modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.onnxgraph import conv_chain
from edgekit.onnxgraph.folding import RECURRENT

if TYPE_CHECKING:
    import onnx

LINEAR = ("Gemm", "MatMul")
"""Operators with a constant weight that INT8 makes faster; the rest stays in float."""
DEPTH = 3
"""Names of a module path that make a group: `texture.blocks.0` and its kin are told apart, their linears are not."""


def groups(graph: onnx.ModelProto, dynamic: bool = False) -> dict[str, tuple[str, ...]]:
    """Names of the quantizable nodes by group, in the graph's order.

    Static INT8 takes linear layers and convolutions, dynamic INT8 linear and recurrent layers: ONNX Runtime computes a
    convolution with dynamic ranges slower than in float.
    """
    others = _recurrent(graph) if dynamic else set(conv_chain.convolutions(graph))
    weights = {i.name for i in graph.graph.initializer if len(i.dims) == 2}
    found: dict[str, list[str]] = {}
    for node in graph.graph.node:
        if node.name in others or (node.op_type in LINEAR and node.input[1] in weights):
            found.setdefault(group_of(node.name), []).append(node.name)
    return {name: tuple(nodes) for name, nodes in found.items()}


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
    found = {name: tuple(node for node in nodes if node in able) for name, nodes in groups(graph).items()}
    return {name: nodes for name, nodes in found.items() if nodes}


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


def nodes_of(found: Mapping[str, tuple[str, ...]], without: tuple[str, ...]) -> list[str]:
    """All nodes but those of some groups."""
    return [node for name, nodes in found.items() if name not in without for node in nodes]
