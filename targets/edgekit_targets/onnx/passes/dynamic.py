"""Linear layers with weights rounded once and activations without calibration: dynamic INT8, and 4 bits."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.onnx_check import bodies
from edgekit.model.onnx_write import write_graph
from edgekit_targets.onnx.passes import weight_only
from edgekit_targets.onnx.passes.graph import LSTM, copy_graph, graph_pass, readers, set_nodes, set_weights
from edgekit_targets.onnx.passes.groups import groups, nodes_of

if TYPE_CHECKING:
    import onnx

SMALLEST = 1e-30
"""Smallest scale, for a token of zeros."""
AXES_AS_INPUT = 18
"""First opset in which the axes of ReduceMax are an input."""
DOMAIN = "com.microsoft"
FLOAT_LAYERS = (*weight_only.CONVOLUTIONS, "GRU", "RNN")
"""Layers that ONNX Runtime computes in float, or faster in float than with dynamic ranges."""
FEW, MANY = 4, 8
"""Bits of a weight."""
ACCURACY = 4
"""MatMulNBits' `accuracy_level`: its inputs are rounded to INT8 in blocks, too, if the processor gains by that."""


@graph_pass("dynamic.quantize_dynamic")
def quantize_dynamic(
    graph: onnx.ModelProto,
    floats: tuple[str, ...] = (),
    reduce_range: bool = False,
    token_scales: bool = False,
    half: bool = False,
) -> onnx.ModelProto:
    """Return the dynamically quantized graph of an fp32 graph, which is not changed.

        x [..., K] -> MatMul or Gemm, weight fp32 [K, N] -> y [..., N]
        x [..., K] -> DynamicQuantizeLinear uint8 -> MatMulInteger, weight int8 [K, N] -> Cast, Mul by scales [N] -> y
        LSTM, W fp32 [1, 4H, K], R fp32 [1, 4H, H] -> DynamicQuantizeLSTM, W int8 [1, K, 4H], R int8 [1, H, 4H]

    Weights are rounded once, activations in each run by their own range (ONNX Runtime's quantizer). Layers that read
    more channels than they write may get a scale per token first (`scale_tokens`). A bias is added afterwards, in
    fp32. Weights of layers in float arithmetic are stored in INT8 (weight_only.py), including those of convolutions,
    GRUs and RNNs: ONNX Runtime's ConvInteger is slower than its Conv, and it has no GRU or RNN in INT8. An LSTM in
    float has them in fp16.

    Args:
        graph: In fp32.
        floats: Groups that stay in float.
        reduce_range: True for 7-bit weights.
        token_scales: True for a scale per token in layers that read more channels than they write
            (`scale_tokens`): nearer to fp32, and an eighth slower in arr-coc-tiny.
        half: True to store the weights of convolutions, GRUs and RNNs in fp16.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    copy = copy_graph(graph)
    selected = set(nodes_of(groups(copy, dynamic=True), floats))
    weights, users = {i.name: i for i in copy.graph.initializer}, readers(copy)
    for node in copy.graph.node:
        for at in (1, 2) if node.op_type == LSTM and node.name in selected else ():
            # The quantizer changes the axes of an LSTM's weights, which others may read.
            if len(users[node.input[at]]) > 1:
                own = f"{node.input[at]}/{node.name}"
                weights[own] = onnx.TensorProto()
                weights[own].CopyFrom(weights[node.input[at]])
                weights[own].name = node.input[at] = own
    nodes = [part for node in copy.graph.node for part in gemm_as_matmul(node, selected, weights)]
    set_nodes(copy.graph, nodes)
    set_weights(copy.graph, weights.values())
    copy = scale_tokens(copy, selected) if token_scales else copy
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        source, result = Path(folder) / "source.onnx", Path(folder) / "result.onnx"
        write_graph(copy, source)
        with _quiet():
            quantize_dynamic(
                source,
                result,
                op_types_to_quantize=["MatMul", LSTM],
                nodes_to_quantize=sorted(selected),
                per_channel=True,
                reduce_range=reduce_range,
                weight_type=QuantType.QInt8,
            )
        quantized = onnx.load(result)
    return weight_only.quantize_weights(_order_nodes(quantized), () if half else FLOAT_LAYERS)


def _order_nodes(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph with each node after the tensors that its branches read."""
    # The quantizer orders nodes only by their own inputs.
    if not any(any(bodies(node)) for node in graph.graph.node):
        return graph
    import onnx_ir as ir
    import onnx_ir.passes.common as passes

    model = ir.from_proto(graph)
    passes.TopologicalSortPass()(model)
    return ir.to_proto(model)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the quantizer, which recommends a pre-processing that fails on such graphs."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(before)


