"""Mixing of rows: how much of the other inputs of a run is in an artifact's answer to one of them.

The artifact answers each row alone and in runs with others. Let a be its answers alone and d what the others change,
both in units of each value's spread over the rows. Least squares fits d, in all rows and values at once, by the row's
own answer and its neighbours':

    d[row] = gain a[row] + sum over k of weight[k] a[row + k],  k = 1 ... size - 1, within the run

A weight is the share of that neighbour in the answer; their sum is the share of all others together. INT8 whose scales
follow from the whole run answers a little differently beside others, but not towards them. Each weight counts less
CHANCE of its standard errors, which let the values of a run depend on each other (White's, by run).
"""

from __future__ import annotations

import numpy as np

from edgekit.judge.deviation import CHANCE, LEAST, STILL
from edgekit.model.spec import Array

# Values of a row that are compared, evenly chosen, and least runs for a standard error.
VALUES, LEAST_RUNS = 512, 4


def share_of_others(alone: Array, beside: Array, size: int) -> float:
    """Return the largest share of one neighbour, or of all others together, in answers within runs; NaN if not finite.

    Args:
        alone: Answers to rows alone, [n, ...].
        beside: Answers to the same rows in runs, [n, ...].
        size: Rows of a run; n is a multiple of it.
    """
    rows = len(alone)
    runs = rows // size
    if runs < LEAST_RUNS or alone.shape != beside.shape:
        return 0.0
    alone, beside = (a.reshape(rows, -1) for a in (alone, beside))
    some: Array = np.unique(np.linspace(0, alone.shape[1] - 1, VALUES).round().astype(int))
    alone, beside = (a[:, some].astype(np.float64) for a in (alone, beside))
    if not (np.isfinite(alone).all() and np.isfinite(beside).all()):
        return float("nan")
    spread = alone.std(0)
    moving = spread > max(STILL * float(spread.max(initial=0.0)), LEAST)
    shape = (runs, size, int(moving.sum()))
    own, change = ((a[:, moving] / spread[moving]).reshape(shape) for a in (alone - alone.mean(0), beside - alone))
    towards = np.stack([np.roll(own, -k, 1) for k in range(size)], -1).reshape(runs, -1, size)
    inverse = np.linalg.pinv(np.einsum("rvi,rvj->ij", towards, towards))
    pulled = np.einsum("rvi,rv->ri", towards, change.reshape(runs, -1))
    weights = inverse @ pulled.sum(0)
    left = change.reshape(runs, -1) - towards @ weights
    scores = np.einsum("rvi,rv->ri", towards, left) @ inverse
    sums, weights = np.column_stack([scores[:, 1:], scores[:, 1:].sum(1)]), weights[1:]
    errors = np.sqrt((sums * sums).sum(0) * runs / (runs - 1))
    return float(np.maximum(np.abs(np.append(weights, weights.sum())) - CHANCE * errors, 0.0).max(initial=0.0))
