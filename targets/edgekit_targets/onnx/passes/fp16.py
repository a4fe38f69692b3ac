"""Conversion of weights and arithmetic from fp32 to fp16; inputs and outputs stay fp32.

    images fp32 [B, 3, H, W] -> Conv fp32 -> Sigmoid fp32 -> scores fp32 [B, N]
    images fp32 [B, 3, H, W] -> Cast -> Conv fp16 -> Cast -> Sigmoid fp32 -> scores fp32 [B, N]

onnxconverter-common converts (`_run_converter`); this file decides which nodes stay in fp32. Operators with weights go
to fp16. Reductions, roots, logarithms, sigmoids and top-K stay in fp32: they decide which patches win, and cost
nothing. Everything else follows its inputs, so that values rarely cross between the precisions. A LayerNormalization
stays one operator (decomposed in fp16 it overflows to a finite, wrong result).

The converter alone (`keep_io_types=True`) compared with this file; tools/bench/fp16.py, onnxconverter-common
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

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import ExportError, reason
from edgekit_targets.onnx.passes.graph import graph_pass, take_output

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

LARGEST = float(np.finfo(np.float16).max)
"""65504: larger weights are clamped to it; infinity stays infinity."""
SMALLEST = float(np.finfo(np.float16).smallest_subnormal)
"""2 ** -24: a smaller weight that is not zero becomes this, so that an epsilon does not become a division by zero."""
OWN_CAST = "OwnCast"
"""Operator name of the graph's own casts during the conversion."""
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
SCATTERING = frozenset({"ScatterElements", "ScatterND"})
"""Operators whose reductions (sums, products, extremes) ONNX Runtime's CPU does not support in fp16."""
MOVING = frozenset(
    ("Gather", "Reshape", "Transpose", "Slice", "Split", "Squeeze", "Unsqueeze", "Concat", "Expand", "Tile")
)
"""Operators that only move values: large weights (an embedding) are moved in fp16, whatever reads them."""
LARGE = 4096
"""Elements of a weight that is worth a cast."""


