"""Preparation of weights for INT8: SmoothQuant moves activations' peaks into them, GPTQ rounds them by their inputs."""

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
"""Smallest magnitude that counts, of activations and weights, as in SmoothQuant's own code."""
QUIET = 0.01
"""Share of the largest peak that a quieter channel is taken to have."""
LAYOUT = frozenset(("Reshape", "Transpose", "Cast", "Identity"))
"""Operators that do not change the values of an input."""
LEVELS = 127
"""Steps on either side of zero: 8 bits without the lowest value."""
DAMPING = 0.01
"""Share of the mean of the moments' diagonal that is added to it, as in GPTQ's own code: directions that the samples
hardly contain must not be filled with error."""
BLOCK = 64
"""Inputs whose errors are passed on together; it changes only the order of sums."""
OFF = 1e-3
"""Steps by which an fp32 weight may miss its grid: 127 steps are exact to 1e-5 of one."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""Smallest scale."""


@graph_pass("smoothquant.smooth")
def smooth(
    graph: onnx.ModelProto, alpha: float, observed: Mapping[str, ObservedRange]
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Smooth a graph; also return the divisor of each smoothed tensor's channels.

        LayerNormalization, scale and shift [K] -> X [..., K] -> MatMul, weight W [K, N]
        LayerNormalization, scale / s and shift / s -> X / s [..., K] -> MatMul, weight s W [K, N]; s [K]

    SmoothQuant (Xiao et al., 2023, equation 4) moves the part of activations that is hard to quantize into the weights.
    Each input channel of a linear layer that follows a LayerNormalization is divided by `max|X_j|^alpha / max|W_j|^(1 -
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
    """Return the weights of the linear layers that are the only readers of a normalisation; none with other readers."""
    if any(len(users[name]) > 1 for name in node.input[1:]):
        return ()
    nodes = [user for name in tensors for user in users.get(name, ()) if user.op_type not in ("Reshape", "Shape")]
    alone = all(n.op_type in LINEAR and n.input[1] in weights and len(users[n.input[1]]) == 1 for n in nodes)
    alone = alone and all(len(weights[n.input[1]].dims) == 2 for n in nodes)
    plain = all(not any(a.name in ("transA", "transB") and a.i for a in n.attribute) for n in nodes)
    return tuple(n.input[1] for n in nodes) if alone and plain else ()


def _with_reshapes(name: str, users: Mapping[str, list[onnx.NodeProto]]) -> list[str]:
    """Return a tensor and its reshaped versions."""
    reshaped = [user.output[0] for user in users.get(name, ()) if user.op_type == "Reshape"]
    return [name, *(same for node in reshaped for same in _with_reshapes(node, users))]


def _factors(peaks: Array, columns: Sequence[Array], alpha: float) -> Array:
    """Return the divisor of each channel, float32 [K], from its peak and the peaks of the weights that read it.

    A channel that no calibration row moved may move in others: raised by more, it alone would set the tensor's range.
    """
    peaks = np.maximum(peaks, QUIET * peaks.max())
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
    """Insert multiplications; also return the divisor of each new tensor's channels, by the original tensor.

    Inputs of the graph, also in another layout, stay unchanged: pixels and embeddings already have one scale.

        x [..., K] -> MatMul or Gemm, weight W [K, N]
        x [..., K] -> Mul, 1 / s [K] -> MatMul or Gemm, weight s W [K, N]

    If no normalisation can absorb the division (after GELU and after attention the channels' peaks differ several
    times, and most channels use a few of the 256 steps), a multiplication before the quantization does it: a pass
    over the tensor that is a small part of the layer's time.

    Args:
        graph: In fp32.
        alpha: Share of the difference that moves into the weights, in [0, 1].
        peaks: Largest magnitude of each channel, [K], by tensor.
        floats: Groups that stay in float arithmetic and need no scales.
        without: Tensors that are already smoothed.
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
    # The graph's inputs, and tensors with their values in another layout.
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
    """Round the weights of the linear layers; a weight with any other reader stays unchanged.

    So do weights of groups in float arithmetic, which are only stored in INT8, and then rounded to the nearest: such a
    layer often reads a tensor with few distinct values (a query from a vocabulary), and directions that the samples do
    not contain would be filled with error.

        x [..., K] -> MatMul or Gemm, weight fp32 [K, N]
        x [..., K] -> MatMul or Gemm, weight fp32 [K, N] whose columns are whole multiples of max|column| / 127

    GPTQ (Frantar et al., 2023, algorithm 1). Inputs of a layer are correlated, so that the following weights can
    compensate the error of one rounded weight: the sum of squares of `x (W - W')` is 5 to 20 dB smaller in
    arr-coc-tiny's layers than with rounding to the nearest. The largest weight of each output keeps its value, so
    every quantizer with one symmetric scale per output finds the same grid again and adds no error.

    Args:
        graph: In fp32.
        moments: Mean of `x x^T` over samples and rows, [K, K], by the name of a layer's input.
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

    Rounding such weights changes nothing; scaling their inputs would move them off the grid.
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
    """Return whether each row of a weight [N, K] has only whole multiples of its largest magnitude over the levels."""
    values = weight.astype(np.float64)
    steps = values / np.maximum(np.abs(values).max(1, keepdims=True) / levels, SMALLEST)
    return bool(np.abs(steps - np.round(steps)).max(initial=0.0) < OFF)


def rounded_rows(weight: Array, moment: Array, levels: int = LEVELS) -> Array:
    """Round a weight [N, K], one row per output, to its grid of `levels` steps around zero; moment [K, K]."""
    values = weight.astype(np.float64)
    scale = np.maximum(np.abs(values).max(1) / levels, SMALLEST)
    largest = np.abs(values).argmax(1)
    damped = moment + np.eye(len(moment)) * max(DAMPING * float(np.diag(moment).mean()), SMALLEST)
    # Large inputs are rounded first, while most others can still compensate.
    order = np.argsort(-np.diag(damped), kind="stable")
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
