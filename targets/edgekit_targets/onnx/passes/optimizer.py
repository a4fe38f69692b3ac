"""onnxscript's optimizer: rules that take out only what changes nothing, and what is computed of constants alone.

    x + 0 -> x        x * 1 -> x        x + 1e-8, as an epsilon before a root or a division: stays

onnxscript's rules compare constants with a tolerance (1e-8, and 1e-5 of the value), and so drop an epsilon as if it
were zero: a division by zero where the module has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgekit_targets.onnx.passes.constant_names import name_constants
from edgekit_targets.onnx.passes.graph import copied, graph_pass
from edgekit_targets.onnx.passes.weight_only import RECURRENT

if TYPE_CHECKING:
    import onnx
    from onnxscript.rewriter._pattern_ir import Constant

TOLERANCES = ("_rel_tol", "_abs_tol")
LARGEST_WEIGHT = 1 << 28
"""Elements of a constant that is folded: any weight of a model for the edge."""
LARGEST_SHAPE = 1 << 20
"""Elements of a constant that is folded: position embeddings of a large picture, and no whole layer's weights."""


@contextmanager
def exact() -> Iterator[None]:
    """While it lasts, onnxscript's rules take a constant for 0 or 1 only where it is that."""
    constants = _constants()
    kept = [{name: getattr(constant, name) for name in TOLERANCES} for constant in constants]
    try:
        for constant in constants:
            constant._rel_tol = constant._abs_tol = 0.0
        yield
    finally:
        for constant, own in zip(constants, kept, strict=True):
            for name, value in own.items():
                setattr(constant, name, value)


def _constants() -> list[Constant]:
    """What the rules without effect compare with."""
    from onnxscript.rewriter._pattern_ir import Constant
    from onnxscript.rewriter.rules.common import _no_op

    values = (v for rule in _no_op.rules for node in rule._target_pattern for v in node.inputs)
    return [value for value in values if isinstance(value, Constant)]


@graph_pass
def folded(graph: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with its recurrent layers' weights as constants; the graph itself where it has none of these.

    INT8 looks for weights, and finds only what is one. PyTorch's exporter folds small constants only; a recurrent
    layer's gates, which ONNX orders otherwise, are larger:

        weight_ih [4H, K] -> Slice, Concat, Unsqueeze -> LSTM, W [1, 4H, K]
        W [1, 4H, K] constant -> LSTM
    """
    if not any(node.op_type == RECURRENT for node in graph.graph.node):
        return graph
    import onnx_ir as ir
    import onnx_ir.passes.common as passes
    from onnxscript import optimizer

    model = ir.from_proto(graph)
    optimizer.fold_constants(model, input_size_limit=LARGEST_WEIGHT, output_size_limit=LARGEST_WEIGHT)
    passes.RemoveUnusedNodesPass()(model)
    proto = ir.to_proto(model)
    del proto.graph.value_info[:]  # the quantizers take stale shapes for the truth
    return proto


@graph_pass
def fixed(graph: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
    """A graph with inputs of these shapes; what it computes of shapes becomes constants.

    images [batch, 3, height, width] -> Shape, Gather, Mul, Reshape -> ...
    images [1, 3, 224, 320] -> Reshape by a constant -> ...
    """
    import onnx_ir as ir
    from onnxscript import optimizer

    copy = copied(graph)
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
        optimizer.optimize(model, input_size_limit=LARGEST_SHAPE, output_size_limit=LARGEST_SHAPE)
    proto = ir.to_proto(name_constants(model))
    del proto.graph.value_info[:]
    return proto
