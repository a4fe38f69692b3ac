"""Small patterns of an ONNX graph, rewritten for a runtime, or in the form of edgekit's own export."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ExportError
from edgekit.model.spec import Array
from edgekit_targets.onnx.passes.graph import Step, copy_graph, exact, graph_pass, on_ir, set_nodes, unfold

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

COEFFICIENTS = (1.59565627, 7.2937582e-2, -2.49723353e-4, -6.11619966e-5, 2.23816345e-6)
"""Coefficients of P, the constant first: least squares, reweighted until the largest error on [0, 7] was minimal."""
LARGEST_ERROR = 3.5e-6
"""Largest error of the result, for every x, in fp32."""
ZERO, ONE = "sigmoid/zero", "sigmoid/one"
OUTPUTS = 3
"""Number of an LSTM's outputs: its sequence, and the last states of both kinds."""
OLDEST = 13
"""First opset whose DequantizeLinear has a scale per channel."""


REDUCTIONS_TAKE_AXES = 18
"""Opset."""


@graph_pass("gelu.by_sigmoid")
def gelu_by_sigmoid(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph with sigmoids in place of exact GELUs; those that a model itself approximates by tanh stay.

        x -> Gelu                 x * Phi(x), with the normal distribution's Phi
        x -> Mul(x, Sigmoid(x * P(x * x)))

    For runtimes that compute the exact one slowly, or replace it by tanh's approximation, which is off by up to
    4.7e-4. P is a polynomial that approximates the logit of Phi, divided by x.
    """
    coefficients = {_constant(power): value for power, value in enumerate(COEFFICIENTS)}

    def is_exact(node: onnx.NodeProto) -> bool:
        return node.op_type == "Gelu" and node.domain == "" and not any(a.s == b"tanh" for a in node.attribute)

    def formula(step: Step, x: str, result: str) -> None:
        square = step("Mul", x, x)
        total = step("Mul", square, _constant(len(COEFFICIENTS) - 1))
        # Horner's rule.
        for power in reversed(range(len(COEFFICIENTS) - 1)):
            total = step("Mul", step("Add", total, _constant(power)), square if power else x)
        step("Mul", x, step("Sigmoid", total), output=result)

    return unfold(graph, is_exact, formula, "sigmoid", coefficients)


def _constant(power: int) -> str:
    return f"gelu/coefficient_{power}"


@graph_pass("sigmoid.by_exponentials")
def sigmoid_by_exponentials(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph with quotients of exponentials in place of fp32 sigmoids; those in branches and loops stay.

        x -> Sigmoid
        x -> Exp(Min(x, 0)) / (1 + Exp(-Abs(x)))

    For Qualcomm's NPU, whose own sigmoid is off by up to 6e-4 even for small outputs. Both are 1 / (1 + exp(-x)). No
    exponent is positive, so none overflows in fp16 either. In the emulator of QNN 2.7 outputs down to 6e-5 are off
    by at most 0.4 %, and those of Sigmoid by up to 270 %.
    """
    # The fp32 outputs of nodes.
    from onnx import TensorProto, shape_inference

    inferred = shape_inference.infer_shapes(graph).graph
    values = (*inferred.value_info, *inferred.output)
    floats = frozenset(value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT)

    def is_float(node: onnx.NodeProto) -> bool:
        return node.op_type == "Sigmoid" and node.output[0] in floats

    def formula(step: Step, x: str, result: str) -> None:
        above = step("Exp", step("Min", x, ZERO))
        below = step("Add", step("Exp", step("Neg", step("Abs", x))), ONE)
        step("Div", above, below, output=result)

    return unfold(graph, is_float, formula, "exponentials", {ZERO: 0.0, ONE: 1.0})


@graph_pass("log_softmax.by_exponentials")
def log_softmax_by_exponentials(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph without LogSoftmax, for which WebGPU has no kernel; those in branches and loops stay.

    x -> LogSoftmax
    x -> Sub(s, Log(ReduceSum(Exp(s)))), s = Sub(x, ReduceMax(x))
    """
    import numpy as np
    from onnx import numpy_helper

    copy = copy_graph(graph)
    opset = next(each.version for each in copy.opset_import if each.domain in ("", "ai.onnx"))
    axes = {
        node.output[0]: next((a.i for a in node.attribute if a.name == "axis"), -1)
        for node in copy.graph.node
        # Before opset 18 the axes of some reductions are no input, before 13 LogSoftmax flattens.
        if node.op_type == "LogSoftmax" and opset >= REDUCTIONS_TAKE_AXES
    }

    def formula(step: Step, x: str, result: str) -> None:
        axis = f"{result}/axis"
        below = step("Sub", x, step("ReduceMax", x, axis))
        step("Sub", below, step("Log", step("ReduceSum", step("Exp", below), axis)), output=result)

    unfolded = unfold(copy, lambda node: node.output[0] in axes, formula, "exponentials", {})
    unfolded.graph.initializer.extend(
        numpy_helper.from_array(np.array([axis], np.int64), f"{result}/axis") for result, axis in axes.items()
    )
    return unfolded


@graph_pass("softmax_guard.dropped")
def drop_softmax_guards(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph without the guards after softmaxes; an IsNaN elsewhere stays.

        x -> Softmax -> Where(IsNaN(softmax), 0, softmax)        as PyTorch's exporter writes masked attention
        x -> Softmax

    For runtimes whose softmax returns zeros for a row of -inf, and which lack IsNaN. A fully masked row
    is NaN after ONNX's softmax, and zeros in PyTorch.
    """
    from onnx import numpy_helper

    copy = copy_graph(graph)
    producers = {name: node for node in copy.graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in copy.graph.initializer}
    nodes = [node for node in copy.graph.node if node.op_type == "Constant"]
    constants |= {node.output[0]: a.t for node in nodes for a in node.attribute if a.name == "value"}
    zeros = {name for name, tensor in constants.items() if not numpy_helper.to_array(tensor).any()}
    instead: dict[str, str] = {}
    for node in copy.graph.node:
        if node.op_type == "Where" and node.input[1] in zeros:
            condition, softmax = producers.get(node.input[0]), producers.get(node.input[2])
            if condition is None or softmax is None or (condition.op_type, softmax.op_type) != ("IsNaN", "Softmax"):
                continue
            if list(condition.input) == list(softmax.output):
                instead[softmax.output[0]] = node.output[0]
    set_nodes(
        copy.graph,
        (
            node
            for node in copy.graph.node
            if not (
                (node.op_type == "IsNaN" and node.input[0] in instead)
                or (node.op_type == "Where" and instead.get(node.input[2]) == node.output[0])
            )
        ),
    )
    for node in copy.graph.node:
        if node.op_type == "Softmax" and node.output[0] in instead:
            node.output[0] = instead[node.output[0]]
        for position, name in enumerate(node.input):
            node.input[position] = instead.get(name, name)
    return copy


@graph_pass("recurrent.with_states")
def add_lstm_states(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph whose LSTMs name all outputs; nothing reads the new ones.

        LSTM -> Y
        LSTM -> Y, Y_h, Y_c

    MNN 3.6 overwrites its own memory, and usually crashes, if a layer leaves out its last states, as most modules do.
    """
    copy = copy_graph(graph)
    for node in copy.graph.node:
        if node.op_type == "LSTM":
            outputs = [*node.output, *[""] * (OUTPUTS - len(node.output))]
            layer = next(name for name in outputs if name)
            node.output[:] = [name or f"{layer}/state_{number}" for number, name in enumerate(outputs)]
    return copy


def attention_translations() -> dict[Any, Callable[..., Any]]:
    """Return the `custom_translation_table` of `torch.onnx.export`.

    Attention becomes five plain operators, where PyTorch's exporter takes eight::

        before: keys [B, heads, N, d] -> Reshape [B * heads, N, d] -> Transpose -> Reshape [B, heads, d, N] -> Mul (root
            of the scale); queries -> Mul; both -> MatMul [B, heads, N, N] -> Softmax -> MatMul with values
            [B, heads, N, d]
        after: keys -> Transpose [B, heads, d, N]; queries, keys -> MatMul [B, heads, N, N] -> Mul (scale) -> Softmax
            -> MatMul with values [B, heads, N, d]
        with a mask of booleans: Where before the softmax and after it, in place of Where, Add, IsNaN and Where

    A fully masked row (an empty text of a batch) is zeros in PyTorch. The exporter's own graph gives
    it the mean of all values: it looks for the NaN of a row of -inf, but masks by the least finite number. ONNX Runtime
    folds the scale and the transposition of the keys into its MatMul when a session starts, so the file needs nothing
    that is specific to one runtime.
    """
    import torch

    return {torch.ops.aten.scaled_dot_product_attention.default: _attention}


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Return softmax(Q K^T / sqrt(d)) V (Vaswani et al., 2017), each [B, heads, N, d]; other kinds use the exporter's.

    A boolean mask is [..., N, N], true where a key is read.
    """
    import onnx_ir as ir
    from onnxscript import opset20
    from onnxscript.function_libs.torch_lib.ops import nn

    added = attn_mask is not None and attn_mask.dtype != ir.DataType.BOOL
    if added or is_causal or enable_gqa or dropout_p or len(query.shape) != 4:
        return nn.aten_scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
        )
    op: Any = opset20
    factor = op.Constant(value_float=1.0 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = op.Mul(op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2])), op.CastLike(factor, query))
    if attn_mask is None:
        return op.MatMul(op.Softmax(scores, axis=-1), value)
    least, zero = (op.Constant(value=ir.tensor(number, dtype=query.dtype)) for number in (query.dtype.min, 0.0))
    weights = op.Softmax(op.Where(attn_mask, scores, least), axis=-1)
    return op.MatMul(op.Where(attn_mask, weights, zero), value)


