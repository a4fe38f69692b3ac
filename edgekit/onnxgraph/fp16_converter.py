"""onnxconverter-common's fp16 converter, and what goes around its defects (version 1.16.0, float16.py).

1. An output of the graph is not cast for the nodes in fp32 that read it: a TopK of it gets fp16, and ONNX Runtime
   refuses its output's type. With `keep_io_types`, nodes in fp16 that read an output get fp32; without it, the cast
   that makes an output may be taken out. So: `keep_io_types=False`, inputs and outputs pass through an Identity, and
   each Identity is made a Cast afterwards.
2. A weight that nodes in fp32 and in fp16 read stays fp32 for both. So: each side gets its own.
3. "Cast" in `op_block_list` never ends: the casts that it adds are cast again. So: nodes are listed by name only.
4. The output of a node in fp32 is cast to fp16, and back for the next node in fp32 unless that is the only reader;
   each reader gets a cast of its own. So: such pairs are taken out, and equal casts merged.
5. Values without `value_info` are not cast. So: types are inferred strictly before, and dropped after.
6. A weight with `value_info` is cast, though it is fp32 already. So: only other values have one.
7. A cast to fp16 that is the graph's own is taken out with the cast back that follows it, though it rounds on
   purpose. So: the graph's own casts have another operator's name meanwhile.
8. Each weight that is clamped gives a warning. So: they are silenced, and counted here.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

LARGEST = float(np.finfo(np.float16).max)
"""65504: larger weights are clamped to it; infinity stays infinity."""
SMALLEST = float(np.finfo(np.float16).smallest_subnormal)
"""2 ** -24: a smaller weight that is not zero becomes this, so that an epsilon does not become a division by zero."""
OWN_CAST = "OwnCast"
"""Operator of the graph's own casts while it is converted."""


def run_converter(graph: ir.Model, kept: frozenset[ir.Node]) -> onnx.ModelProto:
    """Convert a graph to fp16, inputs and outputs excepted.

    Args:
        graph: In fp32, with the types of all values; changed.
        kept: The nodes that stay in fp32.
    """
    import onnx_ir as ir
    from onnxconverter_common import float16

    _split_weights(graph.graph, kept)
    borders = _add_borders(graph.graph)
    own = [node for node in graph.graph if node.name not in borders]
    names = {str(node.name): tuple(value.name for value in node.outputs) for node in own}
    for node in own:
        node.op_type = OWN_CAST if node.op_type == "Cast" else node.op_type
    proto = ir.to_proto(graph)
    values = [value for value in proto.graph.value_info if value.name not in graph.graph.initializers]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = float16.convert_float_to_float16(
            proto,
            min_positive_val=SMALLEST,
            max_finite_val=LARGEST,
            disable_shape_infer=True,
            op_block_list=[],
            node_block_list=[node.name for node in kept],
            check_fp16_ready=False,
        )
    result = ir.from_proto(converted)
    _make_casts(result.graph, borders)
    _merge_casts(result)
    _restore_names(result, names)
    for node in result.graph:
        node.op_type = "Cast" if node.op_type == OWN_CAST else node.op_type
    made: onnx.ModelProto = ir.to_proto(result)
    del made.graph.value_info[:]
    return made


def _split_weights(graph: ir.Graph, kept: frozenset[ir.Node]) -> None:
    """Give the nodes in fp32 their own copy of each weight that nodes in fp16 read too."""
    import onnx_ir as ir

    for name, value in tuple(graph.initializers.items()):
        uses = [use for use in value.uses() if use.node in kept]
        if not is_float(value) or not 0 < len(uses) < len(value.uses()):
            continue
        copy = ir.Value(name=f"{name}_fp32", shape=value.shape, type=value.type, const_value=value.const_value)
        graph.register_initializer(copy)
        for use in uses:
            use.node.replace_input_with(use.idx, copy)


def _add_borders(graph: ir.Graph) -> dict[str, int]:
    """Put an Identity after each input and before each output of fp32; returns what each is to be cast to, by name."""
    import onnx_ir as ir

    borders: dict[str, int] = {}
    for value in graph.inputs:
        if is_float(value):
            uses = tuple(value.uses())
            node = ir.node("Identity", [value], name=f"{value.name}/to_fp16")
            inner = node.outputs[0]
            inner.name, inner.shape, inner.type = f"{value.name}_fp16", value.shape, value.type
            for use in uses:
                use.node.replace_input_with(use.idx, inner)
            graph.insert_before(graph[0], node)
            borders[str(node.name)] = ir.DataType.FLOAT16
    for position, value in enumerate(graph.outputs):
        if is_float(value) and not value.is_graph_input():
            node = ir.node("Identity", [value], name=f"{value.name}/to_fp32")
            outer = node.outputs[0]
            outer.name, outer.shape, outer.type = value.name, value.shape, value.type
            value.name = f"{value.name}_fp16"
            graph.append(node)
            graph.outputs[position] = outer
            borders[str(node.name)] = ir.DataType.FLOAT
    return borders


def _make_casts(graph: ir.Graph, borders: Mapping[str, int]) -> None:
    """Identity nodes at inputs and outputs -> Cast, and the inputs and outputs themselves -> fp32."""
    import onnx_ir as ir

    for node in graph:
        if (precision := borders.get(str(node.name))) is not None:
            node.op_type = "Cast"
            node.attributes.add(ir.AttrInt64("to", precision))
    for value in (*graph.inputs, *graph.outputs):
        if value.dtype == ir.DataType.FLOAT16:
            value.dtype = ir.DataType.FLOAT


def _merge_casts(model: ir.Model) -> None:
    """Cast(Cast(x: fp32, fp16), fp32) -> x, and one Cast of each value to each type."""
    import onnx_ir as ir
    import onnx_ir.passes.common as passes

    first: dict[tuple[ir.Value | None, int], ir.Value] = {}
    for node in model.graph:
        if node.op_type != "Cast":
            continue
        source, made, to = node.inputs[0], node.outputs[0], node.attributes["to"].as_int()
        before = source.producer() if source is not None else None
        if before is not None and before.op_type == "Cast" and to == ir.DataType.FLOAT:
            same = before.inputs[0]
        else:
            same = first.setdefault((source, to), made)
        if same is not None and same is not made:
            _replace(model.graph, made, same)
    passes.RemoveUnusedNodesPass()(model)


def _restore_names(model: ir.Model, names: Mapping[str, tuple[str | None, ...]]) -> None:
    """A value has its name in the precision that it is computed in; its cast is called `name_fp16` or `name_fp32`."""
    import onnx_ir as ir
    import onnx_ir.passes.common as passes

    for node in model.graph:
        for value, name in zip(node.outputs, names.get(str(node.name), ()), strict=False):
            if not value.is_graph_output():
                value.name = name
    for node in model.graph:
        if node.op_type == "Cast" and node.inputs[0] is not None:
            source, made, half = node.inputs[0], node.outputs[0], node.attributes["to"].as_int() == ir.DataType.FLOAT16
            if not made.is_graph_output():
                made.name = f"{source.name}_fp{16 if half else 32}"
            node.name = f"{made.name}/Cast"
    passes.NameFixPass()(model)


def _replace(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    """Let all read another value, which takes over the name of an output."""
    import onnx_ir as ir

    for position, output in enumerate(graph.outputs):
        if output is old:
            new.name, old.name = old.name, None
            graph.outputs[position] = new
    ir.convenience.replace_all_uses_with(old, new)


def is_float(value: ir.Value) -> bool:
    """Whether a value is fp32."""
    import onnx_ir as ir

    return value.dtype == ir.DataType.FLOAT
