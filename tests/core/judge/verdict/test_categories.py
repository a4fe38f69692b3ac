"""In INT8 the errors of a category's rows must not have one sign: that is another category's answer."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.judge.limits import BIAS, CATEGORIES, FP16, INT8, Tolerance
from edgekit.judge.metrics import compare
from edgekit.judge.verdict import judge
from edgekit.model.spec import Output

Outcome = tuple[str, set[str]]
OUTPUT = Output("y", role="logits")


def status_of(
    shift: float, scatter: float, tolerance: Tolerance = INT8, batch: str = CATEGORIES
) -> tuple[str, set[str]]:
    """Judge ten categories of eight rows, of which one is off: by a shift of one sign, or of signs in turn."""
    draw = np.random.default_rng(0)
    y = (6 * np.eye(5)[draw.integers(0, 5, 80)] + draw.normal(0, 1, (80, 5))).astype(np.float32)
    names = [f"row {n}, 'product' = {n // 8}" for n in range(80)]
    scales = {"y": y.std(0).astype(np.float64)}
    answer = y.copy()
    answer[8:16] += (shift + scatter * (-1.0) ** np.arange(8)[:, None]) * scales["y"] * [1, 0, 0, 0, 0]
    real = compare((OUTPUT,), {"y": y}, {"y": y}, names, scales=scales)
    made = compare((OUTPUT,), {"y": y}, {"y": answer}, names, scales=scales)
    verdict = judge(tolerance, {}, evaluation=[real], more={batch: [made]})
    assert all("'product' = 1" in reason.row for reason in verdict.reasons if reason.metric == BIAS)
    return verdict.status, {reason.metric for reason in verdict.reasons}


@pytest.mark.parametrize(
    ("shift", "scatter", "status", "metrics"),
    [(0.1, 0.0, "verified", set()), (0.0, 0.4, "verified", set()), (0.4, 0.0, "rejected", {BIAS})],
)
def test_a_category_whose_rows_err_alike_is_rejected(
    shift: float, scatter: float, status: str, metrics: set[str]
) -> None:
    assert status_of(shift, scatter) == (status, metrics)


def test_other_conditions_and_precisions_have_other_limits() -> None:
    assert status_of(0.4, 0.0, batch="changed") == ("verified", set())
    assert BIAS not in status_of(0.4, 0.0, FP16)[1]


def test_rows_of_categories_do_not_make_the_others_a_small_share() -> None:
    draw = np.random.default_rng(0)
    y = draw.normal(0, 1, (400, 5)).astype(np.float32)
    names = [f"row {n}" for n in range(400)]
    scales = {"y": np.ones(5)}
    output = Output("y")
    real = compare((output,), {"y": y}, {"y": y}, names, scales=scales)
    wrong = y[:40].copy()
    wrong[:4] += 0.9 * (-1.0) ** np.arange(4, dtype=np.float32)[:, None]
    changed = compare((output,), {"y": y[:40]}, {"y": wrong}, names[:40], scales=scales)
    verdict = judge(INT8, {}, evaluation=[real], more={"changed": [changed], CATEGORIES: [real]})
    assert verdict.status != "verified"
    assert {(reason.metric, reason.details["rows"]) for reason in verdict.reasons} == {("error", 40)}
