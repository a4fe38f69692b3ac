"""An artifact's graph that is cut at tensors: what reads one of them reads what is given instead.

    x -> encoder -> a -> head -> y         cut at a:   x -> encoder -> a        a/given -> head -> y

Each part then answers to the fp32 graph's own tensors, so that its error is its own, whatever stands before it. A part
is all that lies between two cuts: the nodes that a quantizer added need no module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.model.spec import Array
from edgekit.onnxgraph.graph import copied, set_nodes
from edgekit.runtime import ort

if TYPE_CHECKING:
    import onnx

GIVEN = "{}/given"
LAYOUT = ("Reshape", "Transpose")
"""What INT8 moves as bytes."""


@dataclass(frozen=True)
class Cut:
    """A graph, cut, in ONNX Runtime, and the type of what is given in place of each tensor, by the tensor's name."""

    runtime: ort.OrtRuntime
    given: Mapping[str, np.dtype[Any]]

    def run(self, row: Mapping[str, Array], tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch, given tensors by name; larger values than a type holds become its largest."""
        fed = {GIVEN.format(name): _cast(tensors[name], kind) for name, kind in self.given.items()}
        return self.runtime.run({**row, **fed})


def cut(graph: onnx.ModelProto, at: Mapping[str, Array], tapped: Iterable[str]) -> Cut:
    """Cut a graph at some tensors, given with what they hold on some input; the given graph is not changed.

    It also answers with the tensors of `tapped`, which nodes make, beside the graph's outputs.
    """
    copy = copied(graph)
    _read_given(copy.graph.node, set(at))
    copy.graph.input.extend(_declared(GIVEN.format(name), values) for name, values in at.items())
    return Cut(ort.tapped(copy, list(tapped)), {name: values.dtype for name, values in at.items()})


def layouts_in_float(graph: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with Reshape and Transpose before rounding, not after it; the given one is not changed.

    `x -> QuantizeLinear -> Reshape -> DequantizeLinear` becomes `x -> Reshape -> QuantizeLinear -> DequantizeLinear`,
    which computes the same, and what Reshape gives is the tensor of that name in the fp32 graph.
    """
    from onnx import helper

    copy = copied(graph)
    rounded: dict[str, onnx.NodeProto] = {}
    added: set[str] = set()
    source: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []
    for node in copy.graph.node:
        first = node.input[0] if node.input else ""
        if node.op_type == "QuantizeLinear":
            rounded[node.output[0]], source[node.output[0]] = node, first
        elif node.op_type in LAYOUT and first in rounded:
            node.input[0] = source[first]
            rounded[node.output[0]], source[node.output[0]] = rounded[first], node.output[0]
        elif node.op_type == "DequantizeLinear" and source.get(first) == first:
            name = f"{first}/rounded"
            if name not in added:
                added.add(name)
                nodes.append(helper.make_node("QuantizeLinear", [first, *rounded[first].input[1:]], [name], name=name))
            node.input[0] = name
        nodes.append(node)
    set_nodes(copy.graph, nodes)
    return copy


def _read_given(nodes: Iterable[onnx.NodeProto], names: set[str]) -> None:
    for node in nodes:
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = GIVEN.format(name)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _read_given(attribute.g.node, names)


def _declared(name: str, values: Array) -> onnx.ValueInfoProto:
    """An input of any sizes; a list of integers keeps its length, since Resize asks for that of a shape."""
    from onnx import helper

    listed = values.ndim == 1 and values.dtype.kind == "i"
    shape = [len(values)] if listed else [None] * values.ndim
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), shape)


def _cast(values: Array, kind: np.dtype[Any]) -> Array:
    if kind.kind == "f" and values.dtype.itemsize > kind.itemsize:
        most = float(np.finfo(kind.name).max)
        values = np.clip(values, -most, most)
    return values.astype(kind)
