"""Outputs with their rows first: row i of a batch is `array[i]`.

An output without a batch axis is one thing for all rows of a run, and becomes a single row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Axes = Mapping[str, int | None]
"""Output -> its batch axis; None if it is one thing."""
Run = tuple[int, Mapping[str, Array]]
"""Rows of one run, and its outputs by name, as the runtime returned them."""


def rows_of(runs: Sequence[Run], axes: Axes) -> dict[str, Array]:
    """Return the outputs of some runs as one array each, rows first: [all rows, ...], or [runs, ...] if one thing.

    Raises:
        ValueError: If an output's shape differs between runs.
    """
    return {
        name: np.concatenate([_rows_first(answers[name], axes.get(name, 0)) for _, answers in runs])
        for name in runs[0][1]
    }


def _rows_first(array: Array, axis: int | None) -> Array:
    if axis is None or axis >= array.ndim:
        return array[None]
    return np.moveaxis(array, axis, 0)
