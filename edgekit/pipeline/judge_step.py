"""Verdict on an artifact's outputs in one place, compared with the reference batch by batch."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.artifact.fact import EVALUATION, IN_BATCHES, Code, Fact, fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import CANDIDATE, EvaluationResult, Evidence, Ratio, Timing
from edgekit.evaluate import timing
from edgekit.evaluate.engine import AGAIN, RUN
from edgekit.evaluate.timing import Latency
from edgekit.hosts.run_record import Measurement
from edgekit.judge import budget, metrics, verdict
from edgekit.judge.detections import SCORE
from edgekit.judge.deviation import ALL_ROWS, Spreads, spreads
from edgekit.judge.limits import CLASSES, DETECTIONS, MIXED, Kind, Tolerance, kind_at_sizes, kind_of, size_of
from edgekit.judge.metrics import BASES, Comparison, RowValues
from edgekit.judge.mixing import share_of_others
from edgekit.judge.rows import PLACES, SUFFIX, row_names, sample_places, sketch
from edgekit.judge.verdict import score_tolerance, too_noisy
from edgekit.model.evaluation_set import BATCH, evaluation_of
from edgekit.model.shapes import size_text
from edgekit.model.spec import Array, EvaluationSet, ModelSpec, Output
from edgekit.pipeline.unlike import UnlikeRows, split
from edgekit.pipeline.worker import FILE, PYTORCH
from edgekit.reference.batches import (
    BETWEEN,
    REAL,
    RESIZED,
    STRESS,
    WORDS,
    Batch,
    applicable_batches,
)
from edgekit.reference.in_batches import EvaluationInBatches, evaluation_in_batches
from edgekit.reference.store import Reference, arrays_of
from edgekit.reference.vocabulary import read_vocabulary
from edgekit.target import Place

# An input of integers with fewer values is asked with all of them; one with more indexes no table.
FEWEST_VALUES, LARGEST_TABLE = 4, 1 << 20
# Least detections whose least score shows a threshold.
ENOUGH_DETECTIONS = 100
# An error in units of the spread: the output for another input has 1.4.
USELESS = 1.4
# The first of these modes that was timed gives the artifact's latency; captured graphs are shown in addition.
WAYS = ("bound buffers", RUN)
GRAPHS = ("CUDA graph", "captured graph")
# Times the median of eager PyTorch when the reference was recorded. Its threads wait for each other: beside other load
# on 2 cores, 0.3 ms became 72 ms in every run.
STALLED = 5.0


@dataclass(frozen=True)
class Units:
    """Units of differences: the limit on scores, and the spread of each channel of every output."""

    scores: float
    scales: Spreads


def judge_answers(
    spec: ModelSpec,
    reference: Reference,
    manifest: Manifest,
    place: Place,
    answers: Mapping[str, Array],
    measured: Measurement,
    task_limits: bool = False,
) -> EvaluationResult:
    """Compare an artifact's outputs with the reference and judge them, with evidence and timings.

    Args:
        spec: The model.
        reference: Its reference.
        manifest: The artifact.
        place: Where it ran.
        answers: Arrays by `<batch>/<output>`.
        measured: Timings and other records of the engine.
        task_limits: True if the user's own inputs and metric suffice, whatever made inputs show.
    """
    spec, tolerance = with_thresholds(spec, reference), place.tolerance_of(manifest)
    whole = _rows_in_batches(reference, manifest, sample_of(manifest, place), answers, measured)
    result = _compare_and_judge(spec, reference, manifest, place, tolerance, answers, measured, task_limits, whole)
    if manifest.export.self_quantized and any(r.code is Code.REAL_INPUTS_NEEDED for r in result.reasons):
        # Without real inputs, an exact copy of the model's INT8 still holds the target's own stricter limits.
        own_limits = place.tolerance
        strict = _compare_and_judge(spec, reference, manifest, place, own_limits, answers, measured, task_limits, whole)
        result = strict if strict.status == "verified" else result
    times = {n: Latency(measured.devices.get(n, measured.device), t) for n, t in measured.milliseconds.items()}
    own = next((way for way in WAYS if way in times), RUN)
    ratios = tuple(
        beside_recorded(budget.ratio(times, name, own), times, own, reference)
        for name in times
        if name not in (*WAYS, *GRAPHS)
    )
    evidence = _evidence(spec, reference, manifest, place, measured, whole)
    evidence = evidence.model_copy(update={"not_asked": (*evidence.not_asked, *inputs_beyond_data(result))})
    if any(note.code is Code.MADE_INPUTS for note in result.notes):
        evidence = evidence.model_copy(update={"limits": "task"})
    texts = [*measured.notes, "; ".join(f"{name}: {value}" for name, value in measured.facts.items())]
    texts += [f"latency is that of {own}"] if own != RUN else []
    texts += [str(measured.start_up)] if measured.start_up is not None else []
    notes = (
        *(fact(Code.ASKED, text=line) for line in evidence.lines),
        *result.notes,
        *(fact(Code.TEXT, text=text) for text in texts if text),
        *_speeds(ratios),
    )
    return result.model_copy(
        update={
            "place": place.name,
            "device": measured.device,
            "variant": place.variant,
            "notes": notes,
            "timings": {
                CANDIDATE if n == own else n: Timing.model_validate(
                    {**t.as_record(), "warm_ups": timing.WARM_UP, "load": measured.load}
                )
                for n, t in times.items()
            },
            "ratios": ratios,
            "evidence": evidence,
            "start_up": measured.start_up,
        }
    )


def beside_recorded(ratio: Ratio, times: Mapping[str, Latency], own: str, reference: Reference) -> Ratio:
    """Return a ratio to eager PyTorch; if that has stalled, the interval also holds its speed in the reference."""
    recorded = [speed.p50 for speed in reference.info.speeds if speed.mode == "eager"]
    if ratio.baseline != PYTORCH or reference.info.host.kind != "cpu" or not recorded:
        return ratio
    if times[PYTORCH].percentile(50) < STALLED * recorded[0]:
        return ratio
    return ratio.model_copy(update={"low": min(ratio.low, recorded[0] / times[own].percentile(50))})


def _speeds(ratios: Sequence[Ratio]) -> Iterator[Fact]:
    """Yield what is slower than its source, or of unknown speed; eager PyTorch is shown but not held against it."""
    slower = [(Code.SLOWER, ratio) for ratio in ratios if ratio.slower and ratio.baseline not in (PYTORCH, FILE)]
    unknown = [(Code.SPEED_UNKNOWN, ratio) for ratio in ratios if ratio.noisy and not ratio.slower]
    for code, ratio in (*slower, *unknown):
        yield fact(code, baseline=ratio.baseline, ratio=ratio.value, low=ratio.low, high=ratio.high)


def _compare_and_judge(
    spec: ModelSpec,
    reference: Reference,
    manifest: Manifest,
    place: Place,
    tolerance: Tolerance,
    answers: Mapping[str, Array],
    measured: Measurement,
    task_limits: bool,
    whole: EvaluationInBatches | None,
) -> EvaluationResult:
    real = evaluation_of(spec)
    images = sample_of(manifest, place)
    batches = applicable_batches(reference.batches, manifest, images)
    if noisy := too_noisy(
        tolerance,
        spec.outputs,
        reference.noise,
        spreads(spec.outputs, _known_errors(reference), {}, tolerance.rounding),
    ):
        return verdict.not_verified(noisy)
    units = units_of(spec, reference, tolerance)
    unlike = UnlikeRows(reference, real, tolerance)
    comparisons = _compare_batches(spec, reference, batches, answers, measured, units, real, unlike)
    if whole is not None:
        comparisons[IN_BATCHES] = _compare_in_batches(
            spec.outputs, reference, whole, answers, measured, units, real, tolerance
        )
    evaluation, metric_name = comparisons.get(EVALUATION, []), real.metric_name if real is not None else "task metric"
    result = verdict.judge(
        tolerance,
        reference.noise,
        evaluation=evaluation,
        stress=comparisons.get(STRESS, []),
        more={
            b: batch_comparisons
            for b, batch_comparisons in comparisons.items()
            if b not in (EVALUATION, STRESS, *(b.name for b in batches if b.sizes))
        },
        grid=[(batch.sizes, comparison) for batch in batches if batch.sizes for comparison in comparisons[batch.name]],
        metric_name=metric_name,
    )
    notes = [] if images is None else [sample_fact(manifest, batches, reference)]
    if unlike.lost:
        text = (
            f"{len(unlike.lost)} changed inputs on which the model itself loses more than half of its '{metric_name}' "
        )
        notes.append(fact(Code.TEXT, text=f"{text}decide no more than random ones"))
    if _noise_without_fp64(reference):
        notes.append(fact(Code.NOISE_WITHOUT_FP64))
    # A failed check of the exporter rejects the artifact, whatever its outputs.
    if manifest.export.failures:
        own = tuple(fact(Code.EXPORTER_FAILURE, text=text) for text in manifest.export.failures)
        result = result.model_copy(update={"status": "rejected", "reasons": (*own, *result.reasons)})
    elif result.status != "verified":
        repeated = {n: each for n, each in comparisons.items() if n == IN_BATCHES or n.endswith(f" {AGAIN}")}
        alone = verdict.judge(tolerance, reference.noise, evaluation=evaluation, more=repeated, metric_name=metric_name)
        result = verdict.weigh_own_inputs(result, alone, tolerance, evaluation, metric_name, task_limits)
    # If the reference has an evaluation set of another size, the evidence says so.
    own_set = any(batch.name == EVALUATION for batch in reference.batches)
    relevant_notes = [note for note in result.notes if note.code != Code.NO_EVALUATION_SET or not own_set]
    return result.model_copy(update={"notes": (*notes, *relevant_notes)})


def _compare_batches(
    spec: ModelSpec,
    reference: Reference,
    batches: Sequence[Batch],
    answers: Mapping[str, Array],
    measured: Measurement,
    units: Units,
    real: EvaluationSet | None,
    unlike: UnlikeRows,
) -> dict[str, list[Comparison]]:
    """Return the comparisons of each batch by name, and of rows whose second output differed."""
    resized = any(batch.name.startswith(f"{RESIZED}-") for batch in reference.batches)
    # Without real inputs, the sizes between are filled with random values too.
    shaped = (f"{RESIZED}-", f"{BETWEEN}-") if resized else ()
    comparisons: dict[str, list[Comparison]] = {}
    for batch in (*batches, *_again(batches, measured.again, measured.failures)):
        if batch.name in measured.failures:
            comparisons[batch.name] = [_failed(batch, measured)]
            continue
        task, values = real if batch.name == EVALUATION else None, reference.info.evaluation.values
        kind = kind_at_sizes(spec, batch.sizes) if batch.name.startswith(shaped) else None
        there, rows = arrays_of(batch.name, answers), unlike.of(batch)
        comparisons[batch.name] = (
            _apart(spec.outputs, batch, there, units, rows, kind)
            if rows
            else _compare_as(kind, spec.outputs, batch, there, units, task, values)
        )
        if kind is not None:
            size = size_of(spec, batch.sizes)
            comparisons[batch.name] = [replace(each, size=size) for each in comparisons[batch.name]]
    return comparisons


def _apart(
    outputs: tuple[Output, ...],
    batch: Batch,
    answers: Mapping[str, Array],
    units: Units,
    rows: Sequence[int],
    kind: Kind | None,
) -> list[Comparison]:
    """Return the comparison of some rows as of random inputs, and of the others; channels and places need them all."""
    (unlike, theirs), *others = reversed(split(batch, answers, rows))
    found = _compare_as("random", outputs, unlike, theirs, units)
    if not others:
        return found
    found += [each for part, its in others for each in _compare_as(kind, outputs, part, its, units)]
    of_rows = [replace(each, measures=tuple(m for m in each.measures if not m.names), sums={}) for each in found]
    whole = _compare_as(kind, outputs, batch, answers, units)
    of_all = [replace(each, measures=tuple(m for m in each.measures if m.names), faults=()) for each in whole]
    return [*of_rows, *of_all]


def _compare_as(
    kind: Kind | None,
    outputs: tuple[Output, ...],
    batch: Batch,
    answers: Mapping[str, Array],
    units: Units,
    task: EvaluationSet | None = None,
    values: Sequence[float] = (),
) -> list[Comparison]:
    """Compare a batch as one of inputs of a kind; None if its name says it."""
    return [replace(each, kind=kind) for each in compare_batch(outputs, batch, answers, units, task, values)]


def _compare_in_batches(
    outputs: tuple[Output, ...],
    reference: Reference,
    whole: EvaluationInBatches,
    answers: Mapping[str, Array],
    measured: Measurement,
    units: Units,
    real: EvaluationSet | None,
    tolerance: Tolerance,
) -> list[Comparison]:
    """Return the comparison of the evaluation set in batches: the model answers each row as it does alone."""
    batch, task = whole.batch(), None
    values: Sequence[float] = reference.info.evaluation.values
    if IN_BATCHES in measured.failures:
        return [_failed(batch, measured)]
    if real is not None and real.truth is not None and values:
        task, values = replace(real, truth=np.asarray(real.truth)[whole.order]), [values[row] for row in whole.order]
    alone, beside = arrays_of(EVALUATION, answers), arrays_of(IN_BATCHES, answers)
    limited = [
        o for o in outputs if tolerance.limit(MIXED, o.role) is not None and o.name in alone.keys() & beside.keys()
    ]
    mixing = [
        _mixing(o, alone[o.name][whole.order], beside[o.name], whole.size)
        for o in limited
        if beside[o.name].dtype.kind == "f"
    ]
    shares = Comparison(batch.names, tuple(mixing))
    return [*compare_batch(outputs, batch, beside, units, task, values), shares]


def _mixing(output: Output, alone: Array, beside: Array, size: int) -> RowValues:
    """Return the share of other rows of a run in an output, compared with the artifact's own answers alone."""
    return RowValues(
        output=output.name,
        role=output.role,
        of=output.name if output.role == "scores" else "",
        metric=MIXED,
        values=np.full(1, share_of_others(alone, beside, size)),
        places=np.full(1, -1),
        peak=1.0,
        names=(ALL_ROWS,),
    )