def gemm_as_matmul(
    node: onnx.NodeProto, selected: set[str], weights: dict[str, onnx.TensorProto]
) -> Iterator[onnx.NodeProto]:
    """Yield a Gemm as MatMul and Add: the dynamic quantizer skips Gemm, and ONNX Runtime fuses the two again."""
    from onnx import helper, numpy_helper

    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    unscaled = attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0
    if node.op_type != "Gemm" or node.name not in selected or attributes.get("transA") or not unscaled:
        yield node
        return
    weight = node.input[1]
    if weight_only.is_transposed(node):
        turned = np.ascontiguousarray(numpy_helper.to_array(weights[weight]).T)
        weight = f"{weight}_transposed"
        weights[weight] = numpy_helper.from_array(turned, weight)
    product = node.output[0] if len(node.input) < 3 else f"{node.output[0]}_product"
    yield helper.make_node("MatMul", [node.input[0], weight], [product], name=node.name)
    if len(node.input) == 3:
        yield helper.make_node("Add", [product, node.input[2]], node.output, name=f"{node.name}_bias")


@graph_pass("dynamic.scale_tokens")
def scale_tokens(graph: onnx.ModelProto, selected: Collection[str]) -> onnx.ModelProto:
    """Divide the inputs of tall linear layers by a scale per token, computed at run time.

        x [..., K] -> MatMul, weight [K, N] -> y [..., N]
        x [..., K] -> Div by s = max|x| [..., 1] -> MatMul, weight [K, N] -> Mul by s -> y [..., N]

    Dynamic INT8 has one range for a whole tensor: a single large token makes the grid of all others coarse, and so do
    the other images of a batch. Layers that read more channels than they write get these scales: in a transformer
    the second layer of each MLP, whose input no normalisation has scaled. In dynamic INT8 of
    arr-coc-tiny these six layers raised the signal-to-noise ratio of the relevance from 37.3 to 39.0 dB; scales for all
    layers reached 38.7 dB, and cost half of INT8's gain in speed.

    Args:
        graph: In fp32.
        selected: Names of MatMul nodes with a constant weight. Nodes whose weight is not taller than wide are skipped.
    """
    from onnx import helper, numpy_helper

    graph = copy_graph(graph)
    weights = {i.name: tuple(i.dims) for i in graph.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in graph.graph.node:
        shape = weights.get(node.input[1], ()) if node.op_type == "MatMul" and node.name in selected else ()
        inputs, outputs = shape if len(shape) == 2 else (0, 0)
        if inputs <= outputs:
            nodes.append(node)
            continue
        read, written, name = node.input[0], node.output[0], node.name
        size, largest, scale, scaled = (f"{name}_token_{part}" for part in ("size", "largest", "scale", "scaled"))
        nodes += [
            helper.make_node("Abs", [read], [size], name=f"{name}_token/Abs"),
            _largest(graph, size, largest, f"{name}_token/ReduceMax"),
            helper.make_node("Max", [largest, "smallest_token_scale"], [scale], name=f"{name}_token/Max"),
            helper.make_node("Div", [read, scale], [scaled], name=f"{name}_token/Div"),
            helper.make_node("MatMul", [scaled, node.input[1]], [f"{name}_token_product"], name=name),
            helper.make_node("Mul", [f"{name}_token_product", scale], [written], name=f"{name}_token/Mul"),
        ]
    if len(nodes) > len(graph.graph.node):
        constants: dict[str, np.generic | np.ndarray] = {"smallest_token_scale": np.float32(SMALLEST)}
        if _opset(graph) >= AXES_AS_INPUT:
            constants["token_axis"] = np.array([-1], np.int64)
        graph.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items())
    set_nodes(graph.graph, nodes)
    return graph


