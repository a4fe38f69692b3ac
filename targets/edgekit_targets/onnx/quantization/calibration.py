"""Calibration: the samples of a model, and the ranges of its activations on them.

Samples come from the model's own calibration set, or from a folder (`edgekit.reference.dataset`); an input without a
file there comes from the model's own set. A model with only picture inputs and no set gets parts of photographs that
ship with edgekit (`photographs/`); none of them is used to judge the artifact. Ranges follow by ONNX Runtime's methods.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.artifact.option import Option
from edgekit.errors import CalibrationError, ExportError
from edgekit.model.evaluation_set import (
    BATCH,
    FIRST,
    Shape,
    calibration_of,
    evaluation_of,
    runs_of,
    stack_runs,
    unusual_shapes,
)
from edgekit.model.evaluation_set import COUNT as COUNT
from edgekit.model.image_input import from_planes, pack_set, spec_in_planes, to_planes
from edgekit.model.shapes import grid
from edgekit.model.spec import Array, EvaluationSet, Input, Metric, ModelSpec
from edgekit.reference.batches import (
    CONDITIONED,
    REAL_STEP,
    RESIZED,
    Batch,
    batch_of,
    changed_rows,
    fits,
    shifted_rows,
    stress_batch,
)
from edgekit.reference.dataset import LEAST as LEAST
from edgekit.reference.dataset import read_folder, refuse_shared
from edgekit.reference.pictures import fit_picture, photographs
from edgekit.reference.variations import Columns
from edgekit.runtime import ort
from edgekit_targets.onnx.passes.groups import Method, ObservedRange

if TYPE_CHECKING:
    import onnx

SHIPPED = Path(__file__).parent / "photographs"
OF_SHIPPED = (
    "calibrated on parts of photographs that ship with edgekit, since the model has no calibration set. Give pictures "
    "like its own"
)
"""Note on an artifact whose ranges come from them."""
SMALLEST = 0.4
"""Smallest edge of a part of a photograph, as a share of the photograph's edge."""
MIRRORED, COLOURS = 0.5, 3
CONTRASTS, BRIGHTNESS_SHIFTS = (0.5, 1.3), (-0.2, 0.2)
"""Ranges of the contrast that parts of photographs keep, and of the change of their brightness."""
IN_OTHER_LIGHT = " in other light"
RELIT = 4
"""Step between the user's pictures that are also used in other light."""
FOLDER = Option[Path | None](
    name="calibration",
    default=None,
    help="folder of images to calibrate with; default: the model's own calibration set",
)
"""Option of every target that takes its samples from here."""
AT_A_SHAPE = 4
"""Real inputs at each shape: a graph that passes at default sizes may lose the order of a small map."""
IMAGES_PER_RUN = 4
"""Samples per run: more only take memory."""
BINS, LEVELS, PERCENTILE = 2048, 128, 99.999
"""Bins of a histogram, quantization levels of the entropy method and the percentile: ONNX Runtime's defaults, except
that entropy takes as many bins as it has levels."""
GROWN = 16.0
"""A histogram's bins are as wide as its first batch needs. If the range grows by more than this factor, it is made
again with bins for all of it: the time of the entropy method grows with the square of their number."""


@dataclass(frozen=True)
class Samples:
    """Inputs of the model: arrays [n, ...] by input name, and the names of the samples.

    `shapes` are the declared ones of the inputs whose batch is not their first axis. A set with `truth` [n, ...] and a
    `metric` also decides by the metric.
    """

    inputs: Mapping[str, Array]
    names: tuple[str, ...]
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    truth: Array | None = None
    metric: Metric | None = None

    def part(self, first: int, last: int | None) -> Samples:
        """Return samples `first` to `last`, without the latter; negative numbers count from the end."""
        start, stop, _ = slice(first, last).indices(len(self.names))
        truth = None if self.truth is None else self.truth[start:stop]
        return replace(self, inputs=self._rows(start, stop), names=self.names[start:stop], truth=truth)

    def batches(self, size: int) -> list[dict[str, Array]]:
        """Return inputs in batches of at most `size`, or of 1 if an input's first axis is not the batch."""
        batches = [self._rows(start, start + size) for start in range(0, len(self.names), size)]
        numbers = {name for name, shape in self.shapes.items() if not shape}
        return [{n: a[0] if n in numbers else a for n, a in batch.items()} for batch in batches] if numbers else batches

    def _rows(self, start: int, stop: int) -> dict[str, Array]:
        """Return inputs of some samples; an input with a fixed first size (a state) has that many rows per sample."""
        runs = len(self.names)
        return {n: runs_of(array, range(start, min(stop, runs)), runs) for n, array in self.inputs.items()}


