"""A model's evaluation set: its creation, the checks against the model's declaration, and its metric."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from edgekit import metrics
from edgekit.errors import EdgekitError, ModelError
from edgekit.model.image_input import pack_set
from edgekit.model.spec import SUM, Array, EvaluationSet, Input, ModelSpec

Made = TypeVar("Made")


def join_evaluation_sets(**sets: EvaluationSet) -> EvaluationSet:
    """Join evaluation sets: `joined(day=..., night=...)`; each input's name begins with its set's name.

    Every limit applies to each input, so an artifact that fails on one set cannot hide behind another. The worst input
    is named with its set. The metric's mean covers all sets.

    Raises:
        ModelError: If there are no sets, or they differ in inputs, metric, or the presence of truth or captions.
    """
    if not sets:
        raise ModelError("no evaluation set to join. Name each one: joined(day=..., night=...)")
    first, others = next(iter(sets.values())), list(sets.values())

    def kind(dataset: EvaluationSet) -> tuple[object, ...]:
        return dataset.metric is None, dataset.metric_name, dataset.truth is None, bool(dataset.captions)

    if odd := next((name for name, dataset in sets.items() if kind(dataset) != kind(first)), None):
        raise ModelError(f"the evaluation set '{odd}' differs from the first in its metric, truth or captions")
    if odd := next((name for name, dataset in sets.items() if set(dataset.inputs) != set(first.inputs)), None):
        raise ModelError(f"the evaluation set '{odd}' has other inputs than the first: {', '.join(first.inputs)}")
    return replace(
        first,
        inputs={name: np.concatenate([other.inputs[name] for other in others]) for name in first.inputs},
        names=tuple(f"{name}: {row}" for name, dataset in sets.items() for row in dataset.names),
        captions=tuple(caption for other in others for caption in other.captions),
        truth=None if first.truth is None else np.concatenate([np.asarray(other.truth) for other in others]),
    )


def evaluation_of(spec: ModelSpec) -> EvaluationSet | None:
    """Return the evaluation set; None if the model declares none.

    Raises:
        ModelError: If its function raises, or returns something that the model does not take.
    """
    if spec.evaluation is None:
        return None
    evaluation = _call(f"the evaluation set of '{spec.name}'", spec.evaluation)
    if not isinstance(evaluation, EvaluationSet):
        raise ModelError(
            f"the evaluation set of '{spec.name}' is a {type(evaluation).__name__}, not an edgekit.model.EvaluationSet"
        )
    evaluation = pack_set(spec, evaluation)
    _check_inputs(spec, evaluation)
    _check_lengths(spec, evaluation)
    return evaluation


def calibration_of(spec: ModelSpec, count: int) -> EvaluationSet | None:
    """Return up to `count` calibration samples; None if the model declares none.

    Of a set, or of a function without parameters, the first `count` samples are taken.

    Raises:
        ModelError: If it is neither a function nor a set, raises, or returns something else.
    """
    calibration: object = spec.calibration
    if calibration is None:
        return None
    what = f"the calibration set of '{spec.name}'"
    samples: object = calibration
    if callable(calibration):
        samples = _call(what, partial(calibration, count) if _takes_a_number(calibration) else calibration)
    if not isinstance(samples, EvaluationSet):
        raise ModelError(
            f"{what} is a {type(samples).__name__}. Give an edgekit.model.EvaluationSet, or a function that "
            "takes a number of samples and returns one"
        )
    samples = pack_set(spec, samples)
    if len(samples.names) <= count:
        return samples
    return rows_of(replace(samples, truth=None), range(count))


def _takes_a_number(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(0)
    except TypeError:
        return False
    # A built-in function may have no signature.
    except ValueError:
        return True
    return True


def rows_of(every: EvaluationSet, rows: Sequence[int]) -> EvaluationSet:
    """Return some rows of a set."""
    runs = len(every.names)
    return replace(
        every,
        inputs={name: runs_of(np.asarray(array), rows, runs) for name, array in every.inputs.items()},
        names=tuple(every.names[row] for row in rows),
        captions=tuple(every.captions[row] for row in rows if row < len(every.captions)),
        truth=None if every.truth is None else every.truth[list(rows)],
    )


def metric_values(evaluation: EvaluationSet, outputs: Mapping[str, Array]) -> Array | None:
    """Return the task metric of each image, float64 [n]; None if the set has no metric or no truth.

    Args:
        evaluation: The set.
        outputs: Outputs by name, [n, ...].

    Raises:
        ModelError: If the metric raises, or does not return one finite number per image.
    """
    metric, truth = evaluation.metric, evaluation.truth
    if metric is None or truth is None:
        return None
    values = np.asarray(_call(f"the metric '{evaluation.metric_name}'", lambda: metric(outputs, truth)))
    if values.shape != (len(evaluation.names),) or values.dtype.kind not in "fiub":
        raise ModelError(
            f"the metric '{evaluation.metric_name}' returned {values.dtype} {list(values.shape)}. "
            f"It must return one number per image, [{len(evaluation.names)}]"
        )
    return values.astype(np.float64)


def _check_inputs(spec: ModelSpec, evaluation: EvaluationSet) -> None:
    declared = {i.name: i for i in spec.inputs}
    if wrong := sorted({*declared} ^ {*evaluation.inputs}):
        word = "lacks the" if wrong[0] in declared else "has an"
        raise ModelError(
            f"the evaluation set of '{spec.name}' {word} input '{wrong[0]}'. The model takes: {', '.join(declared)}"
        )
    for name, i in declared.items():
        array = np.asarray(evaluation.inputs[name])
        row = spec.shape(name, {BATCH: 1})
        rows = len(evaluation.names) * (row[0] if row else 1)
        expected = (rows, *row[1:]) if row else (rows,)
        if array.dtype != i.dtype or array.shape != expected:
            raise ModelError(
                f"the evaluation set of '{spec.name}' has {array.dtype} {list(array.shape)} for '{name}'. "
                f"{len(evaluation.names)} named images need {i.dtype} {list(expected)}"
            )
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise ModelError(f"the evaluation set of '{spec.name}' has a NaN in '{name}'. Remove or correct that row")
    if any(i.is_constrained for i in spec.inputs):
        _check_constraints(spec, evaluation)


def _check_constraints(spec: ModelSpec, evaluation: EvaluationSet) -> None:
    arrays, count = {i.name: np.asarray(evaluation.inputs[i.name]) for i in spec.inputs}, len(evaluation.names)
    for row, row_name in enumerate(evaluation.names):
        inputs = {i.name: run_of(arrays[i.name], row, count, i.shape) for i in spec.inputs}
        if wrong := spec.find_violation(inputs):
            raise ModelError(
                f"row '{row_name}' of the evaluation set of '{spec.name}' has values of '{wrong}' that are not as "
                "declared (sorted, at-most, below). Correct the row, or the declaration"
            )


def _check_lengths(spec: ModelSpec, evaluation: EvaluationSet) -> None:
    count = len(evaluation.names)
    if not count:
        raise ModelError(f"the evaluation set of '{spec.name}' is empty. Add one name and one row per image")
    if evaluation.captions and len(evaluation.captions) != count:
        raise ModelError(
            f"the evaluation set of '{spec.name}' has {len(evaluation.captions)} captions for {count} images. "
            "Use one per image, or none"
        )
    if evaluation.truth is not None and len(evaluation.truth) != count:
        raise ModelError(
            f"the evaluation set of '{spec.name}' has {len(evaluation.truth)} rows of truth for {count} images. "
            "Use one per image"
        )


def _call(what: str, function: Callable[[], Made]) -> Made:
    try:
        return function()
    except EdgekitError:
        raise
    except Exception as error:
        first = str(error).strip().splitlines()[:1]
        raise ModelError(f"{what} raised {type(error).__name__}: {' '.join(first)}") from error


BATCH = "batch"
Shape = tuple[int | str, ...]
"""Shape in an input's declaration; a string names an axis."""
FIRST: Shape = (BATCH,)
"""Beginning of the shape of an input whose first axis is the batch."""