def _failed(batch: Batch, measured: Measurement) -> Comparison:
    return metrics.failed_comparison(batch.names, fact(Code.NO_ANSWER, error_text=measured.failures[batch.name]))


def units_of(spec: ModelSpec, reference: Reference, tolerance: Tolerance) -> Units:
    """Return the units of a model's outputs, from its reference outputs for real inputs."""
    scored = [reference.noise.get(o.name, 0.0) for o in spec.outputs if o.role == "scores"]
    limit = score_tolerance(tolerance, max(scored, default=0.0))
    known = _known_errors(reference)
    return Units(limit, spreads(spec.outputs, known, reference.noise, tolerance.rounding, reference.channel_noise))


def with_thresholds(spec: ModelSpec, reference: Reference) -> ModelSpec:
    """Return the model with the threshold of its detections if none is declared: the least score of real inputs.

    A detection whose score is within rounding of a threshold within the graph comes or goes as a whole.
    """
    real = [batch.outputs for batch in reference.batches if batch.name in REAL]

    def known(output: Output) -> Output:
        if output.role not in DETECTIONS or output.threshold is not None:
            return output
        scores = [array[..., SCORE].ravel() for outputs in real if (array := outputs.get(output.name)) is not None]
        found = np.concatenate([each[each > 0] for each in scores]) if scores else np.zeros(0)
        return replace(output, threshold=float(found.min())) if len(found) >= ENOUGH_DETECTIONS else output

    return replace(spec, outputs=tuple(map(known, spec.outputs)))


