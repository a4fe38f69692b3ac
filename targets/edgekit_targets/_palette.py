"""Weights as indices into a table of values, which Apple's tools call palettisation."""

from __future__ import annotations

import numpy as np

BINS = 4096
PASSES = 100
"""Of Lloyd's algorithm at the most: in one dimension it hardly moves after so many."""


def table(weights: np.ndarray, size: int) -> np.ndarray:
    """The values that stand for weights with the least squared error, as Lloyd's algorithm finds them.

    It starts where Panter and Dite's approximation puts the values: with a density of the cube root of the weights' own
    (Proceedings of the IRE, 1951).

    Args:
        weights: float32, any shape.
        size: Values in the table.

    Returns:
        float32, shape (size,), in rising order.
    """
    ordered = np.sort(weights.astype(np.float64), axis=None)
    counts, edges = np.histogram(ordered, BINS)
    share = np.concatenate([[0.0], np.cumsum(np.cbrt(counts))])
    values = np.interp((np.arange(size) + 0.5) / size * share[-1], share, edges)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    for _ in range(PASSES):
        bounds = np.concatenate([[0], np.searchsorted(ordered, _halfway(values)), [len(ordered)]])
        held = np.diff(bounds)
        means = np.where(held > 0, np.diff(sums[bounds]) / np.maximum(held, 1), values)
        if np.array_equal(means, values):
            break
        values = np.sort(means)
    return np.asarray(values, np.float32)


def indices(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of the nearest value for each weight: uint8, in the weights' shape.

    Args:
        weights: float32, any shape.
        values: A table, in rising order, of 256 values at the most.
    """
    return np.searchsorted(_halfway(values), weights).astype(np.uint8)


def _halfway(values: np.ndarray) -> np.ndarray:
    return np.asarray((values[1:] + values[:-1]) / 2)
