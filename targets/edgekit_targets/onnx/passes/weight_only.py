"""Weights that are stored in fewer bits and used in float: smaller files where INT8 arithmetic does not pay.

    x -> MatMul, weight fp32 [K, N]
    x -> MatMul, weight int8 [K, N] -> DequantizeLinear, scale [N], zero point [N] -> fp32 [K, N]
    x -> MatMul, weight int8 [K, 1, N] -> DequantizeLinear, scale [K], zero point [K] -> Reshape -> fp32 [K, N]

    ids -> Gather, table fp32 [V, D] -> y [..., D]
    ids -> Gather, table int8 [V, D] -> Cast fp32 -> Mul with Gather, scales [V, 1] -> y [..., D]

    positions fp32 [...] -> Resize
    positions fp16 [...] -> Cast fp32 -> Resize

    x -> Conv, weight fp16 -> Cast fp32, where INT8 would lose too much

The first two are for Gemm and Conv alike, with a scale for each output or each input, whichever loses less: a layer
that reads numbers of different kinds has inputs whose weights are a hundred times those of others. The axis of one in a
matrix of the second is for OpenVINO 2026.4.1, which takes the scales of inputs for those of outputs without it. Zero
points are zero, and written: without them ONNX Runtime refuses a DequantizeLinear with several scales under
`session.x64quantprecision`. The third is for large tables that are looked up, such as the embeddings of words, with a
scale for each row: only the rows that are read become floats. The fourth is for all other tables of floats. ONNX
Runtime does the others once, when it opens the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.onnx_check import names_read
from edgekit_targets.onnx.passes.graph import copied, graph_pass, readers, set_nodes

if TYPE_CHECKING:
    import onnx

    from edgekit.model.spec import Array

STORED = "/DequantizeLinear"
"""How the nodes end that make a stored weight a float one."""
LEAST = 4096
"""Elements: a smaller weight is not worth a node."""
LARGE_TABLE = 65536
"""Elements: of a smaller table that is looked up fp16 costs little more than INT8, and is exacter."""
LARGEST_ERROR = 1e-3
"""Of a value that is stored in fp16: what follows may be a sine or an exponential, of which an error is absolute."""
RECURRENT = "LSTM"
CONVOLUTIONS = ("Conv", "ConvTranspose")
CHANNEL = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""Axis of the output channels of the weight, which is the second input; a Gemm with transB has them first."""


@graph_pass
def quantize_weights(graph: onnx.ModelProto, convolutions: bool = True) -> onnx.ModelProto:
    """Store the float weights of convolutions and linear layers in INT8, and other tables in fp16.

    Args:
        graph: Some of whose weights are floats.
        convolutions: Whether the weights of convolutions are stored in INT8; in fp16 otherwise.
    """
    from onnx import TensorProto, numpy_helper

    graph = copied(graph)
    weights = {i.name: i for i in graph.graph.initializer if i.data_type == TensorProto.FLOAT}
    users, added = readers(graph), []
    lookups: dict[str, list[onnx.NodeProto]] = {}
    for name, weight in weights.items():
        values = numpy_helper.to_array(weight)
        if values.size < LEAST or name not in users:  # or read in a branch or a loop only
            continue
        weighs = all((node.op_type in CHANNEL and [*node.input].index(name) == 1) for node in users[name])
        if weighs and (convolutions or users[name][0].op_type not in CONVOLUTIONS):
            arrays, unpacking = _in_int8(name, values, channel_axis(users[name][0]))
        elif values.ndim == 2 and values.size >= LARGE_TABLE and _looked_up(graph, name):
            # A table in INT8 and a scale for each row.
            rounded, scale = _in_steps(values, 0)
            by_row = {f"{name}_int8": rounded, f"{name}_scale": scale}
            arrays, unpacking = by_row, []
            lookups |= {node.output[0]: _lookup(node) for node in users[name]}
        elif _fits_fp16(values, weighs):
            arrays, unpacking = _in_fp16(name, values)
        else:
            continue
        graph.graph.initializer.remove(weight)
        graph.graph.initializer.extend(numpy_helper.from_array(array, held_name) for held_name, array in arrays.items())
        added.extend(unpacking)
    nodes = (part for node in graph.graph.node for part in lookups.get(node.output[0], (node,)))
    set_nodes(graph.graph, [*added, *nodes])
    return graph