@graph_pass("fp16.convert")
def convert(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """Convert a graph; the original is not changed.

    Returns:
        The graph in fp16, and the number of weight elements clamped to fp16's range.

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
        raise ExportError(f"the graph's types cannot be inferred: {reason(error)}") from error
    graph = ir.from_proto(inferred)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(graph)
    passes.NameFixPass()(graph)
    fp32_nodes = nodes_in_fp32(graph.graph)
    # Number of elements of the fp16 weights that are finite and beyond its range.
    count = 0
    for value in graph.graph.initializers.values():
        if (
            _is_float(value)
            and value.const_value is not None
            and any(use.node not in fp32_nodes for use in value.uses())
        ):
            magnitudes = np.abs(value.const_value.numpy())
            count += int(((magnitudes > LARGEST) & np.isfinite(magnitudes)).sum())
    clamped = count
    return _run_converter(graph, fp32_nodes), clamped


def nodes_in_fp32(graph: ir.Graph) -> frozenset[ir.Node]:
    """Return the nodes that stay in fp32, of a graph in topological order whose values have types."""
    nodes: set[ir.Node] = set()
    half: set[ir.Value] = set()
    for node in graph:
        follows = any(value in half for value in node.inputs) and node.op_type not in IN_FP32
        if (node.op_type in IN_FP16 or follows or _moves_weights(node)) and _takes_fp16(
            node, graph.opset_imports.get(node.domain)
        ):
            half.update(value for value in node.outputs if _is_float(value))
        else:
            nodes.add(node)
    return frozenset(nodes)


def _moves_weights(node: ir.Node) -> bool:
    moved = [value for value in node.inputs if value is not None and _is_float(value)]
    weights = [value.const_value for value in moved if value.const_value is not None]
    large = any(weight.size >= LARGE for weight in weights)
    return node.op_type in MOVING and large and len(weights) == len(moved)


def _takes_fp16(node: ir.Node, opset: int | None) -> bool:
    """Return whether an operator supports fp16 for each input and output that may be fp32, and has a kernel for it."""
    import onnx

    if opset is None or not onnx.defs.has(node.op_type, opset, node.domain):
        # Nothing is known of a runtime's own operator.
        return True
    if node.op_type in SCATTERING and "reduction" in node.attributes:
        return False
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    pairs = (*zip(node.inputs, schema.inputs, strict=False), *zip(node.outputs, schema.outputs, strict=False))
    constraints = {
        type_constraint.type_param_str: type_constraint.allowed_type_strs for type_constraint in schema.type_constraints
    }
    allowed = [constraints.get(formal.type_str, [formal.type_str]) for value, formal in pairs if value is not None]
    return all("tensor(float16)" in types for types in allowed if "tensor(float)" in types)


def _refuse_control_flow(model: onnx.ModelProto) -> None:
    from onnx import AttributeProto

    for node in model.graph.node:
        if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
            raise ExportError(
                f"the graph has control flow ('{node.op_type}'), which fp16 conversion does not support. Export it "
                "without branches and loops, or use onnx or onnx-int8-dynamic"
            )


def _run_converter(graph: ir.Model, nodes: frozenset[ir.Node]) -> onnx.ModelProto:
    """Convert a graph to fp16, except inputs and outputs, around the defects of onnxconverter-common 1.16.0.

    1. An output of the graph is not cast for the nodes in fp32 that read it: a TopK of it gets fp16, and ONNX Runtime
       refuses its output's type. With `keep_io_types`, nodes in fp16 that read an output get fp32; without it, the
       cast that makes an output may be removed. So: `keep_io_types=False`, inputs and outputs pass through an
       Identity, and each Identity becomes a Cast afterwards.
    2. A weight with readers in fp32 and in fp16 stays fp32 for both. So: each side gets its own copy.
    3. "Cast" in `op_block_list` never ends: the added casts are cast again. So: nodes are listed only by name.
    4. The output of a node in fp32 is cast to fp16, and back for the next node in fp32 unless that is the only reader;
       each reader gets its own cast. So: such pairs are removed, and equal casts merged.
    5. Values without `value_info` are not cast. So: types are inferred strictly before, and dropped after.
    6. A weight with `value_info` is cast, although it is already fp32. So: only other values have one.
    7. The graph's own cast to fp16 is removed with the cast back that follows it, although it rounds on
       purpose. So: the graph's own casts have another operator name during the conversion.
    8. Each clamped weight gives a warning. So: they are silenced, and counted here.

    Args:
        graph: In fp32, with the types of all values; changed.
        nodes: The nodes that stay in fp32.
    """
    import onnx_ir as ir
    from onnxconverter_common import float16

    _split_weights(graph.graph, nodes)
    borders = _add_borders(graph.graph)
    own = [node for node in graph.graph if node.name not in borders]
    names = {str(node.name): tuple(value.name for value in node.outputs) for node in own}
    for node in own:
        node.op_type = OWN_CAST if node.op_type == "Cast" else node.op_type
    proto = ir.to_proto(graph)
    values = [value for value in proto.graph.value_info if value.name not in graph.graph.initializers]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(values)
    with warnings.catch_warnings(action="ignore"):
        converted = float16.convert_float_to_float16(
            proto,
            min_positive_val=SMALLEST,
            max_finite_val=LARGEST,
            disable_shape_infer=True,
            op_block_list=[],
            node_block_list=[node.name for node in nodes],
            check_fp16_ready=False,
        )
    result = ir.from_proto(converted)
    _make_casts(result.graph, borders)
    _merge_casts(result)
    _restore_names(result, names)
    for node in result.graph:
        node.op_type = "Cast" if node.op_type == OWN_CAST else node.op_type
    model: onnx.ModelProto = ir.to_proto(result)
    del model.graph.value_info[:]
    return model


def _split_weights(graph: ir.Graph, nodes: frozenset[ir.Node]) -> None:
    """Give the nodes in fp32 their own copy of each weight that nodes in fp16 also read."""
    import onnx_ir as ir

    for name, value in tuple(graph.initializers.items()):
        uses = [use for use in value.uses() if use.node in nodes]
        if not _is_float(value) or not 0 < len(uses) < len(value.uses()):
            continue
        copy = ir.Value(name=f"{name}_fp32", shape=value.shape, type=value.type, const_value=value.const_value)
        graph.register_initializer(copy)
        for use in uses:
            use.node.replace_input_with(use.idx, copy)


def _add_borders(graph: ir.Graph) -> dict[str, int]:
    """Add an Identity after each fp32 input and before each fp32 output; return their cast types by name."""
    import onnx_ir as ir

    borders: dict[str, int] = {}
    for value in graph.inputs:
        if _is_float(value):
            uses = tuple(value.uses())
            node = ir.node("Identity", [value], name=f"{value.name}/to_fp16")
            inner = node.outputs[0]
            inner.name, inner.shape, inner.type = f"{value.name}_fp16", value.shape, value.type
            for use in uses:
                use.node.replace_input_with(use.idx, inner)
            graph.insert_before(graph[0], node)
            borders[str(node.name)] = ir.DataType.FLOAT16
    for position, value in enumerate(graph.outputs):
        if _is_float(value) and not value.is_graph_input():
            node = ir.node("Identity", [value], name=f"{value.name}/to_fp32")
            outer = node.outputs[0]
            outer.name, outer.shape, outer.type = value.name, value.shape, value.type
            value.name = f"{value.name}_fp16"
            graph.append(node)
            graph.outputs[position] = outer
            borders[str(node.name)] = ir.DataType.FLOAT
    return borders


def _make_casts(graph: ir.Graph, borders: Mapping[str, int]) -> None:
    """Turn the Identity nodes at inputs and outputs into Casts, and the inputs and outputs into fp32."""
    import onnx_ir as ir

    for node in graph:
        if (precision := borders.get(str(node.name))) is not None:
            node.op_type = "Cast"
            node.attributes.add(ir.AttrInt64("to", precision))
    for value in (*graph.inputs, *graph.outputs):
        if value.dtype == ir.DataType.FLOAT16:
            value.dtype = ir.DataType.FLOAT


def _merge_casts(model: ir.Model) -> None:
    """Replace Cast(Cast(x: fp32, fp16), fp32) by x, and keep one Cast of each value to each type."""
    import onnx_ir as ir
    import onnx_ir.passes.common as passes

    first: dict[tuple[ir.Value | None, int], ir.Value] = {}
    for node in model.graph:
        if node.op_type != "Cast":
            continue
        source, output, to = node.inputs[0], node.outputs[0], node.attributes["to"].as_int()
        before = source.producer() if source is not None else None
        if before is not None and before.op_type == "Cast" and to == ir.DataType.FLOAT:
            same = before.inputs[0]
        else:
            same = first.setdefault((source, to), output)
        if same is not None and same is not output:
            take_output(model.graph, output, same)
            ir.convenience.replace_all_uses_with(output, same)
    passes.RemoveUnusedNodesPass()(model)


def _restore_names(model: ir.Model, names: Mapping[str, tuple[str | None, ...]]) -> None:
    """Name a value in the precision of its computation; its cast is called `name_fp16` or `name_fp32`."""
    import onnx_ir as ir
    import onnx_ir.passes.common as passes

    for node in model.graph:
        for value, name in zip(node.outputs, names.get(str(node.name), ()), strict=False):
            if not value.is_graph_output():
                value.name = name
    for node in model.graph:
        if node.op_type == "Cast" and node.inputs[0] is not None:
            source, output, half = (
                node.inputs[0],
                node.outputs[0],
                node.attributes["to"].as_int() == ir.DataType.FLOAT16,
            )
            if not output.is_graph_output():
                output.name = f"{source.name}_fp{16 if half else 32}"
            node.name = f"{output.name}/Cast"
    passes.NameFixPass()(model)


def _is_float(value: ir.Value) -> bool:
    """Return whether a value is fp32."""
    import onnx_ir as ir

    return value.dtype == ir.DataType.FLOAT
