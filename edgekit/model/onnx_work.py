"""How many nodes an ONNX graph runs, at least: a file of a few bytes can ask for more than any machine does.

Functions that call functions double their nodes with each level, and a Loop runs as often as a constant in it says. A
loop whose own condition ends it counts once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.errors import ModelError

if TYPE_CHECKING:
    import onnx

MOST = 100_000_000
"""Nodes that one answer may run: at a microsecond each these take minutes."""
DEEPEST = 100  # graphs and functions in each other; a function that calls itself has no end
ENDLESS = float("inf")
Known = ChainMap[str, int | bool | None]


def check_work(model: onnx.ModelProto) -> None:
    """Refuse a graph whose answer no machine waits for.

    Raises:
        ModelError: If it runs more than `MOST` nodes, or nests more than `DEEPEST` graphs and functions.
    """
    functions = {(f.domain, f.name): f for f in model.functions}
    work = _Work(functions).of(model.graph.node, _seen(model.graph, ChainMap()))
    if work > MOST:
        raise ModelError(f"one answer of the ONNX file runs more than {MOST} nodes: shorten its loops or functions")


@dataclass
class _Work:
    """Nodes that are run, each function counted once."""

    functions: Mapping[tuple[str, str], onnx.FunctionProto]
    counted: dict[tuple[str, str], float] = field(default_factory=dict)
    depth: int = 0

    def of(self, nodes: Sequence[onnx.NodeProto], known: Known) -> float:
        """Of a graph's or a function's nodes, with the constants that they see."""
        if self.depth >= DEEPEST:
            raise ModelError(f"the ONNX file has graphs or functions in each other, more than {DEEPEST}: flatten it")
        self.depth += 1
        count = 0.0
        for node in nodes:
            count += 1 + self._inside(node, known)
        self.depth -= 1
        return count

    def _inside(self, node: onnx.NodeProto, known: Known) -> float:
        count = self._called((node.domain, node.op_type))
        for graph in _graphs(node):
            loop = node.op_type == "Loop" and len(graph.input) > 1 and bool(graph.output)
            inside = _seen(graph, known, graph.input[1].name if loop else "")
            count += self.of(graph.node, inside) * (_times(node, graph.output[0].name, known, inside) if loop else 1)
        return count

    def _called(self, name: tuple[str, str]) -> float:
        if name in self.functions and name not in self.counted:
            body = self.functions[name]
            self.counted[name] = self.of(body.node, _with_values(body.node, ChainMap()))
        return self.counted.get(name, 0)


def _graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        yield from attribute.graphs
        if attribute.HasField("g"):
            yield attribute.g


def _times(node: onnx.NodeProto, result: str, outer: Known, inside: Known) -> float:
    """How often a Loop runs its body: once where a condition of its own can end it, or nothing says how often."""
    count, condition = [*node.input, "", ""][:2]
    if (condition and outer.get(condition) is not True) or inside.get(result) is not True:
        return 1
    times = outer.get(count)
    return ENDLESS if not count else max(times, 0) if times is not None else 1


def _seen(graph: onnx.GraphProto, outer: Known, holds: str = "") -> Known:
    """Integers and truth values that a graph's nodes see, by name; its own names hide outer ones.

    `holds` is the condition that a Loop gives its body: where it does not hold, the body is not run again.
    """
    own: dict[str, int | bool | None] = dict.fromkeys(value.name for value in graph.input)
    own |= {tensor.name: _single(tensor) for tensor in graph.initializer}
    return _with_values(graph.node, outer.new_child(own | ({holds: True} if holds else {})))


def _with_values(nodes: Iterable[onnx.NodeProto], known: Known) -> Known:
    """The same, with what constants and copies of them give."""
    for node in nodes:
        known.update(dict.fromkeys(node.output))
        if node.op_type == "Identity" and node.input and node.output:
            known[node.output[0]] = known.get(node.input[0])
        for attribute in node.attribute if node.op_type == "Constant" and node.output else ():
            if attribute.name == "value":
                known[node.output[0]] = _single(attribute.t)
            elif attribute.name == "value_int":
                known[node.output[0]] = attribute.i
    return known


def _single(tensor: onnx.TensorProto) -> int | bool | None:
    """The one integer or truth value of a tensor; None for any other."""
    from onnx import TensorProto, numpy_helper

    if tensor.data_type not in (TensorProto.INT64, TensorProto.BOOL) or any(size != 1 for size in tensor.dims):
        return None
    value = numpy_helper.to_array(tensor).reshape(-1)[0].item()
    return bool(value) if tensor.data_type == TensorProto.BOOL else int(value)
