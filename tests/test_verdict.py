from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from edgekit.compare import SPREAD_FLOOR, Comparison, compare, failed
from edgekit.result import Measure
from edgekit.spec import Array, Output
from edgekit.tolerance import FP16, FP32, FP32_DELEGATED, INT8, Tolerance
from edgekit.verdict import (
    GROSS_UNEXPLAINED,
    NOISE_CAP,
    NOISE_MULTIPLE,
    OWN_TOLERANCE,
    STRANGE_UNEXPLAINED,
    Verdict,
    judge,
    not_verified,
    score_tolerance,
)

OUTPUTS = (
    Output("relevance", role="scores"),
    Output("budgets", role="counts", of="relevance", dtype="int64", low=64, high=400),
    Output("indices", role="ranking", of="relevance", dtype="int64"),
    Output("tokens", role="features", of="indices"),
    Output("logits"),
)
N, K, IMAGES = 40, 8, 5
# Steps of 0.02 keep ranks and counts clear of ties; the offset keeps counts clear of rounding boundaries.
GRID = (0.1 + 0.02 * np.array([np.random.default_rng(i).permutation(N) for i in range(IMAGES)])).astype(np.float32)


def answer(scores: Array) -> dict[str, Array]:
    order = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    drawn = np.random.default_rng(0).standard_normal((len(scores), scores.shape[1], 6)).astype(np.float32)
    return {
        "relevance": scores.astype(np.float32),
        "budgets": np.floor(64 + 336 * np.clip(scores.astype(np.float64), 0, 1) + 0.5).astype(np.int64),
        "indices": order,
        "tokens": np.take_along_axis(drawn, order[:, :, None], axis=1),
        "logits": drawn[:, 0],
    }


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


def on(found: Comparison, tolerance: Tolerance = FP32, noise: float = 0.0) -> Verdict:
    return judge(tolerance, {"relevance": noise}, evaluation=[found])


def metrics(verdict: Verdict) -> set[str]:
    return {reason.check.metric for reason in verdict.reasons if reason.check is not None}


@pytest.mark.parametrize("tolerance", [FP32, FP32_DELEGATED, FP16, INT8])
def test_the_reference_itself_is_verified(tolerance: Tolerance) -> None:
    verdict = on(at(), tolerance)
    assert verdict.status == "verified", verdict.reasons
    assert not verdict.reasons


@pytest.mark.parametrize(("tolerance", "limit"), [(FP32, 1e-4), (FP32_DELEGATED, 1e-3), (FP16, 1e-2)])
def test_a_score_may_move_by_the_limit_and_no_more(tolerance: Tolerance, limit: float) -> None:
    assert on(scored(moved(0.98 * limit)), tolerance).status == "verified"
    verdict = on(scored(moved(1.02 * limit)), tolerance)
    assert verdict.status == "rejected"
    reason = next(r for r in verdict.reasons if r.check and r.check.metric == "max abs")
    assert reason.check is not None
    assert (reason.check.image, reason.check.patch, reason.check.limit) == ("image 3", 17, limit)
    assert str(reason) == f"max abs of 'relevance' is {1.02 * limit:.4g} in image 'image 3', patch 17, " + (
        f"must be at most {limit:.4g}"
    )


def test_the_reason_names_value_and_direction() -> None:
    verdict = on(scored(GRID[:, ::-1].copy()), INT8)
    assert any(str(r).startswith("spearman of 'relevance' is") and "at least 0.99" in str(r) for r in verdict.reasons)


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
        assert any(f"{gap:.2g} apart" in note and "'photo', patch 8" in note for note in verdict.notes)
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
    assert any("forgiven counts that differ" in note for note in verdict.notes)


def test_outputs_must_belong_together_where_ranks_need_not_be_exact() -> None:
    counts = np.minimum(answer(GRID)["budgets"] + 2, 400)
    assert metrics(on(at({"budgets": counts}), INT8)) == {"own count excess"}
    assert OWN_TOLERANCE < 1 / 336


@pytest.mark.parametrize("tolerance", [FP32, FP16, INT8])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("output", ["relevance", "tokens", "logits"])
def test_what_is_not_finite_is_rejected_wherever_it_is(tolerance: Tolerance, bad: float, output: str) -> None:
    made = answer(GRID)
    made[output] = made[output].copy()
    made[output][0, 0] = bad
    names = [f"image {i}" for i in range(IMAGES)]
    for broken in (compare(OUTPUTS, answer(GRID), made, names), compare(OUTPUTS, made, made, names)):
        for verdict in (
            on(broken, tolerance),
            judge(tolerance, {}, evaluation=[at()], stress=[broken]),
            judge(tolerance, {}, evaluation=[at()], grid=[({"batch": 5}, broken)]),
        ):
            assert verdict.status == "rejected"
            assert any("not finite" in str(reason) for reason in verdict.reasons)