def unusual_shapes(inputs: Iterable[Input]) -> dict[str, Shape]:
    """Return the shapes of the inputs whose first axis is neither the batch nor of size 1, by name."""
    return {i.name: i.shape for i in inputs if i.shape[:1] not in (FIRST, (1,)) or BATCH in i.shape[1:]}


def stack_runs(runs: Iterable[Array]) -> Array:
    """Return the runs of an input in one array."""
    return np.concatenate([np.atleast_1d(array) for array in runs])


def run_of(array: Array, number: int, runs: int, shape: Shape) -> Array:
    """Return one run's input from an array of stacked runs."""
    if not shape:
        return np.asarray(array[number])
    step = len(array) // max(runs, 1)
    return array[number * step : (number + 1) * step]


def runs_of(array: Array, numbers: Sequence[int], runs: int) -> Array:
    """Return some of the runs of a stacked array, stacked."""
    step = len(array) // max(runs, 1)
    return array[[number * step + k for number in numbers for k in range(step)]]


def rows_in(array: Array, rows: Sequence[int], shape: Shape) -> Array:
    """Return some rows of an input, as one run takes it."""
    return np.take(array, list(rows), shape.index(BATCH)) if BATCH in shape else array


def one_run(arrays: Sequence[Array], shape: Shape) -> Array:
    """Join an input of several one-row runs for one run; an input without a batch axis keeps the first."""
    return np.concatenate(arrays, shape.index(BATCH)) if BATCH in shape else arrays[0]


