"""What INT8 answers on processors without VNNI: pairs of products are added in 16 bits there, and saturate.

x86 without VNNI multiplies with `vpmaddubsw`, which adds two neighbouring products of unsigned and signed bytes with
saturation at 32,767 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, PMADDUBSW); ONNX Runtime's
AVX2 and AVX-512 kernels use it for unsigned activations and signed weights. The emulation is a graph of float operators
around each INT8 layer: exact sums, less what saturation takes away. It is slow, and right wherever the sums themselves
are exact: with VNNI, and without it under EXACT.

    x uint8 [..., K] -> INT8 layer, weight int8 [K, N] -> y [..., N]
    x uint8 [..., K] -> INT8 layer -> y [..., N] -> Sub -> saturated y [..., N]
    x uint8 [..., K] -> Gather, Reshape, Transpose [pairs, M, 2] -> MatMul [pairs, M, N] -> what Clip to 16 bits cuts
        off -> ReduceSum over pairs -> what Sub subtracts [..., N]
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.spec import Array
from edgekit_targets.onnx.passes import weight_only
from edgekit_targets.onnx.passes.graph import copied, set_nodes

if TYPE_CHECKING:
    import onnx

EXACT = {"session.x64quantprecision": "1"}
"""ONNX Runtime's setting that keeps sums exact on x86 without VNNI, by slower kernels."""
LIMITS = -32768.0, 32767.0
"""Of a signed 16-bit sum."""


def emulated(graph: onnx.ModelProto) -> onnx.ModelProto:
    """A quantized graph as a processor without VNNI computes it; the given one is not changed.

    Only layers whose weights can saturate are changed: two weights w and v with 255 (|w| + |v|) <= 32,767 cannot.
    """
    from onnx import helper, numpy_helper

    copy = copied(graph)
    constants = {i.name: numpy_helper.to_array(i) for i in copy.graph.initializer}
    producers = {name: node for node in copy.graph.node for name in node.output}
    nodes = []
    for node in copy.graph.node:
        nodes.append(node)
        layer = _layer(node, producers, constants)
        if layer is None or not _may_saturate(layer.weight):
            continue
        exact = f"{node.output[0]}_exact"
        excess = _excess(layer, exact, f"{node.name}/saturated", copy.graph, nodes)
        nodes.append(helper.make_node("Sub", [exact, excess], [node.output[0]], name=f"{node.name}/saturated"))
        node.output[0] = exact
    set_nodes(copy.graph, nodes)
    return copy


def unshared(model: onnx.ModelProto) -> onnx.ModelProto:
    """A quantized graph with INT8 constants of each layer's own; the given one is not changed.

    Under EXACT ONNX Runtime 1.31.1 opens no graph of which two layers share one: its Avx2WeightS8ToU8Transformer makes
    the same constant anew for each.
    """
    import onnx

    copy = copied(model)
    graph = copy.graph
    held = {i.name: i for i in graph.initializer if i.data_type == onnx.TensorProto.INT8}
    rounded = {n.output[0]: n for n in graph.node if n.op_type == "DequantizeLinear" and n.input[0] in held}
    nodes: list[onnx.NodeProto] = []
    taken: Counter[str] = Counter()

    def own(name: str, number: int) -> str:
        if name not in held:
            return name
        graph.initializer.add().CopyFrom(held[name])
        graph.initializer[-1].name = f"{name}/{number}"
        return f"{name}/{number}"

    for node in graph.node:
        for at, name in enumerate(node.input):
            if name not in rounded and (name not in held or node.op_type == "DequantizeLinear"):
                continue
            taken[name] += 1
            if (number := taken[name]) == 1:
                continue
            if name in rounded:
                nodes.append(_again(rounded[name], [own(one, number) for one in rounded[name].input], number))
                node.input[at] = nodes[-1].output[0]
            else:
                node.input[at] = own(name, number)
        nodes.append(node)
    set_nodes(graph, nodes)
    return copy


def _again(node: onnx.NodeProto, inputs: list[str], number: int) -> onnx.NodeProto:
    made = type(node)()
    made.CopyFrom(node)
    made.input[:] = inputs
    made.name, made.output[0] = f"{node.name}/{number}", f"{node.output[0]}/{number}"
    return made


