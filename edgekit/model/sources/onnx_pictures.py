"""Mean, std, order of channels and layout of an ONNX file's pictures, computed in its graph.

What `edgekit.model.image_input` does for a module, for a file: its inputs become plain pictures, RGB, channels first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.model.image_input import COLOURS, declares_preprocessing
from edgekit.model.onnx_check import rename
from edgekit.model.spec import Input

if TYPE_CHECKING:
    import onnx


def write_with_preprocessing(graph: onnx.ModelProto, named: Iterable[tuple[str, Input]], path: Path) -> None:
    """Write the graph with the preprocessing of its pictures in front.

    Args:
        graph: The file's; it is changed.
        named: The graph's inputs, by their names there, as they are declared.
        path: Where to write.
    """
    for name, i in named:
        if declares_preprocessing(i):
            _prepend(graph.graph, name, i)
    path.write_bytes(graph.SerializeToString(deterministic=True))


def _prepend(graph: onnx.GraphProto, name: str, i: Input) -> None:
    inside = f"{name}_preprocessed"
    for node in graph.node:
        rename(node, {name: inside})
    for output in graph.output:
        if output.name == name:
            output.name = inside
    if i.layout == "NHWC":
        value = next(each for each in graph.input if each.name == name).type.tensor_type.shape
        sizes = [type(value.dim[0])() for _ in value.dim]
        for new, old in zip(sizes, (value.dim[place] for place in (0, 3, 1, 2)), strict=True):
            new.CopyFrom(old)
        del value.dim[:]
        value.dim.extend(sizes)
    nodes = list(_nodes(graph, name, inside, i))
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])


def _nodes(graph: onnx.GraphProto, name: str, inside: str, i: Input) -> Iterator[onnx.NodeProto]:
    from onnx import helper, numpy_helper

    def constant(what: str, values: Sequence[float] | Sequence[int], shape: tuple[int, ...], dtype: str) -> str:
        array = np.array(values, dtype).reshape(shape)
        graph.initializer.append(numpy_helper.from_array(array, f"{name}_{what}"))
        return f"{name}_{what}"

    row = (1, COLOURS, 1, 1)
    steps: list[tuple[str, list[str], dict[str, Any]]] = []
    if i.channels == "BGR":
        steps.append(("Gather", [constant("order", (2, 1, 0), (COLOURS,), "int64")], {"axis": 1}))
    if i.mean or i.std:
        steps.append(("Sub", [constant("mean", i.mean or (0.0,) * COLOURS, row, i.dtype)], {}))
        steps.append(("Div", [constant("std", i.std or (1.0,) * COLOURS, row, i.dtype)], {}))
    if i.layout == "NHWC":
        steps.append(("Transpose", [], {"perm": (0, 2, 3, 1)}))
    for number, (operator, constants, attributes) in enumerate(steps):
        given = name if number == 0 else f"{inside}_{number}"
        made = inside if number == len(steps) - 1 else f"{inside}_{number + 1}"
        yield helper.make_node(operator, [given, *constants], [made], **attributes)
