"""Which part of a model's inputs is one row, wherever the batch stands among their axes.

Inputs lie in two forms. As one run takes them, rows stand along the axis that is declared as the batch, and an input
without it (a table, a number) is the same for all rows. Stacked, the inputs of several runs lie one after the other
along the first axis, [runs * first size, ...]; numbers without axes are then [runs].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from edgekit.model.spec import SUM, Array, Input

BATCH = "batch"
Shape = tuple[int | str, ...]
"""As an input declares it; a string names an axis."""
FIRST: Shape = (BATCH,)
"""What is said of an input whose first axis is the batch."""


def unusual_shapes(inputs: Iterable[Input]) -> dict[str, Shape]:
    """The shapes of the inputs whose first axis is neither the batch nor of size 1, by name."""
    return {i.name: i.shape for i in inputs if i.shape[:1] not in (FIRST, (1,)) or BATCH in i.shape[1:]}


def stacked(runs: Iterable[Array]) -> Array:
    """An input of several runs in one array."""
    return np.concatenate([np.atleast_1d(array) for array in runs])


def run_of(array: Array, number: int, runs: int, shape: Shape) -> Array:
    """One run's input out of a stacked array of so many runs."""
    if not shape:
        return np.asarray(array[number])
    step = len(array) // max(runs, 1)
    return array[number * step : (number + 1) * step]


def runs_of(array: Array, numbers: Sequence[int], runs: int) -> Array:
    """Some of the runs of a stacked array, stacked."""
    step = len(array) // max(runs, 1)
    return array[[number * step + k for number in numbers for k in range(step)]]


def rows_in(array: Array, rows: Sequence[int], shape: Shape) -> Array:
    """Some rows of an input as one run takes it."""
    return np.take(array, list(rows), shape.index(BATCH)) if BATCH in shape else array


def one_run(arrays: Sequence[Array], shape: Shape) -> Array:
    """An input of several runs of a row each as one run takes it: without a batch it is the first one's."""
    return np.concatenate(arrays, shape.index(BATCH)) if BATCH in shape else arrays[0]


def usual_sizes(inputs: Mapping[str, Array], shapes: Mapping[str, Shape], runs: int) -> dict[str, int]:
    """Sizes of the named axes beside the batch in stacked inputs.

    Args:
        inputs: By name, stacked.
        shapes: Declared shapes by name.
        runs: How many runs there are.
    """
    return {
        axis: size
        for name, shape in shapes.items()
        if name in inputs
        for axis, size in zip(shape, run_of(inputs[name], 0, runs, shape).shape, strict=False)
        if isinstance(axis, str) and axis != BATCH and SUM not in axis
    }
