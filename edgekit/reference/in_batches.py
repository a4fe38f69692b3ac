"""The evaluation set in batches: real rows at default sizes, several in one run, judged by their own outputs.

Every other batch of several rows holds few real ones, in fixed places. Here every row of the evaluation set shares a
run with the row most like it and with unlike ones, so an artifact that mixes rows, or gives a row the answer of a like
one, is judged on all of them: by the limits and by the task metric. The model itself does not run again: if its rows do
not depend on each other, the outputs of rows run alone are the reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from edgekit.artifact.fact import IN_BATCHES
from edgekit.artifact.manifest import Manifest
from edgekit.evaluate.rows import Axes
from edgekit.judge.deviation import LEAST, peak_of
from edgekit.judge.rows import SUFFIX, sketch
from edgekit.model.evaluation_set import BATCH, Shape, one_run, run_of
from edgekit.model.spec import SUM, Array
from edgekit.reference.batches import EVALUATION, Batch

# Rows of one run, and most rows of all runs.
ROWS, MOST_ROWS = 8, 128
# Values of a row of each input that decide which rows are alike.
COMPARED = 1024
# Shares of an output's spread and of its peak: the most that an output differs by the rows beside it, if those have no
# influence.
INDEPENDENT, ROUNDING = 1e-2, 1e-4


class EvaluationInBatches:
    """The rows of an evaluation set in the order in which they share runs.

    Args:
        evaluation: The evaluation batch, with outputs.
        shapes: Declared shapes of its inputs.
        size: Rows of a run.
    """

    def __init__(self, evaluation: Batch, shapes: Mapping[str, Shape], size: int) -> None:
        self._evaluation, self._shapes, self.size = evaluation, shapes, size
        self.order = _arrange(evaluation, shapes, size)

    def runs(self) -> Iterator[dict[str, Array]]:
        """Yield the inputs of each run."""
        count = len(self._evaluation.names)
        for first in range(0, len(self.order), self.size):
            rows = self.order[first : first + self.size]
            yield {
                name: one_run([run_of(array, row, count, self._shapes[name]) for row in rows], self._shapes[name])
                for name, array in self._evaluation.inputs.items()
            }

    def batch(self) -> Batch:
        """Return the rows with the model's outputs; without inputs."""
        return replace(self._evaluation, inputs={}).select_rows(self.order, IN_BATCHES)


def evaluation_in_batches(
    batches: Sequence[Batch], manifest: Manifest, axes: Axes, images: int | None
) -> EvaluationInBatches | None:
    """Return the evaluation set in batches.

    None if the artifact's batch axis is fixed, an input or output has no batch axis, the model's rows depend on each
    other, there are too few rows, or a slow place has time for a sample only.

    Args:
        batches: The reference's batches that the artifact takes.
        manifest: The artifact's.
        axes: The batch axis of each output.
        images: Number of evaluation inputs judged; None for all.
    """
    evaluation = next((batch for batch in batches if batch.name == EVALUATION), None)
    axis = manifest.axes.get(BATCH)
    if evaluation is None or images is not None or axis is None or not axis.dynamic:
        return None
    size = min(ROWS, axis.maximum) // axis.multiple_of * axis.multiple_of
    shapes = {i.name: tuple(i.shape) for i in manifest.inputs if i.name in evaluation.inputs}
    has_batch = all(
        shape.count(BATCH) == 1 and not any(SUM in part for part in shape if isinstance(part, str))
        for shape in shapes.values()
    )
    count = len(evaluation.names)
    if size < max(2, axis.minimum) or count < size or len(shapes) < len(evaluation.inputs) or not has_batch:
        return None
    if any(place is None for place in axes.values()) or not _has_independent_rows(evaluation, batches, shapes):
        return None
    return EvaluationInBatches(evaluation, shapes, size)


def _has_independent_rows(evaluation: Batch, batches: Sequence[Batch], shapes: Mapping[str, Shape]) -> bool:
    """Return whether the model answers real rows within batches as it answers them alone, and was asked that."""
    compared = 0
    numbers = {name: number for number, name in enumerate(evaluation.names)}
    floats = [n for n, a in evaluation.outputs.items() if a.dtype.kind == "f" and n + SUFFIX not in evaluation.outputs]
    spreads = {name: float(evaluation.outputs[name].std()) for name in floats}
    for batch in (each for each in batches if each.rows_a_run > 1):
        for row, name in enumerate(batch.names):
            number = numbers.get(name.partition(": ")[2])
            if number is None or not _has_same_inputs(evaluation, number, batch, row, shapes):
                continue
            compared += 1
            for output in (n for n in floats if len(batch.outputs.get(n, ())) == len(batch.names)):
                alone, beside = evaluation.outputs[output][number], batch.outputs[output][row]
                allowed = max(INDEPENDENT * spreads[output], ROUNDING * peak_of(evaluation.outputs[output]))
                if alone.shape != beside.shape or np.abs(alone - beside).max(initial=0.0) > allowed:
                    return False
    return compared > 0


def _has_same_inputs(evaluation: Batch, number: int, batch: Batch, row: int, shapes: Mapping[str, Shape]) -> bool:
    """Return whether a row of a shape has the inputs of a row of the evaluation set."""
    return all(
        np.array_equal(
            run_of(evaluation.inputs[name], number, len(evaluation.names), shape),
            np.take(batch.inputs[name], [row], shape.index(BATCH)),
        )
        for name, shape in shapes.items()
    )


def _arrange(evaluation: Batch, shapes: Mapping[str, Shape], size: int) -> list[int]:
    """Return the order of the rows: pairs of the rows most alike, from all over the set, in whole runs."""
    count = len(evaluation.names)
    rows = (
        [round(k * (count - 1) / (MOST_ROWS - 1)) for k in range(MOST_ROWS)] if count > MOST_ROWS else [*range(count)]
    )
    features = sum(
        _features(np.stack([run_of(array, row, count, shapes[name]).ravel() for row in rows]))
        for name, array in evaluation.inputs.items()
    )
    distances = np.square(np.asarray(features)[:, None] - np.asarray(features)[None]).sum(2)
    np.fill_diagonal(distances, np.inf)
    order: list[int] = []
    for place in np.random.Generator(np.random.PCG64(count)).permutation(len(rows)):
        if np.isnan(distances[place, place]):
            continue
        like = int(np.nanargmin(distances[place]))
        pair = [int(place)] if like == place else [int(place), like]
        distances[pair], distances[:, pair] = np.nan, np.nan
        order += [rows[each] for each in pair]
    return order[: len(order) // size * size]


def _features(values: Array) -> Array:
    """Return projections of rows [n, values], in units of each value's spread: [n, 17]."""
    some = values[:, :: max(1, values.shape[1] // COMPARED)].astype(np.float64)
    # A constant value has a spread of rounding.
    least = np.maximum(ROUNDING * np.abs(some).max(0), LEAST)
    return np.asarray(sketch((some - some.mean(0)) / np.maximum(some.std(0), least)))
