"""Patch embedding as Gemm: a convolution whose kernel is its stride is a linear layer over patches.

    image [B, C, H, W] -> Conv p x p [B, D, h, w] -> Reshape [B, D, h * w] -> Transpose [B, h * w, D]
    image [B, C, H, W] -> Reshape [B, C, h, p, w, p] -> Transpose [B, h, w, C, p, p] -> Reshape [B * h * w, C * p * p]
        -> Gemm [B * h * w, D] -> Reshape [B, h * w, D]

Where the patches are laid out as [B, N, D], as vision transformers do, no transposition is left after the product; in
INT8 the layer takes the image's own bytes. A scale and shift of the image before it (pixels to [-1, 1]) go into the
weights, which is exact where nothing is padded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.spec import Array
from edgekit_targets.onnx.passes.graph import on_ir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir


@on_ir
def embed(model: ir.Model, multiples: Mapping[str, tuple[int, ...]]) -> None:
    """Rewrite each Conv -> Reshape -> Transpose over an input's patches.

    `multiples` say what each input's sizes are multiples of: a convolution drops what is left over, a Gemm cannot.
    """
    import onnx_ir.passes.common as passes

    for node in tuple(model.graph):
        if node.op_type == "Conv" and _over_patches(node, multiples) and (rows := _laid_out(node)) is not None:
            _rewrite(model.graph, node, rows)
    passes.RemoveUnusedNodesPass()(model)


def _over_patches(node: ir.Node, multiples: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a convolution's patches tile an input without overlap, and its weights are constants of its own."""
    if len(node.inputs) != 3 or any(v is None or v.const_value is None for v in node.inputs[1:]):
        return False
    weight, kernel = node.inputs[1], _weights(node)[0].shape[2:]
    sizes = multiples.get(str(getattr(_unscaled(node.inputs[0])[0], "name", "")), ())[2:]
    tiled = len(sizes) == len(kernel) == 2 and not any(size % side for size, side in zip(sizes, kernel, strict=True))
    if not tiled or weight is None or len(list(weight.uses())) != 1:
        return False
    attributes = {
        name: list(a.as_ints()) for name, a in node.attributes.items() if name in ("strides", "pads", "dilations")
    }
    group = node.attributes.get("group")
    plain = not any(attributes.get("pads", ())) and set(attributes.get("dilations", (1,))) == {1}
    return plain and (group is None or group.as_int() == 1) and attributes.get("strides") == list(kernel)


def _laid_out(node: ir.Node) -> ir.Node | None:
    """The Transpose that gives [B, N, D], where it alone reads a convolution, through one Reshape of [B, D, h, w]."""
    features = _weights(node)[0].shape[0]
    for kind in ("Reshape", "Transpose"):
        uses = list(node.outputs[0].uses())
        if len(uses) != 1 or node.outputs[0].is_graph_output() or uses[0].node.op_type != kind:
            return None
        node = uses[0].node
    shape, perm = node.inputs[0].shape if node.inputs[0] else None, node.attributes.get("perm")
    if node.outputs[0].is_graph_output() or shape is None or len(shape) != 3 or shape[1] != features:
        return None
    return node if perm and list(perm.as_ints()) == [0, 2, 1] else None


def _rewrite(graph: ir.Graph, node: ir.Node, rows: ir.Node) -> None:
    import onnx_ir as ir

    weight, bias = _weights(node)
    features, channels, high, wide = weight.shape
    image, scale, shift = _unscaled(node.inputs[0])
    name = node.inputs[1].name if node.inputs[1] is not None else "patch"
    flat = (weight.reshape(features, -1) * scale).T.astype(np.float32)
    moved = (bias + shift * weight.reshape(features, -1).sum(1)).astype(np.float32)

    def add(kind: str, inputs: Sequence[ir.Value | None], **attributes: int | list[int]) -> ir.Value:
        inner = ir.node(kind, inputs, attributes, metadata_props=dict(node.metadata_props))
        graph.insert_before(node, inner)
        return inner.outputs[0]

    def constant(text: str, values: Array) -> ir.Value:
        value = ir.Value(name=f"{name}_{text}", const_value=ir.tensor(values, name=f"{name}_{text}"))
        graph.register_initializer(value)
        return value

    def numbers(text: str, *values: int) -> ir.Value:
        return constant(text, np.array(values, np.int64))

    columns = add("Div", [add("Shape", [image], start=3, end=4), numbers("wide", wide)])
    batch = add("Shape", [image], start=0, end=1)
    parts = [numbers("channels", 0, channels, -1, high), columns, numbers("column", wide)]
    tiles = add("Transpose", [add("Reshape", [image, add("Concat", parts, axis=0)])], perm=[0, 2, 4, 1, 3, 5])
    patches = add("Reshape", [tiles, numbers("patch", -1, channels * high * wide)])
    product = add("Gemm", [patches, constant("flat", flat), constant("bias", moved)])
    sizes = add("Concat", [batch, numbers("features", -1, features)], axis=0)
    laid = add("Reshape", [product, sizes])
    laid.shape, laid.type = rows.outputs[0].shape, rows.outputs[0].type
    ir.convenience.replace_all_uses_with(rows.outputs[0], laid)


def _weights(node: ir.Node) -> tuple[Array, Array]:
    weight, bias = (v.const_value.numpy() for v in node.inputs[1:] if v is not None and v.const_value is not None)
    return np.asarray(weight), np.asarray(bias)


def _unscaled(value: ir.Value | None) -> tuple[ir.Value | None, float, float]:
    """A value before it was multiplied by one constant and another was added: value = before * scale + shift."""
    scale, shift = 1.0, 0.0
    while value is not None and (node := value.producer()) is not None and len(list(value.uses())) == 1:
        constant = node.inputs[1].const_value if len(node.inputs) == 2 and node.inputs[1] is not None else None
        if constant is None or constant.size != 1 or node.op_type not in ("Mul", "Sub", "Add"):
            break
        number = float(constant.numpy().ravel()[0])
        if node.op_type == "Mul":
            scale *= number
        else:
            shift += scale * (number if node.op_type == "Add" else -number)
        value = node.inputs[0]
    return value, scale, shift