def samples(spec: ModelSpec, folder: Path | None = None, count: int = COUNT, least: int = LEAST) -> Samples:
    """Return the checked calibration samples of a model.

    Raises:
        CalibrationError: If there are fewer than `least`, or one does not fit the model.
        DataError: If the folder cannot be read, or holds inputs on which the artifact is judged.
    """
    result = _own(spec, count) if folder is None else _read(spec, folder)
    if len(result.names) < least:
        where = f"the folder '{folder}' has" if folder is not None else f"'{spec.name}' declares"
        raise CalibrationError(f"{where} {len(result.names)} calibration samples. At least {least} are needed")
    for name, array in result.inputs.items():
        finite = np.isfinite(array).reshape(len(array), -1).all(1)
        if not finite.all():
            sample = result.names[int(np.flatnonzero(~finite)[0])]
            raise CalibrationError(f"calibration sample '{sample}' has a NaN or Inf in '{name}'. Remove or correct it")
    # After the check of the number: a changed copy is not another picture.
    return _with_other_light(spec, result) if folder is not None or "calibration" in spec.brought else result


def _with_other_light(spec: ModelSpec, result: Samples) -> Samples:
    """Return the user's samples, and every fourth again with another brightness and contrast.

    Pictures of one camera have nearly the same brightness. Ranges from them alone would clip the activations of darker
    and brighter pictures, on which the artifact is judged too. Models with other than batched inputs are left alone.
    """
    pictures = [i for i in spec.inputs if i.kind == "image" and i.shape[:1] == (BATCH,)]
    if not pictures or any(i.shape[:1] != (BATCH,) for i in spec.inputs):
        return result
    rows = range(0, len(result.names), RELIT)
    changed = {name: array[::RELIT].copy() for name, array in result.inputs.items()}
    for number, row in enumerate(rows):
        draw = np.random.Generator(np.random.PCG64(row))
        contrast, shift = draw.uniform(*CONTRASTS), draw.uniform(*BRIGHTNESS_SHIFTS)
        for i in pictures:
            values = (changed[i.name][number] - i.low) / (i.high - i.low)
            values = np.clip((values - values.mean()) * contrast + values.mean() + shift, 0.0, 1.0)
            values = i.low + (i.high - i.low) * values
            changed[i.name][number] = np.rint(values) if i.float_range else values
    # Each follows its own picture: a search takes ranges from the first samples and compares recipes on the last.
    order = np.argsort([*range(len(result.names)), *(row + 0.5 for row in rows)])
    names = [*result.names, *(f"{result.names[row]}{IN_OTHER_LIGHT}" for row in rows)]
    inputs = {name: np.concatenate([array, changed[name]])[order] for name, array in result.inputs.items()}
    truth = None if result.truth is None else np.concatenate([result.truth, result.truth[::RELIT]])[order]
    return replace(result, inputs=inputs, names=tuple(names[place] for place in order), truth=truth)


def available(spec: ModelSpec, count: int) -> Samples:
    """Return at most `count` calibration samples of a model; random inputs without a set or picture inputs.

    Raises:
        CalibrationError: As for `samples`.
    """
    if spec.calibration is not None or unknown(spec):
        return samples(spec, count=count, least=1).part(0, count)
    rows = [spec.random(seed) for seed in range(count)]
    arrays = {i.name: stack_runs(row[i.name] for row in rows) for i in spec.inputs}
    return Samples(arrays, tuple(f"random {seed}" for seed in range(count)), unusual_shapes(spec.inputs))


def note_of(spec: ModelSpec, folder: Path | None, samples: Samples) -> str:
    """Return what calibrated an artifact, in a sentence."""
    if unknown(spec, folder):
        return OF_SHIPPED
    source = f"the pictures in '{folder.name}'" if folder is not None else "the model's own calibration set"
    relit = sum(name.endswith(IN_OTHER_LIGHT) for name in samples.names)
    own = "your calibration inputs" if folder is None and "calibration" in spec.brought else source
    more = f", and {relit} of them again in other light" if relit else ""
    return f"calibrated on {len(samples.names) - relit} samples of {own}{more}"


def unknown(spec: ModelSpec, folder: Path | None = None) -> bool:
    """Return whether only pictures are known of a model's inputs: `samples` are then parts of photographs."""
    inputs = spec_in_planes(spec).inputs
    pictures = all(i.kind == "image" and len(i.shape) == 4 and i.shape[1] == COLOURS for i in inputs)
    return folder is None and spec.calibration is None and pictures


