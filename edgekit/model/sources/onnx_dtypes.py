"""An ONNX file that takes or gives floats of 16 or 64 bits computes in float32, as a module of such weights does.

Artifacts take float32, which every runtime and host has, and the targets make fp16 and INT8 of it themselves. Every
value of float16 is one of float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.onnx_check import bodies

if TYPE_CHECKING:
    import onnx

NAMES_A_DTYPE = ("to", "dtype", "output_dtype")
"""Attributes of operators that hold the number of a dtype."""


def in_float32(model: onnx.ModelProto) -> bool:
    """Bring a graph to float32 where what it takes or gives is float16 or float64, and say whether that was so."""
    from onnx import TensorProto

    ports = {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    if not (others := ports & {TensorProto.FLOAT16, TensorProto.DOUBLE}):
        return False
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    values = [value for function in model.functions for value in function.value_info]
    while graphs or nodes:
        for node in nodes:
            _of_node(node, others)
        graphs += [body for node in nodes for body in bodies(node)]
        nodes = []
        if graphs:
            graph = graphs.pop()
            nodes = list(graph.node)
            values += [*graph.input, *graph.output, *graph.value_info]
            _of_tensors(graph.initializer, others)
    for value in values:
        if value.type.tensor_type.elem_type in others:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    return True


def _of_node(node: onnx.NodeProto, others: Iterable[int]) -> None:
    from onnx import TensorProto

    for attribute in node.attribute:
        _of_tensors(_tensors(attribute), others)
        if attribute.name in NAMES_A_DTYPE and attribute.i in others:
            attribute.i = TensorProto.FLOAT


def _tensors(attribute: onnx.AttributeProto) -> Iterator[onnx.TensorProto]:
    yield from attribute.tensors
    if attribute.HasField("t"):
        yield attribute.t


def _of_tensors(tensors: Iterable[onnx.TensorProto], others: Iterable[int]) -> None:
    from onnx import numpy_helper

    for tensor in tensors:
        if tensor.data_type in others:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
