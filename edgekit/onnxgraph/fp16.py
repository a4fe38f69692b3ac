"""fp32 -> fp16 weights and arithmetic; inputs and outputs stay fp32.

    images fp32 [B, 3, H, W] -> Conv fp32 -> Sigmoid fp32 -> scores fp32 [B, N]
    images fp32 [B, 3, H, W] -> Cast -> Conv fp16 -> Cast -> Sigmoid fp32 -> scores fp32 [B, N]

onnxconverter-common converts (fp16_converter.py); this file decides which nodes stay in fp32. What holds weights goes
to fp16. Reductions, roots, logarithms, sigmoids and top-K stay in fp32: they decide which patches win, and cost
nothing. Everything else follows its inputs, so that values cross between the precisions seldom. A LayerNormalization
stays one operator (taken apart in fp16 it overflows to a finite, wrong answer).

What the converter gives alone (`keep_io_types=True`), and with this file; tools/bench/fp16.py, onnxconverter-common
1.16.0, ONNX Runtime 1.31.1 on a CPU, which has few fp16 kernels and casts:

    model         converter  bytes      of fp32  max abs  SNR dB  casts  speed of fp32 (95 %)
    arr-coc-tiny  alone      ONNX's checker and ONNX Runtime refuse the graph
    arr-coc-tiny  this file  6,685,671  0.507    2.2e-03  59.8    20     0.91 (0.82 to 1.00)
    small         alone      refused
    small         this file  70,696     0.513    1.4e-03  73.5    5      0.90 (0.88 to 0.92)
    small ViT     alone      117,722    0.561    2.8e-03  63.4    7      0.82 (0.78 to 0.85)
    small ViT     this file  111,492    0.531    2.8e-03  63.3    6      0.88 (0.83 to 0.92)
    small ResNet  alone      16,134     0.606    6.2e-04  73.0    2      1.01 (0.99 to 1.04)
    small ResNet  this file  14,873     0.559    6.2e-04  73.0    2      1.03 (1.01 to 1.06)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import ExportError
from edgekit.onnxgraph.fp16_converter import LARGEST, is_float, run_converter

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

IN_FP32 = frozenset(
    (
        *("TopK", "Floor", "Resize", "Range", "CumSum", "Cast", "ConstantOfShape", "RandomNormal", "RandomUniform"),
        *("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceSumSquare", "ReduceL2", "ReduceLogSumExp"),
        *("Exp", "Log", "LogSoftmax", "Sqrt", "Pow", "Reciprocal", "Sigmoid"),
    )
)
"""Operators that stay in fp32: for accuracy, or because an attribute names their type."""
IN_FP16 = frozenset(("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "LayerNormalization", "BatchNormalization"))
"""Operators that go to fp16 whatever their inputs are."""
MOVING = frozenset(
    ("Gather", "Reshape", "Transpose", "Slice", "Split", "Squeeze", "Unsqueeze", "Concat", "Expand", "Tile")
)
"""Operators that only move values: large weights (an embedding) are moved in fp16, whoever reads them."""
LARGE = 4096
"""Elements of a weight that is worth a cast."""


def convert(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """Convert a graph; the given one is not changed.

    Returns:
        The graph in fp16, and how many elements of weights were clamped to fp16's range.

    Raises:
        ExportError: If the graph has control flow, or is not a valid graph.
    """
    import onnx
    import onnx_ir as ir
    import onnx_ir.passes.common as passes

    _refuse_control_flow(model)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    except Exception as error:
        raise ExportError(f"the graph's types cannot be inferred: {str(error).splitlines()[0]}") from error
    graph = ir.from_proto(inferred)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(graph)
    passes.NameFixPass()(graph)
    kept = nodes_in_fp32(graph.graph)
    clamped = _clamped(graph.graph, kept)
    return run_converter(graph, kept), clamped


def nodes_in_fp32(graph: ir.Graph) -> frozenset[ir.Node]:
    """The nodes that stay in fp32, of a graph in topological order whose values have types."""
    kept: set[ir.Node] = set()
    half: set[ir.Value] = set()
    for node in graph:
        follows = any(value in half for value in node.inputs) and node.op_type not in IN_FP32
        if (node.op_type in IN_FP16 or follows or _moves_weights(node)) and _takes_fp16(
            node, graph.opset_imports.get(node.domain)
        ):
            half.update(value for value in node.outputs if is_float(value))
        else:
            kept.add(node)
    return frozenset(kept)


def _moves_weights(node: ir.Node) -> bool:
    moved = [value for value in node.inputs if value is not None and is_float(value)]
    weights = [value.const_value for value in moved if value.const_value is not None]
    large = any(weight.size >= LARGE for weight in weights)
    return node.op_type in MOVING and large and len(weights) == len(moved)


def _takes_fp16(node: ir.Node, opset: int | None) -> bool:
    """Whether an operator's definition allows fp16 for each input and output that a node has and that may be fp32."""
    import onnx

    if opset is None or not onnx.defs.has(node.op_type, opset, node.domain):
        return True  # an operator of a runtime: nothing is known
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    pairs = (*zip(node.inputs, schema.inputs, strict=False), *zip(node.outputs, schema.outputs, strict=False))
    allowed = [formal.types for value, formal in pairs if value is not None]
    return all("tensor(float16)" in types for types in allowed if "tensor(float)" in types)


def _refuse_control_flow(model: onnx.ModelProto) -> None:
    from onnx import AttributeProto

    for node in model.graph.node:
        if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
            raise ExportError(f"the graph has control flow ('{node.op_type}'), which fp16 conversion does not take")


def _clamped(graph: ir.Graph, kept: frozenset[ir.Node]) -> int:
    """How many elements of the weights that become fp16 are finite and beyond its range."""
    found = 0
    for value in graph.initializers.values():
        if is_float(value) and value.const_value is not None and any(use.node not in kept for use in value.uses()):
            magnitudes = np.abs(value.const_value.numpy())
            found += int(((magnitudes > LARGEST) & np.isfinite(magnitudes)).sum())
    return found
