"""Weights stored in INT8 or fp16 and used in float, and the emulation of INT8 on processors without VNNI.

Stored weights make smaller files if INT8 arithmetic does not pay off::

    x -> MatMul, weight fp32 [K, N]
    x -> MatMul, weight int8 [K, N] -> Cast fp32 -> Mul, scales [1, N] -> fp32 [K, N]
    x -> MatMul, weight int8 [K, 1, N] -> Cast fp32 -> Mul, scales [K, 1, 1] -> Reshape -> fp32 [K, N]

    ids -> Gather, table fp32 [V, D] -> y [..., D]
    ids -> Gather, table int8 [V, D] -> Cast fp32 -> Mul with Gather, scales [V, 1] -> y [..., D]

    positions fp32 [...] -> Resize
    positions fp16 [...] -> Cast fp32 -> Resize

    x -> Conv, weight fp16 -> Cast fp32, if INT8 would lose too much

The first two are for Gemm and Conv alike, with a scale per output or per input, whichever loses less: a layer
that reads numbers of different kinds has inputs whose weights are a hundred times those of others. The axis of size one
in a matrix of the second is for OpenVINO 2026.4.1, which otherwise mistakes the scales of inputs for those of outputs.
A recurrent layer has a scale per row of each gate. The third is for large lookup tables, such as the embeddings of
words, with a scale for each row: only the rows that are read become floats. The fourth is for all other tables of
floats.

ONNX Runtime computes all but the third once, when it opens the file. It would compute a DequantizeLinear of a weight in
each run: networks of convolutions then had 0.65 to 0.77 times fp32's speed, and have 1.00 times now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.onnx_check import names_read
from edgekit.model.spec import Array
from edgekit_targets.onnx.passes.graph import CHANNEL, LAYERS, RECURRENT, copy_graph, graph_pass, readers, set_nodes

if TYPE_CHECKING:
    import onnx

    from edgekit.model.spec import Array

STORED = "/from_int8"
"""Suffix of the names of nodes that scale a stored weight."""
LEAST, LEAST_HALF = 4096, 256
"""Elements: a smaller weight is not worth the nodes of INT8, or the one of fp16."""
LARGE_TABLE = 65536
"""Elements: for a smaller lookup table fp16 costs little more than INT8, and is more exact."""
LARGEST_ERROR = 1e-3
"""Error of a value stored in fp16: a sine or an exponential may follow, for which an error is absolute."""
QUANTIZING = ("QuantizeLinear", "DequantizeLinear")
CONVOLUTIONS = ("Conv", "ConvTranspose")
EXACT = {"session.x64quantprecision": "1"}
"""ONNX Runtime's setting that keeps sums exact on x86 without VNNI, by slower kernels."""
LIMITS = -32768.0, 32767.0
"""Range of a signed 16-bit sum."""


@graph_pass("weight_only.quantize_weights")
def quantize_weights(graph: onnx.ModelProto, operators: Collection[str] = CONVOLUTIONS) -> onnx.ModelProto:
    """Store the float weights of linear layers and of some other operators in INT8, and other tables in fp16.

    Args:
        graph: A graph with float weights.
        operators: Convolutions and recurrent layers whose weights are stored in INT8; those of others are in fp16.
    """
    from onnx import TensorProto, numpy_helper

    graph = copy_graph(quantize_tables(graph))
    weights = {i.name: i for i in graph.graph.initializer if i.data_type == TensorProto.FLOAT}
    users, added = readers(graph), []
    for name, weight in weights.items():
        values = numpy_helper.to_array(weight)
        # Small weights, and those that only a branch or a loop reads.
        if values.size < LEAST or name not in users:
            continue
        # The scales of a layer with thousands of outputs are large too, but later passes read them as they are.
        if any(node.op_type in QUANTIZING for node in users[name]):
            continue
        weighs = all(name in weights_of(node) for node in users[name])
        if weighs and users[name][0].op_type in ("Gemm", "MatMul", *operators):
            arrays, unpacking = _in_int8(name, values, users[name][0])
        elif _fits_fp16(values, weighs):
            arrays, unpacking = _in_fp16(name, values)
        else:
            continue
        graph.graph.initializer.remove(weight)
        graph.graph.initializer.extend(numpy_helper.from_array(array, held_name) for held_name, array in arrays.items())
        added.extend(unpacking)
    set_nodes(graph.graph, [*added, *graph.graph.node])
    return graph