@on_ir("patch_embed.embed")
def patches_as_gemm(model: ir.Model, multiples: Mapping[str, tuple[int, ...]]) -> None:
    """Rewrite patch embedding as Gemm: a convolution whose kernel is its stride is a linear layer over patches.

        image [B, C, H, W] -> Conv p x p [B, D, h, w] -> Reshape [B, D, h * w] -> Transpose [B, h * w, D]
        image [B, C, H, W] -> Reshape [B, C, h, p, w, p] -> Transpose [B, h, w, C, p, p]
            -> Reshape [B * h * w, C * p * p] -> Gemm [B * h * w, D] -> Reshape [B, h * w, D]

    If the patches are laid out as [B, N, D], as in vision transformers, no transposition is left after the product;
    in INT8 the layer takes the image's own bytes. A scale and shift of the image before it (pixels to [-1, 1]) are
    folded into the weights, which is exact without padding.

    `multiples` are the divisors of each input's sizes: a convolution drops the remainder, a Gemm cannot.
    """
    import onnx_ir.passes.common as passes

    for node in tuple(model.graph):
        if node.op_type == "Conv" and _over_patches(node, multiples) and (rows := _laid_out(node)) is not None:
            _rewrite(model.graph, node, rows)
    passes.RemoveUnusedNodesPass()(model)


