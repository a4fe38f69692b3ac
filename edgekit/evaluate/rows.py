"""Answers with their rows first: row i of a batch is `array[i]`.

An output that has no batch axis is one thing for all rows of a run, and becomes a single row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Axes = Mapping[str, int | None]
"""Output -> its batch axis; None where it is one thing."""
Run = tuple[int, Mapping[str, Array]]
"""Rows that one run answered, and its answers by output name, as the runtime gave them."""


def rows_of(runs: Sequence[Run], axes: Axes) -> dict[str, Array]:
    """The answers of some runs as one array an output, rows first: [all rows, ...], or [runs, ...] of one thing.

    Raises:
        ValueError: If two runs gave an output different shapes.
    """
    return {
        name: np.concatenate([_rows_first(answers[name], axes.get(name, 0)) for _, answers in runs])
        for name in runs[0][1]
    }


def _rows_first(array: Array, axis: int | None) -> Array:
    if axis is None or axis >= array.ndim:
        return array[None]
    return np.moveaxis(array, axis, 0)
