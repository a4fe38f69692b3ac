"""The parts of a graph that are quantized together: the linear layers of one module of the user's model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

LINEAR = ("Gemm", "MatMul")
"""Operators with a constant weight that INT8 makes faster; the rest stays in float."""
DEPTH = 3
"""Names of a module path that make a group: `texture.blocks.0` and its kin are told apart, their linears are not."""


def groups(graph: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """Names of the quantizable nodes by group, in the graph's order."""
    weights = {i.name for i in graph.graph.initializer if len(i.dims) == 2}
    found: dict[str, list[str]] = {}
    for node in graph.graph.node:
        if node.op_type in LINEAR and node.input[1] in weights:
            found.setdefault(group_of(node.name), []).append(node.name)
    return {name: tuple(nodes) for name, nodes in found.items()}


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
