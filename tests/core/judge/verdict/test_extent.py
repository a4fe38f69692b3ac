"""Ranks only, stress inputs, shapes, the task, and nothing at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from edgekit.artifact.fact import Code, fact
from edgekit.judge.limits import FP16, FP32, INT8, Tolerance
from edgekit.judge.metrics import SPREAD_FLOOR, Comparison, compare, failed_comparison
from edgekit.judge.verdict import judge, not_verified
from edgekit.model.spec import Array, Output
from tests.answers import OUTPUTS
from tests.core.judge.verdict.answers import GRID, IMAGES, K, N, answer, at, metrics, moved, on, scored

GROSS = INT8.on("real")["scores", "nrmse"].value
OTHERS = INT8.on("random")["scores", "nrmse in noise"].value
CHANGED_ERROR = INT8.on("changed")["logits", "error"].value


def test_scores_that_only_rank_alike_are_rejected() -> None:
    spread = float(GRID.std(axis=1).max())
    for share, expected in ((0.98 * GROSS, set[str]()), (1.02 * GROSS, {"nrmse"})):
        shifted = GRID + np.float32(share * spread)
        assert metrics(on(scored(shifted), INT8)) == expected
    assert metrics(on(scored(GRID * np.float32(0.5)), INT8)) == {"nrmse"}


def test_one_destroyed_row_of_features_is_rejected_at_every_precision() -> None:
    tokens = answer(GRID)["tokens"].copy()
    tokens[4, 3] = tokens[4, 4]
    for tolerance in (FP32, FP16, INT8):
        verdict = on(at({"tokens": tokens}), tolerance)
        assert verdict.status == "rejected"
        assert {reason.code for reason in verdict.reasons} <= {Code.LIMIT_EXCEEDED, Code.ROWS_BEYOND}
        assert {reason.row for reason in verdict.reasons if "channel" not in reason.metric} == {"image 4"}


def test_ranks_only_needs_real_inputs() -> None:
    verdict = judge(INT8, {}, stress=[at()])
    assert verdict.status == "not verified here"
    assert "`--data FOLDER`" in str(verdict.reasons[0])


def test_a_classifier_without_real_inputs_is_told_what_is_missing() -> None:
    """No limit of INT8 on its logits holds for random inputs, so that there is not one check."""
    outputs = (Output("logits", role="logits"),)
    logits = {"logits": np.random.default_rng(1).standard_normal((4, 10)).astype(np.float32)}
    verdict = judge(INT8, {}, stress=[compare(outputs, logits, logits, [f"random {row}" for row in range(4)])])
    assert [reason.code for reason in verdict.reasons] == [Code.REAL_INPUTS_NEEDED]
    assert verdict.status == "not verified here"


def test_stress_is_judged_absolutely_where_ranks_are_exact() -> None:
    flat = np.full((1, N), 0.5, np.float32)
    wobbly = compare(OUTPUTS[:1], answer(flat), answer(flat + 0.9e-4 * np.random.default_rng(0).random(N)), ["grey"])
    assert judge(FP32, {}, evaluation=[at()], stress=[wobbly]).status == "verified"
    verdict = judge(FP32, {}, evaluation=[at()], stress=[scored(moved(2e-4))])
    assert verdict.status == "rejected"
    assert "stress" in str(verdict.reasons[0])


@pytest.mark.parametrize(("share", "failing"), [(0.98, set()), (1.02, {"nrmse in noise"})])
def test_stress_where_ranks_are_not_exact_is_only_kept_from_gross_errors(share: float, failing: set[str]) -> None:
    reference = np.full((1, N), 0.2, np.float32)
    other = reference + np.float32(share * OTHERS * SPREAD_FLOOR) * (-1) ** np.arange(N)
    found = compare(OUTPUTS[:3], answer(reference), answer(other), ["grey"])
    assert metrics(judge(INT8, {}, evaluation=[at()], stress=[found])) == failing
    assert metrics(judge(INT8, {}, evaluation=[at()], grid=[({"batch": 1}, found)])) == failing


@pytest.mark.parametrize(("batch", "failing"), [("changed", {"cosine"}), ("levelled", {"cosine"}), ("stress", set())])
def test_a_low_map_in_reverse_on_changed_inputs_is_rejected_in_int8(batch: str, failing: set[str]) -> None:
    """It moves no score by as much as a real map spreads, so that the size of the error alone does not show it."""
    low = np.linspace(0, 0.8 * SPREAD_FLOOR, N, dtype=np.float32)[None]
    sound, reverse = (
        compare(OUTPUTS[:1], answer(low), answer(other), ["grey"]) for other in (low + 2e-3, low[:, ::-1])
    )
    assert not metrics(judge(INT8, {}, evaluation=[at()], more={batch: [sound]}))
    assert metrics(judge(INT8, {}, evaluation=[at()], more={batch: [reverse]})) == failing


@pytest.mark.parametrize(
    ("batch", "share", "failing"),
    [("changed", 0.98, set()), ("changed", 1.02, {"error"}), ("levelled", 1.02, {"error"}), ("stress", 1.02, set())],
)
def test_int8_answers_of_any_scale_are_kept_from_gross_errors_on_changed_inputs(
    batch: str, share: float, failing: set[str]
) -> None:
    outputs = (Output("logits", role="logits"),)
    logits = np.random.default_rng(1).standard_normal((4, 10)).astype(np.float32)
    names = [f"image {row}" for row in range(4)]
    moved = logits + np.float32(share * CHANGED_ERROR) * logits.std(0)

    def against(other: Array) -> Comparison:
        return compare(outputs, {"logits": logits}, {"logits": other.astype(np.float32)}, names)

    verdict = judge(INT8, {}, evaluation=[against(logits)], more={batch: [against(moved)]})
    assert metrics(verdict) == failing
    assert not metrics(judge(INT8, {}, evaluation=[against(logits)], stress=[against(logits + 2 * logits.std(0))]))


@pytest.mark.parametrize(("wrong", "failing"), [(0, set()), (1, set()), (4, {"flips", "lost boxes", "lost classes"})])
def test_one_flip_in_five_hundred_answers_is_what_fp16_may_have(wrong: int, failing: set[str]) -> None:
    """By all answers, of which a row holds many; and a single one may be off where there are few."""
    outputs = (Output("boxes", role="boxes"),)
    boxes = np.random.default_rng(1).random((4, 100, 5)).astype(np.float32)
    boxes[..., 2:4] += 2
    boxes[0, :4, 4] = 0.4999
    other = boxes.copy()
    other[0, :wrong, 4] = 0.5001
    names = [f"image {row}" for row in range(4)]
    found = compare(outputs, {"boxes": boxes}, {"boxes": other}, names)
    assert metrics(judge(FP16, {}, evaluation=[found])) == failing
    few = compare(outputs, {"boxes": boxes[:, :1]}, {"boxes": other[:, :1]}, names)
    assert not metrics(judge(FP16, {}, evaluation=[few]))


def test_other_patches_of_a_flat_map_leave_no_features_to_compare() -> None:
    flat = np.full((1, N), 0.5, np.float32)
    reference, candidate = answer(flat), answer(flat)
    candidate["indices"] = np.arange(N - K, N)[None]
    found = compare(OUTPUTS, reference, candidate, ["grey"])
    assert judge(FP32, {}, evaluation=[at()], stress=[found]).status == "verified"
    assert metrics(on(found)) == {"relative"}


def test_only_shapes_that_hold_are_proved() -> None:
    sizes: list[Mapping[str, int]] = [{"batch": 1}, {"batch": 2}, {"batch": 3}]
    crash = fact(Code.NO_ANSWER, error_text="ORT: Got invalid dimensions")
    grid = list(zip(sizes, [at(), failed_comparison(["row 0"], crash), scored(moved(0.1))], strict=True))
    verdict = judge(FP32, {}, evaluation=[at()], grid=grid)
    assert verdict.status == "rejected"
    assert verdict.proof == ({"batch": 1},)
    assert str(verdict.reasons[0]) == "the artifact returned no output: ORT: Got invalid dimensions (batch 2)"
    assert any("batch 3" in str(reason) for reason in verdict.reasons)
    assert judge(FP32, {}, evaluation=[at()], grid=grid[:1]).proof == ({"batch": 1},)


def test_one_bad_image_among_many_comparisons_is_found() -> None:
    verdict = judge(FP32, {}, evaluation=[at(), scored(moved(0.01, image=1)), at()])
    assert verdict.status == "rejected"
    assert {r.row for r in verdict.reasons if r.code is Code.LIMIT_EXCEEDED} == {"image 1"}
    assert (
        judge(
            FP32, {}, evaluation=[at(), failed_comparison(["a"], fact(Code.RUNTIME_FAILED, text="it crashed")), at()]
        ).status
        == "rejected"
    )


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
    assert any("no task metric" in str(note) for note in on(at()).notes)
    assert any("no evaluation set" in str(note) for note in judge(FP32, {}, stress=[at()]).notes)


def test_nothing_compared_is_not_verified() -> None:
    assert judge(FP32, {}).status == "not verified here"
    assert on(compare((), {}, {}, ["a"])).status == "not verified here"
    assert on(compare(OUTPUTS, {}, {}, [])).status == "rejected"
    assert str(not_verified(fact(Code.RUNTIME_MISSING, text="needs a Mac")).reasons[0]) == "needs a Mac"
    assert str(on(at(), Tolerance(name="lax")).reasons[0]) == "no limit of 'lax' applies to output 'relevance'"
