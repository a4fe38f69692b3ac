"""The graphs inside an ONNX node: bodies of branches, loops and scans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node holds, in the order of its attributes."""
    for attribute in node.attribute:
        yield from attribute.graphs
        if attribute.HasField("g"):
            yield attribute.g


def every_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Nodes of a graph and of its branches and loops."""
    for node in graph.node:
        yield node
        for body in bodies(node):
            yield from every_node(body)


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, the bodies of its branches and loops included."""
    yield from node.input
    for body in bodies(node):
        yield from (value.name for value in body.output)
        for inner in body.node:
            yield from names_read(inner)


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Let a node, and the graphs in it that see a name from outside, read other tensors."""
    node.input[:] = [names.get(name, name) for name in node.input]
    for body in bodies(node):
        seen = {before: after for before, after in names.items() if before not in {one.name for one in body.input}}
        for inner in body.node:
            rename(inner, seen)
        for output in body.output:
            output.name = seen.get(output.name, output.name)