def test_a_number_that_is_not_a_number_fails_every_limit() -> None:
    found = at()
    measures = tuple(replace(m, values=np.where(np.arange(IMAGES) == 2, np.nan, m.values)) for m in found.measures)
    verdict = on(replace(found, measures=measures), FP16)
    assert verdict.status == "rejected"
    limited = {check.metric for check in verdict.checks if check.limit is not None}
    assert metrics(verdict) == limited
    assert all(reason.check and reason.check.image == "image 2" for reason in verdict.reasons)


# The noise of the reference.


@pytest.mark.parametrize(
    ("noise", "by", "status"),
    [
        (0.0, 1.1e-4, "rejected"),
        (1e-5, 1.1e-4, "rejected"),
        (5e-5, 1.9e-4, "verified"),
        (5e-5, 2.1e-4, "rejected"),
        (1e-3, 0.9e-3, "verified"),
        (1e-3, 1.1e-3, "not verified here"),
        (1e-3, 4.1e-3, "rejected"),
    ],
)
def test_the_limit_is_the_larger_of_table_and_noise_up_to_a_cap(noise: float, by: float, status: str) -> None:
    verdict = on(scored(moved(by)), FP32, noise)
    assert verdict.status == status, verdict.reasons
    limit = score_tolerance(FP32, noise)
    assert limit == max(1e-4, min(NOISE_MULTIPLE * noise, NOISE_CAP * 1e-4))
    check = next(c for c in verdict.checks if c.metric == "max abs" and c.output == "relevance")
    assert (check.limit, check.table, check.noise) == (limit, 1e-4, NOISE_MULTIPLE * noise)
    assert any("times the reference's own noise" in note for note in verdict.notes) == (limit > 1e-4)


@pytest.mark.parametrize("noise", [np.nan, np.inf, -1.0])
def test_a_noise_that_is_no_number_excuses_nothing(noise: float) -> None:
    assert on(scored(moved(0.5)), FP32, noise).status == "not verified here"


def test_the_noise_of_features_counts_as_a_share_of_their_peak() -> None:
    made = answer(GRID)
    logits = made["logits"].copy()
    logits[0, 0] += 3e-4 * np.abs(made["logits"]).max()
    found = at({"logits": logits})
    assert metrics(judge(FP32, {}, evaluation=[found])) == {"relative"}
    assert judge(FP32, {"logits": 3e-4}, evaluation=[found]).status == "verified"


def test_ranks_within_the_noise_are_not_asked_for() -> None:
    rising = (0.5 + np.linspace(0, 0.02, N))[None].astype(np.float32)
    noisy = (rising + np.random.default_rng(0).uniform(-8e-3, 8e-3, rising.shape)).astype(np.float32)
    found = compare(OUTPUTS[:1], answer(rising), answer(noisy), ["photo"])
    assert metrics(on(found, INT8, 1e-4)) == {"spearman"}
    assert on(found, INT8, 3e-3).status == "verified"


# Ranks only (INT8).


def test_scores_that_only_rank_alike_are_rejected() -> None:
    spread = float(GRID.std(axis=1).max())
    for share, expected in ((0.98 * GROSS_UNEXPLAINED, set[str]()), (1.02 * GROSS_UNEXPLAINED, {"unexplained"})):
        shifted = GRID + np.float32(share * spread)
        assert metrics(on(scored(shifted), INT8)) == expected
    assert metrics(on(scored(GRID * np.float32(0.5)), INT8)) == {"unexplained"}


def test_one_destroyed_row_of_features_is_rejected_at_every_precision() -> None:
    tokens = answer(GRID)["tokens"].copy()
    tokens[4, 3] = tokens[4, 4]
    for tolerance in (FP32, FP16, INT8):
        verdict = on(at({"tokens": tokens}), tolerance)
        assert verdict.status == "rejected"
        assert all(reason.check and reason.check.image == "image 4" for reason in verdict.reasons)


def test_ranks_only_needs_real_inputs() -> None:
    verdict = judge(INT8, {}, stress=[at()])
    assert verdict.status == "not verified here"
    assert "no evaluation set" in str(verdict.reasons[0])


# Stress inputs and shapes.


def test_stress_is_judged_absolutely_where_ranks_are_exact() -> None:
    flat = np.full((1, N), 0.5, np.float32)
    wobbly = compare(OUTPUTS[:1], answer(flat), answer(flat + 0.9e-4 * np.random.default_rng(0).random(N)), ["grey"])
    assert judge(FP32, {}, evaluation=[at()], stress=[wobbly]).status == "verified"
    verdict = judge(FP32, {}, evaluation=[at()], stress=[scored(moved(2e-4))])
    assert verdict.status == "rejected"
    assert "stress" in str(verdict.reasons[0])


