"""An exported graph to be changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from graphlib import TopologicalSorter
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.model.spec import Array

Value = Array | np.floating[Any] | np.integer[Any]


class Graph:
    """A graph to be changed."""

    def __init__(self, exported: onnx.ModelProto) -> None:
        self.model = copy.deepcopy(exported)
        self.graph = self.model.graph
        self.made = 0

    def node(self, name: str) -> onnx.NodeProto:
        found: onnx.NodeProto = next(node for node in self.graph.node if node.name == name)
        return found

    def out(self, name: str) -> str:
        return str(self.node(name).output[0])

    def stored(self) -> dict[str, onnx.TensorProto]:
        return {value.name: value for value in self.graph.initializer}

    def weight(self, name: str) -> tuple[int, Array]:
        """A node's first input that is stored: its place and its value."""
        stored, inputs = self.stored(), self.node(name).input
        place = next(i for i, used in enumerate(inputs) if used in stored)
        return place, numpy_helper.to_array(stored[inputs[place]])

    def change(self, name: str, new: Callable[[Array], Array]) -> None:
        """Give one node another weight."""
        place, old = self.weight(name)
        self.node(name).input[place] = self.const(np.asarray(new(old), old.dtype))

    def become(self, name: str, op: str = "", **attributes: Any) -> None:
        """Give a node another operator or other attributes."""
        node = self.node(name)
        node.op_type = op or node.op_type
        kept = [a for a in node.attribute if a.name not in attributes]
        del node.attribute[:]
        node.attribute.extend([*kept, *(helper.make_attribute(key, value) for key, value in attributes.items())])

    def const(self, value: Value) -> str:
        self.made += 1
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value, order="C"), f"made_{self.made}"))
        return f"made_{self.made}"

    def add(self, op: str, *inputs: str | Value, **attributes: Any) -> str:
        names = [each if isinstance(each, str) else self.const(each) for each in inputs]
        self.made += 1
        self.graph.node.append(helper.make_node(op, names, [f"made_{self.made}"], **attributes))
        return f"made_{self.made}"

    def wrap(self, tensor: str, new: Callable[[str], str]) -> None:
        """Put new nodes between a tensor and all that read it."""
        before = list(self.graph.node)
        if any(tensor == value.name for value in self.graph.input):
            made = new(tensor)
            for node in before:
                node.input[:] = [made if used == tensor else used for used in node.input]
            return
        for node in before:
            node.output[:] = [f"raw_{tensor}" if given == tensor else given for given in node.output]
        self.graph.node.append(helper.make_node("Identity", [new(f"raw_{tensor}")], [tensor]))

    def every(self, op: str, new: Callable[[onnx.NodeProto], str]) -> None:
        """Every node with an operator gives way to others."""
        for node in [node for node in self.graph.node if node.op_type == op]:
            self.graph.node.append(helper.make_node("Identity", [new(node)], [node.output[0]]))
            self.graph.node.remove(node)

    def finish(self) -> bytes:
        """Each node after those that it reads; outputs are of whatever type they became."""
        makers = {name: i for i, node in enumerate(self.graph.node) for name in node.output}
        needs = {i: {makers[x] for x in n.input if x in makers} for i, n in enumerate(self.graph.node)}
        ordered = [self.graph.node[i] for i in TopologicalSorter(needs).static_order()]
        del self.graph.node[:]
        self.graph.node.extend(ordered)
        for value in self.graph.output:
            value.ClearField("type")
        return bytes(self.model.SerializeToString())


Change = Callable[[Graph], object]
Weight = Callable[[Array], Array]