def convolutions(graph: onnx.ModelProto) -> int:
    """How many convolutions take INT8: `emulated` leaves them as they are."""
    rounded = {name for node in graph.graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    return sum(node.op_type == "Conv" and set(node.input[:2]) <= rounded for node in graph.graph.node)


@dataclass(frozen=True)
class _Layer:
    """An INT8 linear layer: the name of the uint8 rows [..., K], and its int8 weight as float [K, N].

    `scale` is that of its sums, scalar or [N]; None where it answers with the sums themselves, in INT32.
    """

    rows: str
    weight: Array
    scale: Array | None


def _layer(node: onnx.NodeProto, producers: dict[str, onnx.NodeProto], constants: dict[str, Array]) -> _Layer | None:
    if node.op_type == "MatMulInteger" and node.input[1] in constants and constants[node.input[1]].dtype == np.int8:
        return _Layer(node.input[0], constants[node.input[1]].astype(np.float32), None)
    if node.op_type not in ("Gemm", "MatMul") or any(name not in producers for name in node.input[:2]):
        return None
    left, right = (producers[name] for name in node.input[:2])
    if left.op_type != "DequantizeLinear" or right.op_type != "DequantizeLinear" or right.input[0] not in constants:
        return None
    if constants[left.input[2]].dtype != np.uint8 or constants[right.input[0]].dtype != np.int8:
        return None
    weight = constants[right.input[0]].astype(np.float32)
    weight = np.ascontiguousarray(weight.T) if weight_only.transposed(node) else weight
    return _Layer(
        left.input[0], weight, np.asarray(constants[left.input[1]] * constants[right.input[1]], dtype=np.float32)
    )


def _may_saturate(weight: Array) -> bool:
    even = weight[: len(weight) // 2 * 2].reshape(-1, 2, weight.shape[1])
    return bool((255.0 * np.abs(even).sum(1)).max(initial=0.0) > LIMITS[1])


def _excess(layer: _Layer, exact: str, name: str, graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> str:
    """What saturation takes from a layer's output: sum over pairs of (pair - clipped pair), in the output's units.

    Pairs that cannot saturate are left out: [..., K] -> [pairs, M, 2] x [pairs, 2, N] -> [M, N] -> [..., N].
    """
    from onnx import TensorProto, helper, numpy_helper

    count = len(layer.weight) // 2
    pairs = layer.weight[: 2 * count].reshape(count, 2, -1)
    kept = np.flatnonzero((255.0 * np.abs(pairs).sum(1)).max(1) > LIMITS[1])
    columns = np.stack([2 * kept, 2 * kept + 1], 1).ravel()

    def constant(text: str, values: Array) -> str:
        graph.initializer.append(numpy_helper.from_array(np.asarray(values), f"{name}_{text}"))
        return f"{name}_{text}"

    def add(kind: str, inputs: list[str], text: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"{name}_{text}"], name=f"{name}/{text}", **attributes))  # type: ignore[arg-type]
        return f"{name}_{text}"

    rows = add("Gather", [layer.rows, constant("columns", columns)], "gathered", axis=-1)
    rows = add("Cast", [rows], "float", to=TensorProto.FLOAT)
    rows = add("Reshape", [rows, constant("shape", np.array([-1, len(kept), 2]))], "paired")
    rows = add("Transpose", [rows], "moved", perm=[1, 0, 2])
    sums = add("MatMul", [rows, constant("weight", pairs[kept])], "sums")
    limits = [constant(name, np.array(limit, np.float32)) for name, limit in zip(("low", "high"), LIMITS, strict=True)]
    over = add("Sub", [sums, add("Clip", [sums, *limits], "clipped")], "over")
    total = add("ReduceSum", [over, constant("axis", np.array([0]))], "total", keepdims=0)
    total = add("Reshape", [total, add("Shape", [exact], "sizes")], "laid")
    if layer.scale is None:
        return add("Cast", [total], "excess", to=TensorProto.INT32)
    return add("Mul", [total, constant("scale", layer.scale)], "excess")