@pytest.mark.parametrize(("share", "failing"), [(0.98, set()), (1.02, {"unexplained"})])
def test_stress_where_ranks_are_not_exact_is_only_kept_from_gross_errors(share: float, failing: set[str]) -> None:
    reference = np.full((1, N), 0.2, np.float32)
    other = reference + np.float32(share * STRANGE_UNEXPLAINED * SPREAD_FLOOR) * (-1) ** np.arange(N)
    found = compare(OUTPUTS[:3], answer(reference), answer(other), ["grey"])
    assert metrics(judge(INT8, {}, evaluation=[at()], stress=[found])) == failing
    assert metrics(judge(INT8, {}, evaluation=[at()], grid=[({"batch": 1}, found)])) == failing


def test_other_patches_of_a_flat_map_leave_no_features_to_compare() -> None:
    flat = np.full((1, N), 0.5, np.float32)
    reference, candidate = answer(flat), answer(flat)
    candidate["indices"] = np.arange(N - K, N)[None]
    found = compare(OUTPUTS, reference, candidate, ["grey"])
    assert judge(FP32, {}, evaluation=[at()], stress=[found]).status == "verified"
    assert metrics(on(found)) == {"relative"}


def test_only_shapes_that_hold_are_proved() -> None:
    sizes: list[Mapping[str, int]] = [{"batch": 1}, {"batch": 2}, {"batch": 3}]
    grid = list(zip(sizes, [at(), failed(["row 0"], "ORT: Got invalid dimensions"), scored(moved(0.1))], strict=True))
    verdict = judge(FP32, {}, evaluation=[at()], grid=grid)
    assert verdict.status == "rejected"
    assert verdict.proved == ({"batch": 1},)
    assert str(verdict.reasons[0]) == "ORT: Got invalid dimensions (batch 2)"
    assert any("batch 3" in str(reason) for reason in verdict.reasons)
    assert judge(FP32, {}, evaluation=[at()], grid=grid[:1]).proved == ({"batch": 1},)


# Several comparisons, the task, and nothing at all.


def test_one_bad_image_among_many_comparisons_is_found() -> None:
    verdict = judge(FP32, {}, evaluation=[at(), scored(moved(0.01, image=1)), at()])
    assert verdict.status == "rejected"
    assert {r.check.image for r in verdict.reasons if r.check} == {"image 1"}
    assert judge(FP32, {}, evaluation=[at(), failed(["a"], "it crashed"), at()]).status == "rejected"


@pytest.mark.parametrize(
    ("drops", "tolerance", "status"),
    [
        ([0.001] * IMAGES, FP32, "verified"),
        ([0.003] * IMAGES, FP32, "rejected"),
        ([-0.5, 0.1, 0.1, 0.1, 0.1], FP32, "verified"),
        ([0.0, 0.0, 0.0, 0.0, 0.02], INT8, "verified"),
        ([-0.1, 0.0, 0.0, 0.0, 0.06], INT8, "rejected"),
        ([0.006] * IMAGES, INT8, "rejected"),
    ],
)
def test_the_task_metric_may_drop_only_so_far(drops: list[float], tolerance: Tolerance, status: str) -> None:
    task = (np.full(IMAGES, 0.9), 0.9 - np.array(drops))
    verdict = judge(tolerance, {}, evaluation=[replace(at(), task=task)], metric_name="coverage@8")
    assert verdict.status == status
    if status == "rejected":
        assert all("coverage@8 drop" in str(reason) for reason in verdict.reasons)


def test_what_was_not_asked_is_said() -> None:
    assert any("no task metric" in note for note in on(at()).notes)
    assert any("no evaluation set" in note for note in judge(FP32, {}, stress=[at()]).notes)


def test_nothing_compared_is_not_verified() -> None:
    assert judge(FP32, {}).status == "not verified here"
    assert on(compare((), {}, {}, ["a"])).status == "not verified here"
    assert on(compare(OUTPUTS, {}, {}, [])).status == "rejected"
    assert str(not_verified("needs a Mac").reasons[0]) == "needs a Mac"
    assert str(on(at(), Tolerance(name="lax")).reasons[0]) == "no limit of 'lax' applies to output 'relevance'"


def test_every_number_fits_the_result_file() -> None:
    for check in on(at(), FP16).checks:
        names = Measure.model_fields.keys()
        Measure.model_validate({name: getattr(check, name) for name in names})
