"""Layers that read a largest or smallest value, which OpenVINO computes wrongly where they take INT8.

    x -> ReduceMax -> QuantizeLinear -> DequantizeLinear -> Gemm

OpenVINO 2026.4.1 fuses what stands between ReduceMax or ReduceMin and the layer into the reduction, and the largest
value comes out wrong (CPU plugin, its default mode; other reductions are right, GlobalMaxPool too, and all of it with
LP_TRANSFORMS_MODE=NO). Such layers stay in float arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.onnxgraph.groups import groups

if TYPE_CHECKING:
    import onnx

EXTREMES = ("ReduceMax", "ReduceMin")
_MOVING = (
    *("Concat", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape", "Resize", "Slice", "Split"),
    *("Squeeze", "Tile", "Transpose", "Unsqueeze"),
)
_ELEMENTWISE = (
    *("Abs", "Add", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Max"),
    *("Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Relu", "Sigmoid", "Softplus", "Sqrt", "Sub", "Tanh"),
)
FUSED = frozenset(_MOVING + _ELEMENTWISE)
"""Operators that may be fused into the reduction, or that rounding moves through."""


def groups_after_extremes(graph: onnx.ModelProto) -> tuple[str, ...]:
    """The groups of static INT8 with a layer that reads what ReduceMax or ReduceMin gave, through FUSED operators."""
    extreme: set[str] = set()  # tensors; nodes stand in topological order
    for node in graph.graph.node:
        if node.op_type in EXTREMES or (node.op_type in FUSED and not extreme.isdisjoint(node.input)):
            extreme.update(node.output)
    nodes = {node.name: node for node in graph.graph.node}
    return tuple(group for group, names in groups(graph).items() if any(nodes[n].input[0] in extreme for n in names))
