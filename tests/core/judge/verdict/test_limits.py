"""Limits of each precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgekit.artifact.fact import Code
from edgekit.artifact.metric import plain
from edgekit.judge.limits import FP16, FP32, FP32_DELEGATED, INT8, Tolerance
from edgekit.judge.metrics import compare
from edgekit.judge.verdict import judge
from tests.answers import OUTPUTS
from tests.core.judge.verdict.answers import GRID, IMAGES, K, N, answer, at, metrics, moved, on, scored


@pytest.mark.parametrize("tolerance", [FP32, FP32_DELEGATED, FP16, INT8])
def test_the_reference_itself_is_verified(tolerance: Tolerance) -> None:
    verdict = on(at(), tolerance)
    assert verdict.status == "verified", verdict.reasons
    assert not verdict.reasons


@pytest.mark.parametrize(
    ("tolerance", "limit", "text", "limit_text"),
    [(FP32, 1e-4, "1.02e-4", "1e-4"), (FP32_DELEGATED, 1e-3, "0.00102", "0.001"), (FP16, 1e-2, "0.0102", "0.01")],
)
def test_a_score_may_move_by_the_limit_and_no_more(
    tolerance: Tolerance, limit: float, text: str, limit_text: str
) -> None:
    assert on(scored(moved(0.98 * limit)), tolerance).status == "verified"
    verdict = on(scored(moved(1.02 * limit)), tolerance)
    assert verdict.status == "rejected"
    reason = next(r for r in verdict.reasons if r.metric == "max abs")
    assert reason.code is Code.LIMIT_EXCEEDED
    assert (reason.row, reason.index, reason.limit) == ("image 3", 17, limit)
    assert str(reason) == f"max abs of 'relevance' is {text} in row 'image 3', index 17, " + (
        f"must be at most {limit_text}"
    )


def test_the_reason_names_value_and_direction() -> None:
    verdict = on(scored(GRID[:, ::-1].copy()), INT8)
    assert any(str(r).startswith("spearman of 'relevance' is") and "at least 0.96" in str(r) for r in verdict.reasons)


@pytest.mark.parametrize(("gap", "status"), [(1.7e-6, "verified"), (0.9e-4, "verified"), (1.1e-4, "rejected")])
def test_ties_at_the_boundary_of_the_top_are_forgiven_with_a_note(gap: float, status: str) -> None:
    reference = np.linspace(0.1, 0.9, N)[None, ::-1].copy()
    reference[0, K] = reference[0, K - 1] - gap
    made = answer(reference) | {"relevance": reference}
    order = np.arange(K)
    order[-1] = K
    candidate = answer(reference)
    candidate["indices"] = order[None]
    found = compare(OUTPUTS[:3], made, candidate, ["photo"], score_tolerance=1e-4)
    verdict = on(found)
    assert verdict.status == status
    if status == "verified":
        [note] = [note for note in verdict.notes if note.code is Code.TIES_AT_K]
        assert (note.output, note.row, note.index, note.limit) == ("indices", "photo", 8, 1e-4)
        assert note.value == pytest.approx(gap, rel=0.05)
        told = f"equal within {plain(note.value, 2)} (tolerance 1e-4)"
        assert str(note) == f"the top K of 'indices' differ only in places whose scores are {told}"
    else:
        assert "swap gap" in metrics(verdict)


def test_an_order_beyond_the_tolerance_is_rejected() -> None:
    made = answer(GRID)
    backwards = {"indices": made["indices"][:, ::-1].copy(), "tokens": made["tokens"][:, ::-1].copy()}
    assert "order gap" in metrics(on(at(backwards)))
    assert metrics(on(at(backwards), INT8)) == {"own gap"}


@pytest.mark.parametrize(("off", "status"), [(0, "verified"), (1, "rejected"), (-1, "rejected")])
def test_counts_are_equal_but_for_rounding_at_a_boundary(off: int, status: str) -> None:
    counts = answer(GRID)["budgets"].copy()
    counts[2, 5] += off
    assert on(at({"budgets": counts})).status == status


def test_rounding_at_a_boundary_is_noted() -> None:
    edge = GRID.copy()
    edge[1, 4] = (100.5 - 64) / 336
    counts = answer(edge)["budgets"]
    other = np.where(np.arange(N) == 4, np.where(counts == 101, 100, 101), counts) if counts[1, 4] > 99 else counts
    other = np.where(np.arange(IMAGES)[:, None] == 1, other, counts)
    verdict = on(at({"budgets": other}, edge))
    assert verdict.status == "verified", verdict.reasons
    [note] = [note for note in verdict.notes if note.code is Code.COUNTS_ROUNDED]
    assert (note.output, note.row, note.index) == ("budgets", "image 1", 4)
    assert str(note).startswith("counts in 'budgets' differ by rounding only (score error at most ")


def test_outputs_must_belong_together_where_ranks_need_not_be_exact() -> None:
    counts = np.minimum(answer(GRID)["budgets"] + 2, 400)
    assert metrics(on(at({"budgets": counts}), INT8)) == {"own count excess"}
    own = FP16.limit("own count excess", "counts")
    assert own is not None
    assert own < 1 / 336


@pytest.mark.parametrize("tolerance", [FP32, FP16, INT8])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("output", ["relevance", "tokens", "logits"])
def test_what_is_not_finite_is_rejected_wherever_it_is(tolerance: Tolerance, bad: float, output: str) -> None:
    made = answer(GRID)
    made[output] = made[output].copy()
    made[output][0, 0] = bad
    names = [f"image {i}" for i in range(IMAGES)]
    whole = answer(GRID)
    for reference, status in ((whole, "rejected"), (made, "not verified here")):  # a reference with NaN rejects nothing
        broken = compare(OUTPUTS, reference, made, names)
        for verdict in (
            on(broken, tolerance),
            judge(tolerance, {}, evaluation=[at()], stress=[broken]),
            judge(tolerance, {}, evaluation=[at()], grid=[({"batch": 5}, broken)]),
        ):
            assert verdict.status == status
            assert any("not finite" in str(reason) for reason in verdict.reasons)


def test_a_number_that_is_not_a_number_fails_every_limit() -> None:
    found = at()
    measures = tuple(
        replace(m, values=np.where(np.arange(len(m.values)) == min(2, len(m.values) - 1), np.nan, m.values))
        for m in found.measures
    )
    verdict = on(replace(found, measures=measures), FP16)
    assert verdict.status == "rejected"
    limited = {check.metric for check in verdict.measures if check.limit is not None}
    assert metrics(verdict) == limited
    assert {reason.code for reason in verdict.reasons} == {Code.LIMIT_EXCEEDED}
    assert {reason.row for reason in verdict.reasons} == {"image 2", "channel 2", "all inputs"}
