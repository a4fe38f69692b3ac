"""Weights prepared for INT8: SmoothQuant moves activations' peaks into them, GPTQ rounds them by their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.spec import Array
from edgekit_targets.onnx.passes import weight_only
from edgekit_targets.onnx.passes.graph import copy_graph, graph_pass, readers
from edgekit_targets.onnx.passes.groups import LINEAR, ObservedRange, linear_groups, nodes_of

if TYPE_CHECKING:
    import onnx

FLOOR = 1e-5
"""Smallest magnitude that counts, of activations and weights; SmoothQuant's own code has it too."""
LAYOUT = frozenset(("Reshape", "Transpose", "Cast", "Identity"))
"""Operators that leave the values of an input as they are."""
LEVELS = 127
"""Steps on either side of zero: 8 bits without the lowest value."""
DAMPING = 0.01
"""Share of the mean of the moments' diagonal that is added to it, as in GPTQ's own code: directions that the samples
hardly have must not be filled with error."""
BLOCK = 64
"""Inputs whose errors are passed on together; of no effect on the result but for the order of sums."""
OFF = 1e-3
"""Steps by which a weight in fp32 may miss its grid: 127 steps are kept to 1e-5 of one."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""Of a scale."""


@graph_pass("smoothquant.smooth")
def smooth(
    graph: onnx.ModelProto, alpha: float, observed: Mapping[str, ObservedRange]
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Smooth a graph; comes with what each smoothed tensor's channels were divided by.

        LayerNormalization, scale and shift [K] -> X [..., K] -> MatMul, weight W [K, N]
        LayerNormalization, scale / s and shift / s -> X / s [..., K] -> MatMul, weight s W [K, N]; s [K]

    SmoothQuant (Xiao et al., 2023, equation 4): what makes activations hard to quantize moves into the weights. Each
    input channel of a linear layer that follows a LayerNormalization is divided by `max|X_j|^alpha / max|W_j|^(1 -
    alpha)`; the division is folded into the normalisation's scale and shift, the multiplication into the weights, so
    that the graph computes the same and runs as fast.
    """
    from onnx import numpy_helper

    graph = copy_graph(graph)
    weights = {i.name: i for i in graph.graph.initializer}
    users, ends = readers(graph), {value.name for value in graph.graph.output}
    divided: dict[str, Array] = {}
    for node in graph.graph.node:
        if node.op_type != "LayerNormalization" or not set(node.input[1:]) <= set(weights):
            continue
        tensors = _with_reshapes(node.output[0], users)
        read = _read_by_linears(node, tensors, users, weights)
        seen = [name for name in tensors if name in observed]
        channels = list(weights[node.input[1]].dims)
        if not read or not seen or ends & set(tensors) or any([len(observed[n].low)] != channels for n in seen):
            continue
        peaks = np.maximum(np.max([observed[name].peaks for name in seen], axis=0).astype(np.float64), FLOOR)
        columns = [np.abs(numpy_helper.to_array(weights[name])).max(axis=1) for name in read]
        factors = _factors(peaks, columns, alpha)
        for name in node.input[1:]:
            _set_values(weights[name], numpy_helper.to_array(weights[name]) / factors)
        for name in read:
            _set_values(weights[name], numpy_helper.to_array(weights[name]) * factors[:, None])
        divided.update(dict.fromkeys(seen, factors))
    return graph, divided


def _read_by_linears(
    node: onnx.NodeProto,
    tensors: Sequence[str],
    users: Mapping[str, list[onnx.NodeProto]],
    weights: Mapping[str, onnx.TensorProto],
) -> tuple[str, ...]:
    """Names of the weights of the linear layers that alone read a normalisation; none where others read it too."""
    if any(len(users[name]) > 1 for name in node.input[1:]):
        return ()
    nodes = [user for name in tensors for user in users.get(name, ()) if user.op_type not in ("Reshape", "Shape")]
    alone = all(n.op_type in LINEAR and n.input[1] in weights and len(users[n.input[1]]) == 1 for n in nodes)
    alone = alone and all(len(weights[n.input[1]].dims) == 2 for n in nodes)
    plain = all(not any(a.name in ("transA", "transB") and a.i for a in n.attribute) for n in nodes)
    return tuple(n.input[1] for n in nodes) if alone and plain else ()


def _with_reshapes(name: str, users: Mapping[str, list[onnx.NodeProto]]) -> list[str]:
    """Return a tensor and what it is reshaped to."""
    reshaped = [user.output[0] for user in users.get(name, ()) if user.op_type == "Reshape"]
    return [name, *(same for node in reshaped for same in _with_reshapes(node, users))]


def _factors(peaks: Array, columns: Sequence[Array], alpha: float) -> Array:
    """What each channel is divided by, float32 [K], of the peaks that it has and those of the weights that read it."""
    factors = peaks**alpha / np.maximum(np.max(columns, axis=0), FLOOR) ** (1.0 - alpha)
    return np.asarray(np.maximum(factors, FLOOR).astype(np.float32))


def _set_values(weight: onnx.TensorProto, values: Array) -> None:
    from onnx import numpy_helper

    weight.CopyFrom(numpy_helper.from_array(np.asarray(values, dtype=np.float32), weight.name))


@graph_pass("smoothquant.scale_channels")
def scale_channels(
    graph: onnx.ModelProto,
    alpha: float,
    peaks: Mapping[str, Array],
    floats: tuple[str, ...] = (),
    without: frozenset[str] = frozenset(),
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Insert the multiplications; comes with what each new tensor's channels were divided by, and of what.

    Inputs of the graph, as they are or in another layout, stay: pixels and embeddings have one scale already.

        x [..., K] -> MatMul or Gemm, weight W [K, N]
        x [..., K] -> Mul, 1 / s [K] -> MatMul or Gemm, weight s W [K, N]

    Where no normalisation can take the division (after GELU and after attention the channels' peaks differ several
    times, and most channels use a few of the 256 steps), a multiplication stands in front of the quantization, a pass
    over the tensor that is a small part of the layer's time.

    Args:
        graph: In fp32.
        alpha: How much of the difference moves into the weights, in [0, 1].
        peaks: Largest magnitude of each channel, [K], by tensor.
        floats: Groups that stay in float arithmetic and need no scales.
        without: Tensors that have been smoothed already.
    """
    from onnx import helper, numpy_helper

    graph = copy_graph(graph)
    weights = {i.name: i for i in graph.graph.initializer}
    selected = set(nodes_of(linear_groups(graph), floats))
    layers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.graph.node:
        if node.name in selected and node.input[0] in peaks and node.input[0] not in without:
            layers.setdefault(node.input[0], []).append(node)
    users = readers(graph)
    # The graph's inputs, and what has their values in another layout.
    inputs = {value.name for value in graph.graph.input}
    for node in graph.graph.node:
        if node.op_type in LAYOUT and node.input[0] in inputs:
            inputs.update(node.output)
    divided: dict[str, Array] = {}
    for name, nodes in layers.items():
        if name in inputs or any(len(users[node.input[1]]) > 1 for node in nodes):
            continue
        columns = [np.abs(_inputs_first(weights[n.input[1]], n)).max(1) for n in nodes]
        high = np.maximum(peaks[name], FLOOR).astype(np.float64)
        factors = _factors(high, columns, alpha)
        graph.graph.initializer.append(numpy_helper.from_array(np.float32(1.0) / factors, f"{name}_channel_scales"))
        place = list(graph.graph.node).index(nodes[0])
        scaled = helper.make_node("Mul", [name, f"{name}_channel_scales"], [f"{name}_scaled"], name=f"{name}/Mul")
        graph.graph.node.insert(place, scaled)
        for node in nodes:
            weight = weights[node.input[1]]
            values = numpy_helper.to_array(weight)
            _set_values(weight, values * (factors[None, :] if weight_only.is_transposed(node) else factors[:, None]))
            node.input[0] = f"{name}_scaled"
        divided[name] = factors
    return graph, divided


def _inputs_first(weight: onnx.TensorProto, node: onnx.NodeProto) -> Array:
    """Return a weight as [inputs, outputs]."""
    from onnx import numpy_helper

    values = np.asarray(numpy_helper.to_array(weight))
    return values.T if weight_only.is_transposed(node) else values


@graph_pass("rounding.round_weights")
def round_weights(
    graph: onnx.ModelProto, moments: Mapping[str, Array], levels: int = LEVELS, floats: tuple[str, ...] = ()
) -> onnx.ModelProto:
    """Round the weights of the linear layers; one that anything else reads too stays as it is.

    So do those of groups that stay in float arithmetic, which are only stored in INT8, and rounded to the nearest then:
    such a layer often reads something with few values (a query out of a vocabulary), and what samples do not have in
    them would be filled with error.

        x [..., K] -> MatMul or Gemm, weight fp32 [K, N]
        x [..., K] -> MatMul or Gemm, weight fp32 [K, N] whose columns are whole multiples of max|column| / 127

    GPTQ (Frantar et al., 2023, algorithm 1). Inputs of a layer are correlated, so that the error of one rounded weight
    can be undone by the weights that follow: of the sum of squares of `x (W - W')` 5 to 20 dB less remain in
    arr-coc-tiny's layers than with rounding to the nearest. The largest weight of each output keeps its value, and so
    every quantizer with one symmetric scale an output finds the same grid again and adds nothing.

    Args:
        graph: In fp32.
        moments: Mean of `x x^T` over samples and rows, [K, K], by the name of the tensor that a layer reads.
        levels: Steps on either side of zero.
        floats: Groups that stay in float arithmetic.
    """
    from onnx import numpy_helper

    graph = copy_graph(graph)
    weights = {i.name: i for i in graph.graph.initializer}
    selected = set(nodes_of(linear_groups(graph), floats))
    others = {name for node in graph.graph.node if node.name not in selected for name in node.input}
    finished: set[str] = set()
    for node in graph.graph.node:
        if node.name not in selected or node.input[0] not in moments or node.input[1] in finished | others:
            continue
        finished.add(node.input[1])
        values, turned = numpy_helper.to_array(weights[node.input[1]]), weight_only.is_transposed(node)
        rounded = rounded_rows(values if turned else values.T, moments[node.input[0]], levels)
        fitting = np.ascontiguousarray(rounded if turned else rounded.T).astype(np.float32)
        weights[node.input[1]].CopyFrom(numpy_helper.from_array(fitting, node.input[1]))
    return graph


def inputs_on_grid(graph: onnx.ModelProto, levels: int = LEVELS) -> frozenset[str]:
    """Return tensors read only by linear layers whose weights are already on their grid, as after some trainings.

    Rounding such weights changes nothing; to scale their inputs would move them off the grid.
    """
    from onnx import numpy_helper

    weights = {i.name: i for i in graph.graph.initializer}
    linear = set(nodes_of(linear_groups(graph), ()))
    is_gridded: dict[str, bool] = {}
    for node in graph.graph.node:
        if node.name in linear:
            values = numpy_helper.to_array(weights[node.input[1]])
            fits = on_grid(values if weight_only.is_transposed(node) else values.T, levels)
            is_gridded[node.input[0]] = is_gridded.get(node.input[0], True) and fits
    return frozenset(name for name, fits in is_gridded.items() if fits)


def on_grid(weight: Array, levels: int = LEVELS) -> bool:
    """Whether each row of a weight [N, K] is made of whole multiples of its largest magnitude over the levels."""
    values = weight.astype(np.float64)
    steps = values / np.maximum(np.abs(values).max(1, keepdims=True) / levels, SMALLEST)
    return bool(np.abs(steps - np.round(steps)).max(initial=0.0) < OFF)


def rounded_rows(weight: Array, moment: Array, levels: int = LEVELS) -> Array:
    """Weight [N, K], a row an output, on its grid of so many steps on either side of zero; moment [K, K]."""
    values = weight.astype(np.float64)
    scale = np.maximum(np.abs(values).max(1) / levels, SMALLEST)
    largest = np.abs(values).argmax(1)
    damped = moment + np.eye(len(moment)) * max(DAMPING * float(np.diag(moment).mean()), SMALLEST)
    order = np.argsort(-np.diag(damped), kind="stable")  # what is large is rounded first, while most can still make up
    factor = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T
    values, steps = values[:, order], np.zeros_like(values)
    largest_only = np.sign(weight[np.arange(len(weight)), largest]) * levels
    for start in range(0, len(order), BLOCK):
        stop = min(start + BLOCK, len(order))
        errors = np.zeros((len(values), stop - start))
        for column in range(start, stop):
            rounded = np.clip(np.round(values[:, column] / scale), -levels, levels)
            rounded = np.where(largest == order[column], largest_only, rounded)
            errors[:, column - start] = (values[:, column] - rounded * scale) / factor[column, column]
            values[:, column:stop] -= np.outer(errors[:, column - start], factor[column, column:stop])
            steps[:, column] = rounded
        values[:, stop:] -= errors @ factor[start:stop, stop:]
    result = np.empty_like(steps)
    result[:, order] = steps
    return np.asarray(result * scale[:, None])
