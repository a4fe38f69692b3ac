"""Answers with known gaps between their scores, and the verdict on them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgekit.artifact.fact import Code
from edgekit.artifact.result import EvaluationResult
from edgekit.judge.limits import FP32, Tolerance
from edgekit.judge.metrics import Comparison, compare
from edgekit.judge.verdict import judge
from edgekit.model.spec import Array
from tests import answers
from tests.answers import OUTPUTS

N, K, IMAGES = 40, 8, 5
# Steps of 0.02 keep ranks and counts clear of ties; the offset keeps counts clear of rounding boundaries.
GRID = (0.1 + 0.02 * np.array([np.random.default_rng(i).permutation(N) for i in range(IMAGES)])).astype(np.float32)


def answer(scores: Array) -> dict[str, Array]:
    return answers.answer(scores, K, 6) | {"relevance": scores.astype(np.float32)}


def at(change: Mapping[str, Array] | None = None, reference: Array = GRID) -> Comparison:
    """The reference against itself but for some outputs."""
    made = answer(reference)
    return compare(OUTPUTS, made, made | dict(change or {}), [f"image {i}" for i in range(len(reference))])


def scored(moved: Array) -> Comparison:
    """Against an answer that follows from moved scores in every output."""
    return at(answer(moved))


def moved(by: float, image: int = 3, patch: int = 17, reference: Array = GRID) -> Array:
    scores = reference.astype(np.float64)
    scores[image, patch] += by
    return scores.astype(np.float32)


def on(found: Comparison, tolerance: Tolerance = FP32, noise: float = 0.0) -> EvaluationResult:
    return judge(tolerance, {"relevance": noise}, evaluation=[found])


def metrics(verdict: EvaluationResult) -> set[str]:
    beyond = (Code.LIMIT_EXCEEDED, Code.ROWS_BEYOND)
    return {reason.metric for reason in verdict.reasons if reason.code in beyond}
