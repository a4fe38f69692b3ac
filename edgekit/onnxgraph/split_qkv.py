"""Packed queries, keys and values, taken apart by one Split: one copy of the data less.

    x [B, N, 3 * heads * d] -> Reshape [B, N, 3, heads, d] -> Transpose [3, B, heads, N, d] -> Gather 0, 1, 2
    x [B, N, 3 * heads * d] -> Reshape [B, N, 3 * heads, d] -> Transpose [B, 3 * heads, N, d] -> Split

Both give queries, keys and values of [B, heads, N, d].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.onnxgraph.graph import on_ir, sizes

if TYPE_CHECKING:
    import onnx_ir as ir

PERMUTATION = [2, 0, 3, 1, 4]


@on_ir
def split(model: ir.Model) -> None:
    """Rewrite each Reshape -> Transpose -> Gather 0, 1, 2."""
    import onnx_ir.passes.common as passes

    for node in tuple(model.graph):
        if node.op_type == "Transpose" and (picked := _picked(node)) is not None:
            _rewrite(model.graph, node, picked)
    passes.RemoveUnusedNodesPass()(model)
    passes.CommonSubexpressionEliminationPass()(model)


def _picked(node: ir.Node) -> list[ir.Value] | None:
    """The values that are picked from the first axis of a transposed packing, in order; None where it is not that."""
    perm, source = node.attributes.get("perm"), node.inputs[0]
    reshape = source.producer() if source is not None else None
    if perm is None or list(perm.as_ints()) != PERMUTATION or reshape is None or reshape.op_type != "Reshape":
        return None
    shape = source.shape if source is not None else None
    if shape is None or not all(isinstance(shape[axis], int) for axis in (2, 3, 4)):
        return None
    values: dict[int, ir.Value] = {}
    for use in node.outputs[0].uses():
        index = use.node.inputs[1].const_value if use.node.op_type == "Gather" and use.node.inputs[1] else None
        axis = use.node.attributes.get("axis")
        if index is None or index.numpy().ndim != 0 or (axis is not None and axis.as_int() != 0):
            return None
        if use.node.outputs[0].is_graph_output():
            return None
        values[int(index.numpy())] = use.node.outputs[0]
    return [values[i] for i in range(len(values))] if sorted(values) == list(range(int(str(shape[2])))) else None


def _rewrite(graph: ir.Graph, node: ir.Node, picked: list[ir.Value]) -> None:
    import onnx_ir as ir

    packed = node.inputs[0]
    reshape = packed.producer() if packed is not None else None
    if packed is None or packed.shape is None or reshape is None or reshape.inputs[0] is None:
        return
    many, heads, size = (int(str(packed.shape[axis])) for axis in (2, 3, 4))
    rows = ir.node("Slice", [reshape.inputs[1], *(sizes(graph, [i]) for i in (0, 2))])
    shape = ir.node("Concat", [rows.outputs[0], sizes(graph, [many * heads, size])], {"axis": 0})
    laid = ir.node("Reshape", [reshape.inputs[0], shape.outputs[0]])
    moved = ir.node("Transpose", [laid.outputs[0]], {"perm": [0, 2, 1, 3]})
    parts = ir.node("Split", [moved.outputs[0]], {"axis": 1, "num_outputs": many}, num_outputs=many)
    for new in (rows, shape, laid, moved, parts):
        new.metadata_props.update(node.metadata_props)
        graph.insert_before(node, new)
    for old, part in zip(picked, parts.outputs, strict=True):
        part.shape, part.type = old.shape, old.type
        ir.convenience.replace_all_uses_with(old, part)