def _known_errors(reference: Reference) -> list[Mapping[str, Array]]:
    return [b.outputs for b in reference.batches if b.name in REAL] or [reference.batches[0].outputs]


def _again(
    batches: Sequence[Batch], again: Mapping[str, Sequence[int]], failures: Mapping[str, str]
) -> Iterator[Batch]:
    """Yield the rows whose second run differed or failed."""
    for batch in batches:
        name = f"{batch.name} {AGAIN}"
        if name in again or name in failures:
            yield batch.select_rows(again.get(name, range(len(batch.names))), name)


def _rows_in_batches(
    reference: Reference,
    manifest: Manifest,
    images: int | None,
    answers: Mapping[str, Array],
    measured: Measurement,
) -> EvaluationInBatches | None:
    """Return the evaluation set in batches if the artifact ran it so: a pack for another host does not."""
    if IN_BATCHES not in measured.failures and not any(name.startswith(f"{IN_BATCHES}/") for name in answers):
        return None
    batches = applicable_batches(reference.batches, manifest, images)
    return evaluation_in_batches(batches, manifest, reference.info.row_axes, images)


def sample_of(manifest: Manifest, place: Place) -> int | None:
    """Return the number of evaluation images judged in a place; None for all."""
    return None if manifest.export.options.get("images") == "all" or not place.sample else place.sample


