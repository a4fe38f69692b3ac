"""Which integers an ONNX file's input can hold, by what reads them: rows of a table, classes of a one-hot vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.model.onnx_check import every_node

if TYPE_CHECKING:
    import onnx

MOVES = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"))
"""Operators whose first input's integers are their output's."""


def range_of_integers(graph: onnx.GraphProto, name: str) -> tuple[int, int] | None:
    """The least and the largest integer that all readers of an input take; None where none of them tells it."""
    nodes = [*every_node(graph)]
    constants = {one.name: [*one.dims] for one in graph.initializer}
    values: dict[str, Any] = {one.name: one for one in graph.initializer if len(one.raw_data) <= 8}
    for node in nodes:
        for value in (attribute.t for attribute in node.attribute if node.op_type == "Constant"):
            constants[node.output[0]], values[node.output[0]] = [*value.dims], value
    found = []
    waiting, seen = [name], {name}
    while waiting:
        value = waiting.pop()
        for node in nodes:
            if value not in node.input:
                continue
            if node.op_type in MOVES and node.input[0] == value and node.output[0] not in seen:
                seen.add(node.output[0])
                waiting.append(node.output[0])
            elif (rows := _rows(node, value, constants, values)) is not None:
                found.append(rows - 1)
    return (0, min(found)) if found else None


def _rows(node: onnx.NodeProto, value: str, shapes: dict[str, list[int]], values: dict[str, Any]) -> int | None:
    """How many rows or classes a node chooses among by these integers."""
    from onnx import numpy_helper

    if len(node.input) < 2:
        return None
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    if node.op_type == "Gather" and node.input[1] == value and shapes.get(node.input[0]):
        return int(shapes[node.input[0]][axis])
    if node.op_type == "OneHot" and node.input[0] == value and node.input[1] in values:
        return int(np.ravel(numpy_helper.to_array(values[node.input[1]]))[0])
    return None