def _over_patches(node: ir.Node, multiples: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether a convolution's patches tile an input without overlap, and only it reads its constant weights."""
    if len(node.inputs) != 3 or any(v is None or v.const_value is None for v in node.inputs[1:]):
        return False
    weight, kernel = node.inputs[1], _weights(node)[0].shape[2:]
    sizes = multiples.get(str(getattr(_without_scale(node.inputs[0])[0], "name", "")), ())[2:]
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
    """Return the Transpose to [B, N, D] that alone reads a convolution, through one Reshape of [B, D, h, w]."""
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
    image, scale, shift = _without_scale(node.inputs[0])
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


def _without_scale(value: ir.Value | None) -> tuple[ir.Value | None, float, float]:
    """Return a value before a multiplication by and an addition of constants: value = before * scale + shift."""
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


def normalize_foreign(graph: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    """Return the graph with these names of inputs and outputs, weights as initializers and a name for each node.

    Another exporter's graph gets the form of edgekit's own::

        Constant -> value; Conv -> BatchNormalization
        initializer; Conv with the batch norm's scale and shift in its weights

    Raises:
        ExportError: If its opset is too old for a conversion to OLDEST.
    """
    import onnx_ir as ir
    import onnx_ir.passes.common as passes
    from onnx import shape_inference
    from onnxscript import rewriter

    made_by = {tensor: node.name for node in graph.graph.node for tensor in node.output}
    model = ir.from_proto(_recent(graph))
    passes.TopologicalSortPass()(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True)(model)
    passes.RemoveInitializersFromInputsPass()(model)
    with exact():
        model = rewriter.rewrite(model)
    passes.RemoveUnusedNodesPass()(model)
    for value, name in zip((*model.graph.inputs, *model.graph.outputs), (*inputs, *outputs), strict=True):
        made_by[name] = made_by.get(str(value.name), "")
        value.name = name
    proto = ir.to_proto(model)
    if not all(value.type.tensor_type.HasField("shape") for value in proto.graph.output):
        # The file may leave the shapes of outputs to its runtime.
        proto = shape_inference.infer_shapes(proto)
    _name_nodes(proto, made_by)
    return proto


def _recent(graph: onnx.ModelProto) -> onnx.ModelProto:
    from onnx import version_converter

    opset = next((o.version for o in graph.opset_import if o.domain in ("", "ai.onnx")), OLDEST)
    if opset >= OLDEST:
        return graph
    try:
        return version_converter.convert_version(graph, OLDEST)
    except Exception as error:
        reason = f"cannot convert opset {opset} to {OLDEST}. Export the model again, with opset 17"
        raise ExportError(reason) from error


def _name_nodes(graph: onnx.ModelProto, made_by: Mapping[str, str]) -> None:
    """Name nodes module.path/OpType, numbered; PyTorch's older exporter writes the path as "/layer1/conv1/Conv".

    A node from a rewrite has the path of the node that made its output before.
    """
    seen: Counter[str] = Counter()
    for node in graph.graph.node:
        name = made_by.get(node.output[0]) or node.name
        path = [part for part in name.split("/") if part][:-1] if "/" in name else []
        base = f"{'.'.join(path)}/{node.op_type}" if path else node.op_type
        seen[base] += 1
        node.name = base if seen[base] == 1 else f"{base}_{seen[base]}"