def sample_fact(manifest: Manifest, judged_batches: tuple[Batch, ...], reference: Reference) -> Fact:
    """Return a fact with the judged and the available numbers of images and shapes."""

    def count(batches: tuple[Batch, ...]) -> tuple[int, int]:
        images = sum(len(b.names) for b in batches if b.name == EVALUATION)
        return images, sum(bool(b.sizes) for b in batches)

    images, shapes = count(judged_batches)
    all_images, all_shapes = count(applicable_batches(reference.batches, manifest))
    counts = {"images": images, "all_images": all_images, "shapes": shapes, "all_shapes": all_shapes}
    return fact(Code.SAMPLED, target=manifest.target, **counts)


def _noise_without_fp64(reference: Reference) -> bool:
    noise = reference.info.raw.get("noise", {})
    return bool(noise) and not any("cpu64" in pair for by_pair in noise.values() for pair in by_pair)


def compare_batch(
    outputs: tuple[Output, ...],
    batch: Batch,
    answers: Mapping[str, Array],
    units: Units,
    task: EvaluationSet | None,
    values: Sequence[float] = (),
) -> list[Comparison]:
    """Compare all rows (large outputs by sketches), then whole rows and places, then outputs that are one thing.

    `values` are the reference's of the task metric, by row: the metric never gets sketches.
    """
    rows = len(batch.names)
    single = {n for n, a in batch.outputs.items() if n + SUFFIX not in batch.outputs and len(a) != rows}
    many = tuple(o for o in outputs if o.name not in single)
    large = {o.name for o in outputs if o.name + SUFFIX in batch.outputs}
    comparisons = []
    if many or not outputs:
        some_outputs, expected, actual = _use_sketches(many, batch, answers, large)
        whole_task = task if task is None or not large else _of_whole_outputs(task, expected, answers, large, values)
        comparisons.append(_compare_one(some_outputs, expected, actual, units, whole_task))
    if large:
        first = min((len(batch.outputs[name]) for name in large if name in batch.outputs), default=0)
    if large and first:
        comparison = _compare_one(many, batch.first(first), {n: a[:first] for n, a in answers.items()}, units, None)
        # The other outputs of these rows were compared above, and a row counts once.
        comparisons.append(replace(comparison, measures=tuple(m for m in comparison.measures if m.output in large)))
    if places := tuple(o for o in many if o.name + PLACES in batch.outputs and o.name in answers):
        expected_places = {o.name: batch.outputs[o.name + PLACES] for o in places}
        some = {o.name: sample_places(o, answers[o.name]) for o in places}
        outputs_with_places = tuple(replace(o, axes=("batch", "places", "channels")) for o in places)
        comparisons.append(
            _compare_one(outputs_with_places, replace(batch, outputs=expected_places), some, units, None)
        )
    if single:
        whole = replace(batch, names=row_names(batch.names, 1))
        comparisons.append(_compare_one(tuple(o for o in outputs if o.name in single), whole, answers, units, None))
    return comparisons


