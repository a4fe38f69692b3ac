"""Where a model ships a threshold, a row in which something comes or goes is a wrong decision, in every precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgekit.artifact.result import EvaluationResult
from edgekit.judge.limits import FP16, FP32, FP32_DELEGATED, INT8, Tolerance
from edgekit.judge.metrics import compare
from edgekit.judge.verdict import judge
from edgekit.model.spec import Array
from tests.answers import OUTPUTS, answer

ROWS, PATCHES, THRESHOLD = 100, 40, 0.8
THERE = np.arange(ROWS) % 2 == 0


def maps() -> Array:
    """Half of the rows hold an answer: 0.85 at most, or 0.5."""
    draw = np.random.default_rng(5)
    scores = draw.permuted(np.tile(np.linspace(0.05, 0.45, PATCHES), (ROWS, 1)), axis=1)
    scores[np.arange(ROWS), scores.argmax(1)] = np.where(THERE, 0.85, 0.5)
    return scores.astype(np.float32)


def verdict_of(
    moved: Array, tolerance: Tolerance, threshold: float | None = THRESHOLD, reference: Array | None = None
) -> EvaluationResult:
    outputs = (replace(OUTPUTS[0], threshold=threshold), *OUTPUTS[1:])
    sides = (answer(maps() if reference is None else reference, 8, 6), answer(moved.astype(np.float32), 8, 6))
    found = compare(outputs, *sides, [f"image {row}" for row in range(ROWS)])
    return judge(tolerance, {}, evaluation=[found])


def reasons(verdict: EvaluationResult) -> set[str]:
    return {reason.metric for reason in verdict.reasons}


def test_scores_that_shrink_are_rejected_in_int8_for_what_they_decide() -> None:
    unsure = verdict_of(maps() * 0.93, INT8, threshold=None)
    assert unsure.status == "verified"  # by its ranks it is sound
    found = verdict_of(maps() * 0.93, INT8)
    assert (found.status, reasons(found)) == ("rejected", {"clear presence"})


@pytest.mark.parametrize(
    ("flips", "status"), [(0, "verified"), (1, "verified"), (3, "not verified here"), (10, "rejected")]
)
def test_one_row_of_a_hundred_may_flip_in_int8(flips: int, status: str) -> None:
    moved = maps()
    rows = np.flatnonzero(THERE)[:flips]
    moved[rows, moved[rows].argmax(1)] = 0.79
    assert verdict_of(moved, INT8).status == status


@pytest.mark.parametrize(("tolerance", "flips"), [(FP32, 1), (FP32_DELEGATED, 1), (FP16, 2)])
def test_flips_within_the_limit_on_scores_are_rejected_too(tolerance: Tolerance, flips: int) -> None:
    """In fp16 a single answer may be off, as of classes."""
    rows = np.arange(flips)
    scores = maps()
    tops = scores[rows].argmax(1)
    scores[rows, tops] = THRESHOLD + 2e-3  # further from the threshold than rounding

    def at(top: float) -> set[str]:
        moved = scores.copy()
        moved[rows, tops] = top
        return reasons(verdict_of(moved, tolerance, reference=scores))

    assert "presence" not in at(THRESHOLD + 1.9e-3)
    assert "presence" in at(THRESHOLD - 1e-3)


def test_a_score_at_the_threshold_itself_decides_nothing() -> None:
    scores = maps()
    top = scores[0].argmax()
    scores[0, top] = THRESHOLD + 1e-6
    moved = scores.copy()
    moved[0, top] = THRESHOLD - 1e-6
    assert verdict_of(moved, FP32, reference=scores).status == "verified"
