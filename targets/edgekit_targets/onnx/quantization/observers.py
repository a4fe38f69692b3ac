"""What activations do on the calibration samples, and the ranges that follow by ONNX Runtime's methods."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ExportError
from edgekit.model.evaluation_set import FIRST
from edgekit.model.spec import Array
from edgekit.runtime import ort
from edgekit_targets.onnx.passes.quant_config import Method, ObservedRange
from edgekit_targets.onnx.quantization.calibration import Samples

if TYPE_CHECKING:
    import onnx

BATCH = 4
"""Samples a run: more only take memory."""
BINS, LEVELS, PERCENTILE = 2048, 128, 99.999
"""Bins of a histogram, quantization levels of the entropy method and the percentile: ONNX Runtime's defaults, but for
the bins, of which entropy takes as many as it has levels."""
GROWN = 16.0
"""A histogram's bins are as wide as its first batch makes them. Where the range grows more than this, it is made again
with bins for all of it: the time of the entropy method grows with the square of their number."""


def observe(
    graph: onnx.ModelProto,
    tensors: Sequence[str],
    samples: Samples,
    methods: Sequence[Method],
    tell: Callable[[float], None],
) -> dict[str, ObservedRange]:
    """Run all samples once and look at the named tensors.

    Args:
        graph: In fp32; not changed.
        tensors: Names of float tensors, inputs of the graph included.
        samples: What to run.
        methods: Which ranges are wanted.
        tell: Told the share that is done.

    Raises:
        ExportError: If a tensor holds a NaN or Inf although the samples do not.
    """
    histograms: dict[Method, Any] = {m: _collector(m) for m in methods if m != "minmax"}
    low: dict[str, Array] = {}
    high: dict[str, Array] = {}
    rows: dict[str, int] = {}
    first: dict[str, float] = {}
    batch_size = samples_a_run(graph)
    batches = samples.batches(batch_size)
    session = ort.tapped(graph, tensors)
    for number, (arrays, count) in enumerate(seen(session, samples, batch_size, tensors)):
        tell(number / len(batches))
        for name, array in arrays.items():
            others = tuple(range(array.ndim - 1))
            low[name] = np.minimum(low[name], array.min(others)) if name in low else array.min(others)
            high[name] = np.maximum(high[name], array.max(others)) if name in high else array.max(others)
            rows[name] = array.size // array.shape[-1] // count
            first.setdefault(name, _peak(low[name], high[name]))
        _collect(histograms, arrays)
    narrow = [n for n in tensors if _peak(low[n], high[n]) > GROWN * first[n]]
    if histograms and narrow:
        for collector in histograms.values():
            for name in narrow:
                del collector.histogram_dict[name]
        _collect(histograms, {n: np.array([low[n].min(), high[n].max()], np.float32) for n in narrow})
        for batch in batches:
            _collect(histograms, _answers(session, batch, narrow))
    ranges: dict[Method, dict[str, tuple[float, float]]] = {m: _ranges(c) for m, c in histograms.items()}
    ranges["minmax"] = {n: (float(low[n].min()), float(high[n].max())) for n in tensors}
    return {
        n: ObservedRange({m: _with_zero(arrays[n]) for m, arrays in ranges.items()}, low[n], high[n], rows[n])
        for n in tensors
    }


def _collect(histograms: Mapping[Method, Any], arrays: Mapping[str, Array]) -> None:
    for collector in histograms.values():
        with contextlib.redirect_stdout(io.StringIO()):
            collector.collect({name: [array] for name, array in arrays.items()})


def _peak(low: Array, high: Array) -> float:
    return float(max(np.abs(low).max(), np.abs(high).max()))


def seen(
    session: ort.OrtRuntime, samples: Samples, size: int, names: Sequence[str]
) -> Iterator[tuple[dict[str, Array], int]]:
    """The named tensors of each run of so many samples, and how many it had.

    Raises:
        ExportError: If a tensor holds a NaN or Inf although the samples do not.
    """
    for number, batch in enumerate(samples.batches(size)):
        arrays = _answers(session, batch, names)
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise ExportError(f"the tensor '{name}' is not finite on the calibration samples: the model overflows")
        yield arrays, min(size, len(samples.names) - number * size)


def _answers(session: ort.OrtRuntime, batch: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """The named tensors of one run; an input of the graph is what was given."""
    outputs = session.run(batch)
    return {name: np.asarray(outputs[name] if name in outputs else batch[name]) for name in names}


def samples_a_run(graph: onnx.ModelProto) -> int:
    """Samples that a graph takes at once: one where the first axis of an input is not a free batch."""
    first = [tuple(dim.dim_param for dim in i.type.tensor_type.shape.dim[:1]) for i in graph.graph.input]
    return BATCH if all(dims == FIRST for dims in first) else 1


def _collector(method: Method) -> Any:
    from onnxruntime.quantization.calibrate import HistogramCollector

    bins = LEVELS if method == "entropy" else BINS
    return HistogramCollector(method, False, bins, LEVELS, PERCENTILE, "same")


def _ranges(collector: Any) -> dict[str, tuple[float, float]]:
    with contextlib.redirect_stdout(io.StringIO()):
        ranges = collector.compute_collection_result()
    return {name: (float(data[0]), float(data[1])) for name, data in ranges.items()}


def _with_zero(span: tuple[float, float]) -> tuple[float, float]:
    return min(span[0], 0.0), max(span[1], 0.0)