def _use_sketches(
    outputs: tuple[Output, ...], batch: Batch, answers: Mapping[str, Array], large: Collection[str]
) -> tuple[tuple[Output, ...], Batch, Mapping[str, Array]]:
    """Return outputs, batch and answers with sketches in place of large outputs."""
    if not large:
        return outputs, batch, answers
    # A sketch holds statistics: a role whose values mean classes or ranks does not apply to it.
    roles = tuple(
        o if o.name not in large else replace(o, dtype="float32", role=o.role if o.role in BASES else "tensor")
        for o in outputs
    )
    expected = {n: batch.outputs[n + SUFFIX] if n in large else a for n, a in batch.outputs.items()}
    actual = {n: sketch(a) if n in large and a.ndim > 1 else a for n, a in answers.items()}
    return roles, replace(batch, outputs=expected), actual


def _of_whole_outputs(
    task: EvaluationSet, expected: Batch, answers: Mapping[str, Array], large: Collection[str], values: Sequence[float]
) -> EvaluationSet:
    """Return the evaluation set with a metric of whole outputs; the reference's values were recorded."""

    def metric(outputs: Mapping[str, Array], truth: Array) -> Array:
        if outputs is expected.outputs:
            return np.array(values[: len(expected.names)])
        whole: Array = own({**outputs, **{name: answers[name] for name in large}}, truth)
        return whole

    own: Any = task.metric
    return replace(task, metric=metric)


