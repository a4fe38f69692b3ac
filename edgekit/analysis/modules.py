"""The modules of an fp32 graph, by the names of its nodes: what each reads of others, and what others read of it.

A node belongs to the module that its name begins with. A layer whose name is another's, as that of a convolution into
which a batch norm was folded is, belongs to the module of its weight. A module of which only constants are left, as of
a table of positions that another module adds, gives these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.onnxgraph.constant_names import LAYERS

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Module:
    """One module, by its path as in `named_modules`; empty for what stands in the outermost `forward`.

    `reads` are the tensors that others make; `gives` those that it makes and others read, or that are the graph's
    answer.
    """

    path: str
    reads: tuple[str, ...]
    gives: tuple[str, ...]


def modules_of(graph: onnx.ModelProto) -> tuple[Module, ...]:
    """The modules of a graph that give something, in running order; a node without a name is in the outermost one."""
    nodes = graph.graph.node
    owners = _owners(graph)
    ends = [value.name for value in graph.graph.output]
    homes = _homes(graph, set(owners.values()))
    makers = {name: path for path, name in homes}
    makers |= {name: owners[number] for number, node in enumerate(nodes) for name in node.output if name}
    order: dict[str, None] = {}
    reads: dict[str, dict[str, None]] = {}
    gives: dict[str, dict[str, None]] = {}
    for number, node in enumerate(nodes):
        own = owners[number]
        for name in _read(node):
            maker = makers.get(name, own)
            if maker != own:
                order.setdefault(maker)
                reads.setdefault(own, {}).setdefault(name)
                gives.setdefault(maker, {}).setdefault(name)
        order.setdefault(own)
    for name in ends:
        if name in makers:
            gives.setdefault(makers[name], {}).setdefault(name)
    return tuple(Module(path, tuple(reads.get(path, ())), tuple(gives[path])) for path in order if path in gives)


def _owners(graph: onnx.ModelProto) -> dict[int, str]:
    """The module of each node, by the node's place."""
    nodes = graph.graph.node
    named = {number: node.name.rpartition("/")[0] for number, node in enumerate(nodes)}
    there, constants = set(named.values()), {i.name for i in graph.graph.initializer}
    for number, node in enumerate(nodes):
        weight = node.input[1] if node.op_type in LAYERS and len(node.input) > 1 else ""
        path = weight.rpartition(".")[0]
        if weight in constants and path and path not in there:
            named[number] = path
    return named


def _homes(graph: onnx.ModelProto, there: set[str]) -> list[tuple[str, str]]:
    """Modules without a node, and the constants that are named after them."""
    pairs = [(initializer.name.rpartition(".")[0], initializer.name) for initializer in graph.graph.initializer]
    return [(path, name) for path, name in pairs if path and path not in there]


def _read(node: onnx.NodeProto) -> list[str]:
    """What a node reads, and what its branches and loops read."""
    inner = [part for attribute in node.attribute if attribute.HasField("g") for part in attribute.g.node]
    return [name for name in (*node.input, *(name for part in inner for name in _read(part))) if name]
