"""Conditioning: a graph that computes the same in fp32 and loses less in INT8, however it is quantized then.

    graph fp32, samples -> SmoothQuant and channel scales -> weights on their INT8 grid (GPTQ) -> graph fp32

Only linear layers are changed, not convolutions. The weights of LSTMs are rounded apart (`round_recurrent`).
For arr-coc-tiny's relevance, over 200 calibration samples, static INT8 had a signal-to-noise ratio of 33.3 dB before
and 38.4 dB after it, dynamic INT8 35.8 and 39.3 dB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.spec import Array
from edgekit.runtime import ort
from edgekit.target import Option
from edgekit_targets.onnx.passes import qdq
from edgekit_targets.onnx.passes.graph import LSTM, copy_graph, readers
from edgekit_targets.onnx.passes.groups import ObservedRange, groups, linear_groups, nodes_of
from edgekit_targets.onnx.passes.smoothquant import inputs_on_grid, round_weights, rounded_rows, scale_channels, smooth
from edgekit_targets.onnx.quantization import calibration
from edgekit_targets.onnx.quantization.calibration import Samples

if TYPE_CHECKING:
    import onnx

REDUCE_RANGE = Option(name="reduce_range", default=False, help="7-bit weights, for x86 processors without VNNI")
"""Option of every target that conditions its graph."""
ALPHA = 0.8
"""SmoothQuant's alpha. Its authors use 0.5 for weights rounded to the nearest; with GPTQ the weights take more:
static INT8 of arr-coc-tiny had 36.7 dB at 0.5 and 38.4 dB at 0.8."""
SAMPLES = 64
"""Number of samples. For images with 196 patches that is 12,544 rows, sixteen for each input of the widest layer."""
ROWS = 16
"""Rows of all samples for each input of a layer. With fewer, weights are rounded to the nearest: GPTQ would fit the
samples, and be further off on other inputs."""
WIDEST = 4096
"""Most inputs of a layer that GPTQ rounds: its memory grows with their square, its time with their cube."""
LARGE = 1e15
"""Magnitude of activations. The squares of larger ones, summed, may exceed fp32's range."""
FREE = 0.01
"""Share of the multiplications of the linear layers. The smallest groups stay in float arithmetic up to this: INT8
saves nothing there, and in arr-coc-tiny the three that read the query carry a third of the activations' noise."""
NODE = 4096
"""Elements that a multiplication could process in the time that ONNX Runtime needs to start it, about 2 us."""


@dataclass(frozen=True)
class ConditionedGraph:
    """The conditioned graph in fp32.

    Attributes:
        graph: The graph.
        floats: The groups that should stay in float arithmetic, sorted.
        scale_cost: Elements that channel scales multiply, as a share of the multiplications of all linear layers.
    """

    graph: onnx.ModelProto
    floats: tuple[str, ...]
    scale_cost: float = 0.0


@dataclass
class _ObservedStatistics:
    """One tensor on all samples: ends of each channel [K], sum of `x x^T` [K, K], rows in total and per sample.

    A tensor of more than WIDEST channels has no sum.
    """

    low: Array
    high: Array
    moment: Array | None
    rows: int
    rows_each: int


def condition(
    graph: onnx.ModelProto,
    samples: Samples,
    floats: tuple[str, ...] = (),
    reduce_range: bool = False,
    channel_scales: bool = True,
    alpha: float = ALPHA,
) -> ConditionedGraph:
    """Condition the linear layers of a graph for INT8; the original is not changed.

    Layers whose weights are already on their INT8 grid, by a training, stay unchanged.

    Args:
        graph: In fp32.
        samples: The samples, of which the first SAMPLES are used.
        floats: Groups that stay in float arithmetic, in addition to the smallest ones.
        reduce_range: True for 7-bit weights.
        channel_scales: True to insert a multiplication before layers whose input no normalisation can scale:
            without it arr-coc-tiny is 1.02 (static) and 1.04 (dynamic) times as fast and 1 to 2 dB noisier.
        alpha: Share of the difference between channels that moves into the weights, in [0, 1].

    Raises:
        ExportError: If a tensor holds a NaN or Inf although the samples do not.
    """
    if not linear_groups(graph):
        return ConditionedGraph(graph, floats)
    seen = _look(graph, samples.part(0, SAMPLES))
    floats = tuple(sorted({*floats, *_smallest(graph, seen)}))
    observed = {name: ObservedRange({}, stats.low, stats.high, stats.rows_each) for name, stats in seen.items()}
    enough = {name: stats for name, stats in seen.items() if stats.rows >= ROWS * len(stats.low)}
    moments = {name: stats.moment / stats.rows for name, stats in enough.items() if stats.moment is not None}
    on_grid = inputs_on_grid(graph, qdq.WEIGHT_LEVELS[reduce_range])
    observed = {name: observed_range for name, observed_range in observed.items() if name not in on_grid}
    conditioned, smoothed = smooth(graph, alpha, observed)
    for name in smoothed.keys() & moments.keys():
        moments[name] = moments[name] / np.outer(smoothed[name], smoothed[name])
    peaks = {name: observed_range.peaks for name, observed_range in observed.items()}
    scaled: Mapping[str, Array] = {}
    if channel_scales:
        conditioned, scaled = scale_channels(conditioned, alpha, peaks, floats, frozenset(smoothed))
    for name in scaled.keys() & moments.keys():
        moments[f"{name}_scaled"] = moments[name] / np.outer(scaled[name], scaled[name])
    elements = sum(seen[name].rows_each * len(seen[name].low) + NODE for name in scaled)
    cost = elements / max(sum(_linear_work(graph, seen).values()), 1)
    return ConditionedGraph(round_weights(conditioned, moments, qdq.WEIGHT_LEVELS[reduce_range], floats), floats, cost)