def _compare_one(
    outputs: tuple[Output, ...],
    batch: Batch,
    answers: Mapping[str, Array],
    units: Units,
    task: EvaluationSet | None,
) -> Comparison:
    rows = len(batch.names)
    return metrics.compare(
        outputs,
        batch.outputs,
        answers,
        batch.names,
        score_tolerance=units.scores,
        scales=units.scales,
        metric=task.metric if task is not None else None,
        truth=task.truth[:rows] if task is not None and task.truth is not None else None,
    )


def _evidence(
    spec: ModelSpec,
    reference: Reference,
    manifest: Manifest,
    place: Place,
    measured: Measurement,
    whole: EvaluationInBatches | None,
) -> Evidence:
    """Return the evidence: the reference's inputs that the artifact takes and the place has time for."""
    images = sample_of(manifest, place)
    batches = [b for b in applicable_batches(reference.batches, manifest, images) if b.name not in measured.failures]
    every = sum(len(b.names) for b in reference.batches if b.name == EVALUATION)
    open_together = manifest.open_sizes and not manifest.sizes
    inputs: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for batch in batches:
        inputs[_kind(batch)] += len(batch.names)
        answered[batch.answered_by or reference.device] += len(batch.names)
        if batch.name == EVALUATION and whole is not None:
            inputs[IN_BATCHES] = len(whole.order)
    shapes = {tuple(sorted(batch.sizes.items())): _kind(batch) for batch in reversed(batches) if batch.sizes}
    return Evidence(
        inputs=dict(inputs),
        shapes=len(shapes),
        between=sum(kind == BETWEEN for kind in shapes.values()),
        combinations=math.prod(map(len, manifest.open_sizes.values())) if shapes and open_together else 0,
        repeated=measured.repeated,
        place=measured.device,
        settings=dict(place.settings),
        answered_by=dict(answered),
        not_asked=(
            *_gaps(spec, reference, manifest, batches, images, measured, whole is not None),
            *_values_not_asked(spec, batches),
        ),
        sampled_from=every if inputs[EVALUATION] < every else 0,
    )


def inputs_beyond_data(result: EvaluationResult) -> Iterator[str]:
    """Yield the outputs of INT8 whose error for random inputs is that of another input's output, or larger."""
    worst: dict[str, float] = {}
    for measure in result.measures:
        random = kind_of(measure.batch) == "random"
        if random and measure.metric == "gross error" and measure.value is not None and measure.limit is not None:
            worst[measure.output] = max(worst.get(measure.output, 0.0), measure.value)
    for output, error in worst.items():
        if error > USELESS:
            yield f"inputs unlike yours, for which '{output}' can be useless (an error of {error:.1f} spreads or more)"