def _own(spec: ModelSpec, count: int) -> Samples:
    if spec.calibration is None and not unknown(spec):
        raise CalibrationError(
            f"'{spec.name}' declares no calibration set. Set `calibration` in its ModelSpec, or give a folder of images"
        )
    evaluation = calibration_of(spec, count) or pack_set(spec, _parts(spec_in_planes(spec), count))
    for declared in spec.inputs:
        array = evaluation.inputs.get(declared.name)
        expected = (len(evaluation.names) * _rows_of(spec, declared), *spec.shape(declared.name, {BATCH: 1})[1:])
        if array is None or array.shape != expected or array.dtype != declared.dtype:
            actual = "nothing" if array is None else f"{array.dtype} {array.shape}"
            raise CalibrationError(
                f"the calibration set of '{spec.name}' has {actual} for '{declared.name}', not {declared.dtype} "
                f"{expected}"
            )
    return Samples(
        {i.name: evaluation.inputs[i.name] for i in spec.inputs},
        tuple(evaluation.names),
        unusual_shapes(spec.inputs),
        evaluation.truth if evaluation.metric is not None else None,
        evaluation.metric,
    )


def _parts(spec: ModelSpec, count: int) -> EvaluationSet:
    """Return seeded parts of the photographs in turn: of any size and place, some mirrored, with changed tones."""
    every = list(photographs(SHIPPED).items())
    inputs: dict[str, list[Array]] = {i.name: [] for i in spec.inputs}
    for number in range(count):
        draw = np.random.Generator(np.random.PCG64(number))
        whole = every[number % len(every)][1]
        edges = [int(side * draw.uniform(SMALLEST, 1.0)) for side in whole.shape[1:]]
        top, left_edge = (
            int(draw.integers(side - edge + 1)) for side, edge in zip(whole.shape[1:], edges, strict=True)
        )
        part = whole[:, top : top + edges[0], left_edge : left_edge + edges[1]]
        part = part[:, :, ::-1] if draw.random() < MIRRORED else part
        part = (part - part.mean()) * draw.uniform(*CONTRASTS) + part.mean() + draw.uniform(*BRIGHTNESS_SHIFTS)
        for i in spec.inputs:
            height, width = spec.shape(i.name)[2:]
            picture = np.clip(fit_picture(part, height, width, i.fit), 0.0, 1.0)
            inputs[i.name].append((i.low + (i.high - i.low) * picture).astype(i.dtype))
    names = tuple(f"part {number} of photograph {every[number % len(every)][0]}" for number in range(count))
    rows = {i.name: np.repeat(np.stack(inputs[i.name]), _rows_of(spec, i), axis=0) for i in spec.inputs}
    return EvaluationSet(rows, names)


def _rows_of(spec: ModelSpec, declared: Input) -> int:
    """Return the rows of one sample: the first size, if that is not the batch."""
    return next(iter(spec.shape(declared.name, {BATCH: 1})), 1)


def _read(spec: ModelSpec, folder: Path) -> Samples:
    """Return a folder's samples, with the model's own set for other inputs; refuse those of the evaluation set."""
    of_folder = list(spec.inputs)

    def own(declared: Input, count: int) -> Array:
        of_folder.remove(declared)
        rows = _own(spec, max(count, LEAST)).inputs[declared.name]
        return np.resize(rows, (count * _rows_of(spec, declared) or len(rows), *rows.shape[1:]))

    dataset = read_folder(spec, folder, own if spec.calibration is not None else None)
    evaluation = evaluation_of(spec)
    if evaluation is not None:
        refuse_shared(spec, evaluation, dataset, of_folder)
    return Samples(dataset.inputs, dataset.names, unusual_shapes(spec.inputs))


def extra_inputs(
    spec: ModelSpec, samples: Samples, dynamic: Collection[str], more: Sequence[Mapping[str, int]] = ()
) -> tuple[Batch, ...]:
    """Return random, extreme and changed inputs, and real ones at the shapes of the grid and at `more`.

    The first samples are changed (dark, bright, grey, flat ...), the last are resized along the axes in `dynamic`.
    """
    odd = stress_batch(spec)
    planes = spec_in_planes(spec)
    rows = dict(zip(samples.names, samples.batches(1), strict=True))
    own = {name: to_planes(spec, rows[name]) for name in samples.names[:CONDITIONED]}
    columns = Columns(planes, rows)
    changed = {**changed_rows(planes, own), **shifted_rows(planes, own, columns)}
    made = [*map(columns.narrow, odd.rows()), *(from_planes(spec, planes.conform(row)) for row in changed.values())]
    inputs = {i.name: stack_runs(row[i.name] for row in made) for i in spec.inputs}
    extremes = replace(odd, inputs=inputs, names=(*odd.names, *changed))
    return (extremes, *at_shapes(spec, samples, dynamic, (*grid(spec.axes), *more)))


