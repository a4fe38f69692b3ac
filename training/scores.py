"""Scores: how good relevance is, in numpy, and what it is without one of the scorers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgekit.model.spec import Array
from edgekit_arrcoc.datasets import covered_share

Floats = npt.NDArray[np.float64]

POSITIVE = 0.5
"""Share of a patch that must be covered for the patch to count as positive in the AUROC; the rest are negative."""

TOP = 32
"""Patches that arr-coc-tiny and arr-coc-base realize."""

SCORERS = ("information", "salience", "query-content")


@dataclass(frozen=True)
class Scores:
    """Means over queries.

    Attributes:
        auroc: Area under the ROC curve over the patches of an image, positives covered by at least a half; mean over
            the queries that have positives and negatives.
        pooled: The same over all patches of all queries at once.
        pointing: Share of queries whose most relevant patch shows something of the answer.
        coverage: Truth in the 32 most relevant patches over the most that 32 patches can hold.
        error: Mean absolute difference between relevance and truth.
        count: Queries.
    """

    auroc: float
    pooled: float
    pointing: float
    coverage: float
    error: float
    count: int


def measure(relevance: Array, truth: Array) -> Scores:
    """Measure relevance [n, N] against truth [n, N], both in [0, 1]."""
    positive = truth >= POSITIVE
    pairs = zip(relevance, positive, strict=True)
    per_image = [auroc(row, mask) for row, mask in pairs if mask.any() and not mask.all()]
    best = np.take_along_axis(truth, relevance.argmax(1)[:, None], 1)[:, 0]
    top = np.argsort(-relevance, 1, kind="stable")[:, :TOP]
    return Scores(
        auroc=float(np.mean(per_image)) if per_image else float("nan"),
        pooled=auroc(relevance.reshape(-1), positive.reshape(-1)),
        pointing=float((best > 0).mean()),
        coverage=float(covered_share(top, truth).mean()),
        error=float(np.abs(relevance - truth).mean()),
        count=len(relevance),
    )


def auroc(scores: Array, positive: Array) -> float:
    """Area under the ROC curve of scores [m] for positives [m] bool: ties count half (Mann and Whitney, 1947).

    NaN where all are positive or none is.
    """
    if positive.all() or not positive.any():
        return float("nan")
    negatives = np.sort(scores[~positive])
    positives = scores[positive]
    below = np.searchsorted(negatives, positives, "left") + np.searchsorted(negatives, positives, "right")
    return float(below.sum() / (2.0 * len(positives) * len(negatives)))


def ablate(maps: Array, weights: Array, scorer: int, how: str) -> Floats:
    """Relevance without one scorer.

    Args:
        maps: [n, 3, N] in [0, 1].
        weights: [n, 3], which sum to 1.
        scorer: Which of the three.
        how: "weight" takes its weight away and scales the others up; "map" replaces its map by the map's mean.

    Returns:
        [n, N].
    """
    maps, weights = maps.astype(np.float64), weights.astype(np.float64)
    if how == "map":
        maps[:, scorer] = maps[:, scorer].mean(1, keepdims=True)
    else:
        weights[:, scorer] = 0.0
        weights /= np.maximum(weights.sum(1, keepdims=True), 1e-12)
    mixed: Floats = (weights[:, :, None] * maps).sum(1)
    return mixed