def _values_not_asked(spec: ModelSpec, batches: Sequence[Batch]) -> Iterator[str]:
    """Yield ids and words never asked, classes that were never the answer, and places of a list that stay empty."""
    for output in (o for o in spec.outputs if o.role in CLASSES):
        answers = [array for b in batches if (array := b.outputs.get(output.name)) is not None and array.ndim == 2]
        found = {int(label) for array in answers for label in array.argmax(1)}
        classes = max((array.shape[1] for array in answers), default=0)
        if len(found) < classes:
            yield f"{classes - len(found)} of {classes} classes of '{output.name}', never the answer"
    for output in (o for o in spec.outputs if o.role in DETECTIONS):
        lists = [array for b in batches if (array := b.outputs.get(output.name)) is not None and array.ndim == 3]
        most = max((int((array[..., SCORE] > 0).sum(1).max(initial=0)) for array in lists), default=0)
        places = max((array.shape[1] for array in lists), default=0)
        if most < places:
            yield f"the last {places - most} of {places} places of '{output.name}', which no input fills"
    for i in spec.inputs:
        arrays = [batch.inputs[i.name] for batch in batches if i.name in batch.inputs]
        values = int(i.high - i.low) + 1
        if np.dtype(i.dtype).kind in "iu" and i.kind == "tensor" and FEWEST_VALUES <= values <= LARGEST_TABLE:
            count = len(np.unique(np.concatenate([array.ravel() for array in arrays]))) if arrays else 0
            if count < values:
                yield f"{values - count} of {values} values of '{i.name}'"
        path = spec.files.get("vocabulary.json")
        if i.kind == "query" and path is not None:
            # Batches of shapes take their queries from the evaluation set, or draw vectors.
            rows = (row for b in batches if b.name in (EVALUATION, WORDS) for row in b.inputs[i.name] if row.ndim == 1)
            left, words = _words_not_asked(
                Path(path).parent, tuple({row.tobytes(): row.dtype.str for row in rows}.items())
            )
            if left:
                yield f"{left} of {words} words of '{i.name}'"


@functools.cache
def _words_not_asked(folder: Path, queries: tuple[tuple[bytes, str], ...]) -> tuple[int, int]:
    """Return how many words of a model's vocabulary occur in none of its queries, and how many it has."""
    vocabulary = read_vocabulary(folder)
    if vocabulary is None:
        return 0, 0
    left = vocabulary.words_without(np.frombuffer(query, dtype) for query, dtype in queries)
    return len(left), len(vocabulary.words)


def _kind(batch: Batch) -> str:
    return batch.name.partition("-")[0] if batch.sizes else batch.name


def _gaps(
    spec: ModelSpec,
    reference: Reference,
    manifest: Manifest,
    batches: list[Batch],
    images: int | None,
    measured: Measurement,
    ran_in_batches: bool,
) -> list[str]:
    whole = applicable_batches(reference.batches, manifest)
    skipped = sum(len(b.names) for b in whole) - sum(len(b.names) for b in batches)
    sentences = [f"{skipped} of {sum(len(b.names) for b in whole)} rows"] if images is not None else []
    fixed = [name for name, axis in manifest.axes.items() if not axis.dynamic]
    sentences += [f"other sizes of {', '.join(fixed)}, which are fixed"] if fixed else []
    for name, sizes in manifest.open_sizes.items() if not manifest.sizes else ():
        unasked = len(set(sizes) - {b.sizes.get(name, manifest.axes[name].default) for b in batches})
        sentences += [f"{unasked} of {len(sizes)} sizes of {name}"] if unasked else []
    several = ", ".join(map(size_text, manifest.sizes)) if len(manifest.sizes) > 1 else ""
    sentences += [f"sizes other than {several}, which it refuses"] if several else []
    lost = [b.name for b in reference.batches if not b.sizes and b.name not in {batch.name for batch in whole}]
    sentences += [f"{', '.join(lost)} inputs, which have another size"] if lost else []
    real = evaluation_of(spec)
    if real is not None and real.metric is not None and real.truth is not None:
        unmeasured = ["at other sizes"] if set(manifest.open_sizes) - {BATCH} else []
        unmeasured += ["in batches"] if BATCH in manifest.open_sizes and not ran_in_batches else []
        sentences += [f"the task metric {' and '.join(unmeasured)}"] if unmeasured else []
    unanswered = sum(len(rows) for rows in reference.info.raw.get("unanswered", {}).values())
    sentences += [f"{unanswered} inputs that the model itself answers with NaN or Inf"] if unanswered else []
    sentences += [] if measured.timed_answers else ["answers of timed runs"]
    return sentences