def _largest(graph: onnx.ModelProto, read: str, written: str, name: str) -> onnx.NodeProto:
    from onnx import helper

    if _opset(graph) >= AXES_AS_INPUT:
        return helper.make_node("ReduceMax", [read, "token_axis"], [written], name=name, keepdims=1)
    return helper.make_node("ReduceMax", [read], [written], name=name, keepdims=1, axes=[-1])


def _opset(graph: onnx.ModelProto) -> int:
    return int(next(entry.version for entry in graph.opset_import if entry.domain in ("", "ai.onnx")))


@graph_pass("nbits.quantize_blocks")
def quantize_blocks(
    graph: onnx.ModelProto,
    layers: Collection[str],
    eight: Collection[str] = (),
    block: int = 32,
    cache: dict[tuple[str, int], PackedWeights] | None = None,
) -> onnx.ModelProto:
    """Store the weights of linear layers in 4 bits.

        x [..., K] -> MatMul, weight fp32 [K, N] -> y [..., N]
        x [..., K] -> MatMulNBits, weight uint8 [N, K / 32, 16] -> y [..., N]          4 bits, blocks of 32

    ONNX Runtime's own operator unpacks the weights as it multiplies, in the browser and on GPUs too
    (https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits).

    Args:
        graph: In fp32.
        layers: Names of MatMul and Gemm nodes with a constant weight [K, N].
        eight: Layers with 8 bits. If one of them reads a weight, it has 8 bits for all its readers.
        block: Inputs that share a scale: 16, 32, 64, 128 or 256.
        cache: Weights that earlier calls packed, by name and bits; for calls with the same graph, layers and block.
    """
    from onnx import helper

    graph = copy_graph(graph)
    weights = {i.name: i for i in graph.graph.initializer}
    nodes = [part for node in graph.graph.node for part in gemm_as_matmul(node, set(layers), weights)]
    weight_of = {node.name: node.input[1] for node in nodes if node.op_type == "MatMul" and node.name in layers}
    finer = {weight for name, weight in weight_of.items() if name in eight}
    cache, packed = {} if cache is None else cache, {}
    for name in dict.fromkeys(weight_of.values()):
        bits = MANY if name in finer else FEW
        if (name, bits) not in cache:
            cache[name, bits] = _pack_weights(weights[name], bits, block)
        packed[name] = cache[name, bits]
    for tensors in packed.values():
        weights |= {tensor.name: tensor for tensor in tensors.tensors}
    nodes = [packed[node.input[1]].node(node) if node.name in weight_of else node for node in nodes]
    set_nodes(graph.graph, nodes)
    set_weights(graph.graph, weights.values())
    if all(opset.domain != DOMAIN for opset in graph.opset_import):
        graph.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return graph


@dataclass(frozen=True)
class PackedWeights:
    """A weight [K, N] in blocks: its values, scales and zero points, and the attributes of its readers."""

    tensors: tuple[onnx.TensorProto, ...]
    attributes: dict[str, int]

    def node(self, product: onnx.NodeProto) -> onnx.NodeProto:
        """Return the node that multiplies by it, in place of a product."""
        from onnx import helper

        inputs = [product.input[0], *(tensor.name for tensor in self.tensors)]
        packed = helper.make_node("MatMulNBits", inputs, product.output, name=product.name, domain=DOMAIN)
        packed.attribute.extend(helper.make_attribute(name, value) for name, value in self.attributes.items())
        return packed


def _pack_weights(weight: onnx.TensorProto, bits: int, block: int) -> PackedWeights:
    from onnx import numpy_helper
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits

    values = numpy_helper.to_array(weight)
    config = nbits.DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=False, bits=bits)
    rounded = nbits.DefaultWeightOnlyQuantizer(config).qbits_block_quant(values)
    parts = zip(("blocks", "scales", "zero_points"), rounded, strict=True)
    tensors = tuple(numpy_helper.from_array(array, f"{weight.name}_{part}") for part, array in parts)
    attributes = {"K": values.shape[0], "N": values.shape[1], "bits": bits, "block_size": block}
    return PackedWeights(tensors, {**attributes, "accuracy_level": ACCURACY})