def usual_sizes(inputs: Mapping[str, Array], shapes: Mapping[str, Shape], runs: int) -> dict[str, int]:
    """Return the sizes of the named axes other than the batch in stacked inputs.

    Args:
        inputs: By name, stacked.
        shapes: Declared shapes by name.
        runs: Number of runs.
    """
    return {
        axis: size
        for name, shape in shapes.items()
        if name in inputs
        for axis, size in zip(shape, run_of(inputs[name], 0, runs, shape).shape, strict=False)
        if isinstance(axis, str) and axis != BATCH and SUM not in axis
    }


SETS = {"evaluation": "evaluation.safetensors", "calibration": "calibration.safetensors"}
COUNT = 300
"""Largest number of calibration samples that are used and stored: as many as a full search needs."""


def write_sets(spec: ModelSpec, folder: Path, which: Collection[str] = tuple(SETS)) -> dict[str, Any]:
    """Write a model's sets and return their entries in config.json."""
    sets = {
        "evaluation": evaluation_of(spec) if "evaluation" in which else None,
        "calibration": calibration_of(spec, COUNT) if "calibration" in which else None,
    }
    return {name: _write_set(samples, folder / SETS[name]) for name, samples in sets.items() if samples is not None}


def with_sets(spec: ModelSpec, folder: Path, described: Mapping[str, Any]) -> ModelSpec:
    """Return the model with the sets stored in its folder."""
    sets: dict[str, Any] = {name: _reader(folder / SETS[name], each) for name, each in described.items()}
    return replace(spec, **sets, brought=frozenset(sets))


def _write_set(samples: EvaluationSet, path: Path) -> dict[str, Any]:
    """Write a set's arrays and return its entry in config.json."""
    from safetensors.numpy import save_file

    arrays = {f"inputs/{name}": np.ascontiguousarray(array) for name, array in samples.inputs.items()}
    if samples.truth is not None:
        arrays["truth"] = np.ascontiguousarray(samples.truth)
    save_file(arrays, path)
    names, captions = list(samples.names), list(samples.captions)
    words = samples.metric.words if isinstance(samples.metric, metrics.ParsedMetric) else ""
    return {"names": names, "captions": captions, "metric_name": samples.metric_name, "metric": words}


def _reader(path: Path, described: Mapping[str, Any]) -> Callable[[], EvaluationSet]:
    def read() -> EvaluationSet:
        from safetensors.numpy import load_file

        arrays: dict[str, Array] = load_file(path)
        return EvaluationSet(
            inputs={n.removeprefix("inputs/"): a for n, a in arrays.items() if n.startswith("inputs/")},
            names=tuple(described["names"]),
            captions=tuple(described["captions"]),
            truth=arrays.get("truth"),
            metric=metrics.parse_metric(described["metric"]) if described["metric"] else None,
            metric_name=described["metric_name"],
        )

    return read