def round_recurrent(
    graph: onnx.ModelProto, samples: Samples, reduce_range: bool = False
) -> dict[str, tuple[onnx.TensorProto, onnx.TensorProto]]:
    """Return the weights W [directions, 4H, K] and R [directions, 4H, H] of LSTMs on their INT8 grid, by node.

    GPTQ, as for linear layers: W meets the layer's inputs, R its states. Of a voice encoder's last two LSTMs, dynamic
    INT8 had a signal-to-noise ratio of 30.3 dB before and 33.3 dB after it.

    Args:
        graph: In fp32; not changed.
        samples: The samples, of which the first SAMPLES are used.
        reduce_range: True for 7-bit weights.
    """
    from onnx import numpy_helper

    copy = copy_graph(graph)
    weights = {i.name: i for i in copy.graph.initializer}
    users = readers(copy)
    layers = []
    for number, node in enumerate(copy.graph.node):
        own = node.op_type == LSTM and all(name in weights and len(users[name]) == 1 for name in node.input[1:3])
        if own and node.input[0] not in weights:
            layers.append(node)
            # The states of all steps, which a layer whose last state alone is read does not return.
            node.output[0] = node.output[0] or f"states_{number}"
    if not layers:
        return {}
    names = tuple(dict.fromkeys(name for node in layers for name in (node.input[0], node.output[0])))
    moments, rows = dict.fromkeys(names, np.zeros(())), dict.fromkeys(names, 0)
    session = ort.open_with_taps(copy, names)
    for arrays, _ in calibration.run_samples(
        session, samples.part(0, SAMPLES), calibration.samples_a_run(graph), names
    ):
        for name, array in arrays.items():
            # States [time, directions, batch, H] have a moment for each direction, inputs [time, batch, K] one.
            directions = np.moveaxis(array, 1, 0) if array.ndim == 4 else array[None]
            moments[name] = moments[name] + np.stack([_moment(each.reshape(-1, each.shape[-1])) for each in directions])
            rows[name] += directions[0].size // directions.shape[-1]

    def round_weight(weight: onnx.TensorProto, name: str) -> onnx.TensorProto:
        if rows[name] < ROWS * weight.dims[-1] or weight.dims[-1] > WIDEST:
            return weight
        values = numpy_helper.to_array(weight)
        means = np.broadcast_to(moments[name] / rows[name], (len(values), *moments[name].shape[1:]))
        levels = qdq.WEIGHT_LEVELS[reduce_range]
        rounded = [rounded_rows(each, mean, levels) for each, mean in zip(values, means, strict=True)]
        return numpy_helper.from_array(np.stack(rounded).astype(np.float32), weight.name)

    return {
        node.name: (
            round_weight(weights[node.input[1]], node.input[0]),
            round_weight(weights[node.input[2]], node.output[0]),
        )
        for node in layers
    }


def _smallest(graph: onnx.ModelProto, seen: dict[str, _ObservedStatistics]) -> list[str]:
    """Return the linear-only groups with the least work, together at most FREE of all; never all of them."""
    work = _linear_work(graph, seen)
    # Groups with a quantizable layer that is not linear.
    linear = set(nodes_of(linear_groups(graph), ()))
    every = (*groups(graph).items(), *groups(graph, dynamic=True).items())
    mixed = {group for group, names in every if not set(names) <= linear}
    selected, spent = [], 0
    for group in sorted(work.keys() - mixed, key=lambda name: (work[name], name)):
        spent += work[group]
        if spent > FREE * sum(work.values()):
            break
        selected.append(group)
    return selected


def _linear_work(graph: onnx.ModelProto, seen: Mapping[str, _ObservedStatistics]) -> dict[str, int]:
    """Return the multiplications of each group's linear layers on one sample."""
    sizes = {i.name: i.dims for i in graph.graph.initializer}
    nodes = {node.name: node for node in graph.graph.node}
    work: dict[str, int] = {}
    for group, names in linear_groups(graph).items():
        each = [(seen[nodes[n].input[0]].rows_each, sizes[nodes[n].input[1]]) for n in names]
        work[group] = sum(rows * size[0] * size[1] for rows, size in each)
    return work


def _look(graph: onnx.ModelProto, samples: Samples) -> dict[str, _ObservedStatistics]:
    """Run the samples and return statistics of the linear layers' inputs."""
    linear = set(nodes_of(linear_groups(graph), ()))
    names = tuple(dict.fromkeys(node.input[0] for node in graph.graph.node if node.name in linear))
    seen: dict[str, _ObservedStatistics] = {}
    for arrays, count in calibration.run_samples(
        ort.open_with_taps(graph, names), samples, calibration.samples_a_run(graph), names
    ):
        for name, array in arrays.items():
            rows = array.reshape(-1, array.shape[-1])
            low, high = rows.min(0), rows.max(0)
            moment = _moment(rows) if rows.shape[1] <= WIDEST else None
            if name not in seen:
                seen[name] = _ObservedStatistics(low, high, moment, len(rows), len(rows) // count)
                continue
            stats = seen[name]
            stats.low, stats.high = np.minimum(stats.low, low), np.maximum(stats.high, high)
            stats.rows += len(rows)
            stats.moment = stats.moment + moment if stats.moment is not None and moment is not None else None
    return seen


def _moment(rows: Array) -> Array:
    """Return the sum of `x x^T` over rows [n, K]: float64 [K, K]."""
    # The products are in fp32 if they stay in its range.
    if np.abs(rows).max(initial=0.0) > LARGE:
        rows = rows.astype(np.float64)
    return (rows.T @ rows).astype(np.float64)
