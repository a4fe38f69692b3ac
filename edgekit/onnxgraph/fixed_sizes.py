"""A graph with open sizes -> the same at one size: what it computes of shapes becomes constants.

images [batch, 3, height, width] -> Shape, Gather, Mul, Reshape -> ...
images [1, 3, 224, 320] -> Reshape by a constant -> ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.onnxgraph.constant_names import name_constants
from edgekit.onnxgraph.exact_rules import exact

if TYPE_CHECKING:
    import onnx

LARGEST = 1 << 20
"""Elements of a constant that is folded: position embeddings of a large picture, and no whole layer's weights."""


def fixed(graph: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
    """A copy of a graph with inputs of these shapes."""
    import onnx_ir as ir
    import onnxscript.optimizer as optimizer
    from onnx import ModelProto

    copy = ModelProto()
    copy.CopyFrom(graph)
    del copy.graph.value_info[:]
    for value in copy.graph.input:
        for dimension, size in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=True):
            dimension.dim_value = size
    for value in copy.graph.output:  # inferred again from the inputs'
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.Clear()
    model = ir.from_proto(copy)
    with exact():
        optimizer.optimize(model, input_size_limit=LARGEST, output_size_limit=LARGEST)
    name_constants(model)
    made = ir.to_proto(model)
    del made.graph.value_info[:]
    return made