@graph_pass("weight_only.halve_weights")
def halve_weights(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Store the float weights that fp16 holds well enough in fp16; the graph computes in fp32 as before.

        x -> MatMul, weight fp32 [K, N]
        x -> MatMul, weight fp16 [K, N] -> Cast fp32

    ONNX Runtime casts them once, when it opens the file.
    """
    from onnx import TensorProto, numpy_helper

    graph = copy_graph(graph)
    users, added = readers(graph), []
    for weight in [i for i in graph.graph.initializer if i.data_type == TensorProto.FLOAT and i.name in users]:
        values = numpy_helper.to_array(weight)
        weighs = all(weight.name in weights_of(node) for node in users[weight.name])
        if values.size < LEAST_HALF or not _fits_fp16(values, weighs):
            continue
        arrays, casts = _in_fp16(weight.name, values)
        graph.graph.initializer.remove(weight)
        graph.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
        added.extend(casts)
    set_nodes(graph.graph, [*added, *graph.graph.node])
    return graph


@graph_pass("weight_only.quantize_tables")
def quantize_tables(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Store large lookup tables in INT8 with a scale for each row."""
    from onnx import TensorProto, numpy_helper

    graph = copy_graph(graph)
    users = readers(graph)
    lookups: dict[str, list[onnx.NodeProto]] = {}
    for table in [i for i in graph.graph.initializer if i.data_type == TensorProto.FLOAT and len(i.dims) == 2]:
        name = table.name
        if prod(table.dims) < LARGE_TABLE or name not in users or not _is_lookup_table(graph, name):
            continue
        rounded, scale = _in_steps(numpy_helper.to_array(table), (1,))
        graph.graph.initializer.remove(table)
        arrays = {f"{name}_int8": rounded, f"{name}_scale": scale}
        graph.graph.initializer.extend(numpy_helper.from_array(array, n) for n, array in arrays.items())
        lookups |= {node.output[0]: _lookup(node) for node in users[name]}
    set_nodes(graph.graph, [part for node in graph.graph.node for part in lookups.get(node.output[0], (node,))])
    return graph


def _is_lookup_table(graph: onnx.ModelProto, name: str) -> bool:
    """Return whether only nodes that select rows of a table read it, outside of branches and loops."""
    nodes = [node for node in graph.graph.node if name in names_read(node)]
    return all(
        node.op_type == "Gather" and name not in node.input[1:] and not any(axis.i for axis in node.attribute)
        for node in nodes
    )


def _lookup(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return the nodes that select rows of such a table, in place of a Gather."""
    from onnx import TensorProto, helper

    (table, ids), rows = node.input, node.output[0]
    return [
        helper.make_node("Gather", [f"{table}_int8", ids], [f"{rows}_int8"], name=node.name),
        helper.make_node("Cast", [f"{rows}_int8"], [f"{rows}_steps"], name=f"{node.name}/Cast", to=TensorProto.FLOAT),
        helper.make_node("Gather", [f"{table}_scale", ids], [f"{rows}_scale"], name=f"{node.name}/Gather"),
        helper.make_node("Mul", [f"{rows}_steps", f"{rows}_scale"], [rows], name=f"{node.name}/Mul"),
    ]


def weights_of(node: onnx.NodeProto) -> list[str]:
    """Return the names of the weights of a layer; none of another node."""
    return list(node.input[1 : 3 if node.op_type in RECURRENT else 2]) if node.op_type in LAYERS else []


def _in_fp16(name: str, values: Array) -> tuple[dict[str, Array], list[onnx.NodeProto]]:
    """Return the stored array of a weight by name, and the node that makes it fp32."""
    from onnx import TensorProto, helper

    arrays = {f"{name}_fp16": values.astype(np.float16)}
    return arrays, [helper.make_node("Cast", [*arrays], [name], name=f"{name}/Cast", to=TensorProto.FLOAT)]


def _in_int8(name: str, values: Array, layer: onnx.NodeProto) -> tuple[dict[str, Array], list[onnx.NodeProto]]:
    """Return the stored arrays of a layer's weight by name, and the nodes that make it float."""
    from onnx import TensorProto, helper

    rounded, scale, axis = _round_weight(values, layer)
    arrays, scaled = {f"{name}_int8": rounded, f"{name}_scale": scale}, name
    if has_input_scales := values.ndim == 2 and axis != channel_axis(layer):
        arrays, scaled = {n: np.expand_dims(array, axis + 1) for n, array in arrays.items()}, f"{name}_deep"
    steps = f"{name}_steps"
    nodes = [
        helper.make_node("Cast", [f"{name}_int8"], [steps], name=f"{name}/Cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", [steps, f"{name}_scale"], [scaled], name=f"{name}{STORED}"),
    ]
    if has_input_scales:
        arrays[f"{name}_shape"] = np.array(values.shape, np.int64)
        nodes.append(helper.make_node("Reshape", [scaled, f"{name}_shape"], [name], name=f"{name}/Reshape"))
    return arrays, nodes


def _round_weight(values: Array, layer: onnx.NodeProto) -> tuple[Array, Array, int]:
    """Return a weight in INT8, its scales, and their axis: inputs or outputs, whichever loses less."""
    if layer.op_type in RECURRENT:
        return *_in_steps(values, (2,)), 1
    candidates = []
    for axis in range(min(values.ndim, 2)):
        rounded, scale = _in_steps(values, tuple(a for a in range(values.ndim) if a != axis))
        lost = float(((values - rounded * scale).astype(np.float64) ** 2).sum())
        candidates.append((lost, axis, rounded, scale))
    _, axis, rounded, scale = min(candidates, key=lambda each: each[:2])
    return rounded, scale, axis


def _in_steps(values: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Return values in INT8, and their scales, one for all values along some axes, which have size 1."""
    peaks = np.abs(values).max(axis=axes, keepdims=True)
    scale = np.where(peaks > 0, peaks / 127.0, 1.0).astype(np.float32)
    return np.clip(np.round(values / scale), -127, 127).astype(np.int8), scale


def _fits_fp16(values: Array, weighs: bool) -> bool:
    """Return whether fp16 can hold a table; for the weights of a layer the relative error counts."""
    # An infinity's error is not a number.
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(values - values.astype(np.float16).astype(np.float32)).max()
    relative = np.abs(values).max() / 1024
    return bool(error <= (relative if weighs else min(LARGEST_ERROR, relative)))


def count_stored(graph: onnx.ModelProto) -> int:
    """Return the number of a graph's weights that `quantize_weights` stored in INT8."""
    return sum(node.name.endswith(STORED) for node in graph.graph.node)


def channel_axis(node: onnx.NodeProto) -> int:
    """Return the axis of the output channels in the weight of a layer of CHANNEL."""
    return 0 if is_transposed(node) else CHANNEL[node.op_type]


def is_transposed(node: onnx.NodeProto) -> bool:
    """Return whether a node has its weight as [outputs, inputs]."""
    return any(a.name == "transB" and a.i for a in node.attribute)


def emulate_without_vnni(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return a quantized graph as a processor without VNNI computes it; the original is not changed.

    Only layers whose weights can saturate are changed: two weights w and v with 255 (|w| + |v|) <= 32,767 cannot.

    x86 without VNNI multiplies with `vpmaddubsw`, which adds two neighbouring products of unsigned and signed bytes
    with saturation at 32,767 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, PMADDUBSW); ONNX
    Runtime's AVX2 and AVX-512 kernels use it for unsigned activations and signed weights. The emulation is a graph of
    float operators around each INT8 layer: exact sums, minus the loss by saturation. It is slow, and right wherever
    the sums themselves are exact: with VNNI, and without it under EXACT.

        x uint8 [..., K] -> INT8 layer, weight int8 [K, N] -> y [..., N]
        x uint8 [..., K] -> INT8 layer -> y [..., N] -> Sub -> saturated y [..., N]
        x uint8 [..., K] -> Gather, Reshape, Transpose [pairs, M, 2] -> MatMul [pairs, M, N]
            -> what Clip to 16 bits cuts off -> ReduceSum over pairs -> what Sub subtracts [..., N]
    """
    from onnx import helper, numpy_helper

    copy = copy_graph(graph)
    constants = {i.name: numpy_helper.to_array(i) for i in copy.graph.initializer}
    producers = {name: node for node in copy.graph.node for name in node.output}
    nodes = []
    for node in copy.graph.node:
        nodes.append(node)
        layer = _layer(node, producers, constants)
        if layer is None:
            continue
        pairs = layer.weight[: len(layer.weight) // 2 * 2].reshape(-1, 2, layer.weight.shape[1])
        if (255.0 * np.abs(pairs).sum(1)).max(initial=0.0) <= LIMITS[1]:
            # No pair of products can saturate.
            continue
        exact = f"{node.output[0]}_exact"
        excess = _excess(layer, exact, f"{node.name}/saturated", copy.graph, nodes)
        nodes.append(helper.make_node("Sub", [exact, excess], [node.output[0]], name=f"{node.name}/saturated"))
        node.output[0] = exact
    set_nodes(copy.graph, nodes)
    return copy


def unshare_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a quantized graph in which layers do not share INT8 constants; the original is not changed.

    Under EXACT ONNX Runtime 1.31.1 opens no graph of which two layers share one: its Avx2WeightS8ToU8Transformer makes
    the same constant again for each.
    """
    import onnx

    copy = copy_graph(model)
    graph = copy.graph
    initializers = {i.name: i for i in graph.initializer if i.data_type == onnx.TensorProto.INT8}
    rounded = {n.output[0]: n for n in graph.node if n.op_type == "DequantizeLinear" and n.input[0] in initializers}
    nodes: list[onnx.NodeProto] = []
    use_counts: Counter[str] = Counter()

    def own(name: str, number: int) -> str:
        if name not in initializers:
            return name
        graph.initializer.add().CopyFrom(initializers[name])
        graph.initializer[-1].name = f"{name}/{number}"
        return f"{name}/{number}"

    for node in graph.node:
        for at, name in enumerate(node.input):
            if name not in rounded and (name not in initializers or node.op_type == "DequantizeLinear"):
                continue
            use_counts[name] += 1
            if (number := use_counts[name]) == 1:
                continue
            if name in rounded:
                nodes.append(
                    _again(rounded[name], [own(name_of_input, number) for name_of_input in rounded[name].input], number)
                )
                node.input[at] = nodes[-1].output[0]
            else:
                node.input[at] = own(name, number)
        nodes.append(node)
    set_nodes(graph, nodes)
    return copy


def _again(node: onnx.NodeProto, inputs: list[str], number: int) -> onnx.NodeProto:
    node_copy = type(node)()
    node_copy.CopyFrom(node)
    node_copy.input[:] = inputs
    node_copy.name, node_copy.output[0] = f"{node.name}/{number}", f"{node.output[0]}/{number}"
    return node_copy


def convolutions(graph: onnx.ModelProto) -> int:
    """Return the number of INT8 convolutions, which `emulate_without_vnni` leaves unchanged."""
    rounded = {name for node in graph.graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    return sum(node.op_type == "Conv" and set(node.input[:2]) <= rounded for node in graph.graph.node)


@dataclass(frozen=True)
class _Layer:
    """An INT8 linear layer: the name of the uint8 rows [..., K], and its int8 weight as float [K, N].

    `scale` is that of its sums, scalar or [N]; None if it outputs the sums themselves, in INT32.
    """

    rows: str
    weight: Array
    scale: Array | None


def _layer(node: onnx.NodeProto, producers: dict[str, onnx.NodeProto], constants: dict[str, Array]) -> _Layer | None:
    if node.op_type == "MatMulInteger" and node.input[1] in constants and constants[node.input[1]].dtype == np.int8:
        return _Layer(node.input[0], constants[node.input[1]].astype(np.float32), None)
    if node.op_type not in ("Gemm", "MatMul") or any(name not in producers for name in node.input[:2]):
        return None
    first, right = (producers[name] for name in node.input[:2])
    if first.op_type != "DequantizeLinear" or right.op_type != "DequantizeLinear" or right.input[0] not in constants:
        return None
    if constants[first.input[2]].dtype != np.uint8 or constants[right.input[0]].dtype != np.int8:
        return None
    weight = constants[right.input[0]].astype(np.float32)
    weight = np.ascontiguousarray(weight.T) if is_transposed(node) else weight
    return _Layer(
        first.input[0], weight, np.asarray(constants[first.input[1]] * constants[right.input[1]], dtype=np.float32)
    )


def _excess(layer: _Layer, exact: str, name: str, graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> str:
    """Add the loss by saturation in a layer's output: sum over pairs of (pair - clipped pair), in the output's units.

    Pairs that cannot saturate are left out: [..., K] -> [pairs, M, 2] x [pairs, 2, N] -> [M, N] -> [..., N].
    """
    from onnx import TensorProto, helper, numpy_helper

    count = len(layer.weight) // 2
    pairs = layer.weight[: 2 * count].reshape(count, 2, -1)
    saturating = np.flatnonzero((255.0 * np.abs(pairs).sum(1)).max(1) > LIMITS[1])
    columns = np.stack([2 * saturating, 2 * saturating + 1], 1).ravel()

    def constant(text: str, values: Array) -> str:
        graph.initializer.append(numpy_helper.from_array(np.asarray(values), f"{name}_{text}"))
        return f"{name}_{text}"

    def add(kind: str, inputs: list[str], text: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"{name}_{text}"], name=f"{name}/{text}", **attributes))  # type: ignore[arg-type]
        return f"{name}_{text}"

    rows = add("Gather", [layer.rows, constant("columns", columns)], "gathered", axis=-1)
    rows = add("Cast", [rows], "float", to=TensorProto.FLOAT)
    rows = add("Reshape", [rows, constant("shape", np.array([-1, len(saturating), 2]))], "paired")
    rows = add("Transpose", [rows], "moved", perm=[1, 0, 2])
    sums = add("MatMul", [rows, constant("weight", pairs[saturating])], "sums")
    limits = [constant(name, np.array(limit, np.float32)) for name, limit in zip(("low", "high"), LIMITS, strict=True)]
    over = add("Sub", [sums, add("Clip", [sums, *limits], "clipped")], "over")
    total = add("ReduceSum", [over, constant("axis", np.array([0]))], "total", keepdims=0)
    total = add("Reshape", [total, add("Shape", [exact], "sizes")], "laid")
    if layer.scale is None:
        return add("Cast", [total], "excess", to=TensorProto.INT32)
    return add("Mul", [total, constant("scale", layer.scale)], "excess")