def _looked_up(graph: onnx.ModelProto, name: str) -> bool:
    """Whether nothing reads a table but nodes that take rows of it, outside of branches and loops."""
    nodes = [node for node in graph.graph.node if name in names_read(node)]
    return all(
        node.op_type == "Gather" and name not in node.input[1:] and not any(axis.i for axis in node.attribute)
        for node in nodes
    )


def _lookup(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """What takes rows of such a table, in the place of a Gather."""
    from onnx import TensorProto, helper

    (table, ids), rows = node.input, node.output[0]
    return [
        helper.make_node("Gather", [f"{table}_int8", ids], [f"{rows}_int8"], name=node.name),
        helper.make_node("Cast", [f"{rows}_int8"], [f"{rows}_steps"], name=f"{node.name}/Cast", to=TensorProto.FLOAT),
        helper.make_node("Gather", [f"{table}_scale", ids], [f"{rows}_scale"], name=f"{node.name}/Gather"),
        helper.make_node("Mul", [f"{rows}_steps", f"{rows}_scale"], [rows], name=f"{node.name}/Mul"),
    ]


def _in_int8(name: str, values: Array, outputs: int) -> tuple[dict[str, Array], list[onnx.NodeProto]]:
    """What a weight is stored as, by name, and the nodes that make it a float one; `outputs` is their axis in it."""
    from onnx import helper

    rounded, scale, axis = _rounded(values)
    arrays = {f"{name}_int8": rounded, f"{name}_scale": scale.ravel(), f"{name}_zero": np.zeros(scale.size, np.int8)}
    if values.ndim != 2 or axis == outputs:
        return arrays, [helper.make_node("DequantizeLinear", [*arrays], [name], name=f"{name}{STORED}", axis=axis)]
    arrays[f"{name}_int8"] = np.expand_dims(rounded, axis + 1)
    deep, shape = f"{name}_deep", f"{name}_shape"
    dequantize = helper.make_node("DequantizeLinear", [*arrays], [deep], name=f"{name}{STORED}", axis=axis)
    arrays[shape] = np.array(values.shape, np.int64)
    return arrays, [dequantize, helper.make_node("Reshape", [deep, shape], [name], name=f"{name}/Reshape")]


def _in_fp16(name: str, values: Array) -> tuple[dict[str, Array], list[onnx.NodeProto]]:
    """The same of a table in fp16."""
    from onnx import TensorProto, helper

    arrays = {f"{name}_fp16": values.astype(np.float16)}
    return arrays, [helper.make_node("Cast", [*arrays], [name], name=f"{name}/Cast", to=TensorProto.FLOAT)]


def _rounded(values: Array) -> tuple[Array, Array, int]:
    """A weight in INT8, its scales, and the axis that these are of: inputs or outputs, whichever loses less."""
    candidates = []
    for axis in range(min(values.ndim, 2)):
        rounded, scale = _in_steps(values, axis)
        lost = float(((values - rounded * scale).astype(np.float64) ** 2).sum())
        candidates.append((lost, axis, rounded, scale))
    _, axis, rounded, scale = min(candidates, key=lambda each: each[:2])
    return rounded, scale, axis


def _in_steps(values: Array, axis: int) -> tuple[Array, Array]:
    """Values in INT8, and the scales of one axis, which keep the other axes with size 1."""
    others = tuple(a for a in range(values.ndim) if a != axis)
    peaks = np.abs(values).max(axis=others, keepdims=True)
    scale = np.where(peaks > 0, peaks / 127.0, 1.0).astype(np.float32)
    return np.clip(np.round(values / scale), -127, 127).astype(np.int8), scale


def _fits_fp16(values: Array, weighs: bool) -> bool:
    """Whether fp16 holds a table; of the weights of a layer the relative error counts."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinities: the error is not a number then
        error = np.abs(values - values.astype(np.float16).astype(np.float32)).max()
    relative = np.abs(values).max() / 1024
    return bool(error <= (relative if weighs else min(LARGEST_ERROR, relative)))


def stored(graph: onnx.ModelProto) -> int:
    """How many weights `quantize_weights` stored in INT8 in a graph."""
    return sum(node.name.endswith(STORED) for node in graph.graph.node)


def channel_axis(node: onnx.NodeProto) -> int:
    """The axis of the output channels in the weight of a layer of CHANNEL."""
    return 0 if transposed(node) else CHANNEL[node.op_type]


def transposed(node: onnx.NodeProto) -> bool:
    """Whether a node has its weight as [outputs, inputs]."""
    return any(a.name == "transB" and a.i for a in node.attribute)