def at_shapes(
    spec: ModelSpec,
    samples: Samples,
    dynamic: Collection[str],
    shapes: Sequence[Mapping[str, int]],
    rows_a_shape: int = AT_A_SHAPE,
) -> tuple[Batch, ...]:
    """Return real inputs at each shape; in batches of one, since batches do not change a row's outputs.

    The last samples are resized first, along the axes in `dynamic`; shapes with default sizes are left out.
    """
    planes, rows = spec_in_planes(spec), [to_planes(spec, row) for row in samples.batches(1)]
    batches: list[Batch] = []
    if not fits(spec, rows):
        return ()
    for sizes in _open_sizes(spec, dynamic, shapes):
        for _ in range(rows_a_shape):
            number = len(batches)
            first = len(rows) - 1 - number * REAL_STEP % len(rows)
            names = (samples.names[first],)
            inputs = from_planes(spec, batch_of(planes, rows, sizes, [first]))
            batches.append(Batch(f"{RESIZED}-{number:02d}", inputs, {}, sizes, names))
    return tuple(batches)


def _open_sizes(
    spec: ModelSpec, dynamic: Collection[str], shapes: Sequence[Mapping[str, int]]
) -> list[Mapping[str, int]]:
    """Return the shapes that differ from the default sizes, without their batches."""
    default = {name: axis.default for name, axis in spec.axes.items()} | {BATCH: 1}
    unique: list[Mapping[str, int]] = []
    for shape in shapes:
        sizes = {name: shape[name] if name in dynamic and name != BATCH else default[name] for name in shape}
        if sizes not in unique and any(sizes[name] != default[name] for name in sizes):
            unique.append(sizes)
    return unique


def observe(
    graph: onnx.ModelProto,
    tensors: Sequence[str],
    samples: Samples,
    methods: Sequence[Method],
    tell: Callable[[float], None],
) -> dict[str, ObservedRange]:
    """Run all samples once and return the ranges of the named tensors.

    Args:
        graph: In fp32; not changed.
        tensors: Names of float tensors, including inputs of the graph.
        samples: Samples to run.
        methods: Methods for the ranges.
        tell: Called with the completed share.

    Raises:
        ExportError: If a tensor holds a NaN or Inf although the samples do not.
    """
    from onnxruntime.quantization.calibrate import HistogramCollector

    histograms: dict[Method, Any] = {}
    for method in methods:
        if method != "minmax":
            bins = LEVELS if method == "entropy" else BINS
            histograms[method] = HistogramCollector(method, False, bins, LEVELS, PERCENTILE, "same")
    low: dict[str, Array] = {}
    high: dict[str, Array] = {}
    rows: dict[str, int] = {}
    first: dict[str, float] = {}
    batch_size = samples_a_run(graph)
    batches = samples.batches(batch_size)
    session = ort.open_with_taps(graph, tensors)
    for number, (arrays, count) in enumerate(run_samples(session, samples, batch_size, tensors)):
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
    ranges: dict[Method, dict[str, tuple[float, float]]] = {}
    for method, collector in histograms.items():
        with contextlib.redirect_stdout(io.StringIO()):
            spans = collector.compute_collection_result()
        ranges[method] = {name: (float(data[0]), float(data[1])) for name, data in spans.items()}
    ranges["minmax"] = {n: (float(low[n].min()), float(high[n].max())) for n in tensors}
    result: dict[str, ObservedRange] = {}
    for name in tensors:
        # Every range holds zero.
        spans = {m: (min(every[name][0], 0.0), max(every[name][1], 0.0)) for m, every in ranges.items()}
        result[name] = ObservedRange(spans, low[name], high[name], rows[name])
    return result


def _collect(histograms: Mapping[Method, Any], arrays: Mapping[str, Array]) -> None:
    for collector in histograms.values():
        with contextlib.redirect_stdout(io.StringIO()):
            collector.collect({name: [array] for name, array in arrays.items()})


def _peak(low: Array, high: Array) -> float:
    return float(max(np.abs(low).max(), np.abs(high).max()))


def run_samples(
    session: ort.OrtRuntime, samples: Samples, size: int, names: Sequence[str]
) -> Iterator[tuple[dict[str, Array], int]]:
    """Yield the named tensors of each run of up to `size` samples, and its number of samples.

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
    """Return the named tensors of one run, including inputs of the graph."""
    outputs = session.run(batch)
    return {name: np.asarray(outputs[name] if name in outputs else batch[name]) for name in names}


def samples_a_run(graph: onnx.ModelProto) -> int:
    """Return the samples of a run: one if the first axis of an input is not a free batch."""
    first = [tuple(dim.dim_param for dim in i.type.tensor_type.shape.dim[:1]) for i in graph.graph.input]
    return IMAGES_PER_RUN if all(dims == FIRST for dims in first) else 1
