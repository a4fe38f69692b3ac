"""Detections are judged box by box: the order of equal scores is nothing, and every wrong box is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from edgekit.artifact.fact import Code
from edgekit.artifact.result import EvaluationResult
from edgekit.judge.detections import pair_detections
from edgekit.judge.limits import FP16, FP32, FP32_DELEGATED, INT8, TOLERANCES, Tolerance
from edgekit.judge.metrics import compare
from edgekit.judge.verdict import judge
from edgekit.model.spec import Array, Output

MOST, ROWS, FULL = 12, 24, 8
"""Room for detections, pictures, and detections of each picture but the last, whose list is full."""
OUTPUTS = (
    Output("detections", role="detections", axes=("batch", "detections", "channels"), threshold=0.3),
    Output("count", role="count", of="detections", dtype="int64"),
)
Answer = dict[str, Array]


def right(tied: bool = False) -> Answer:
    """Boxes far apart in a grid, of three classes, with scores of 0.5 to 0.95; of the last picture twelve."""
    draw = np.random.default_rng(4)
    rows = np.zeros((ROWS, MOST, 6), np.float32)
    for row in range(ROWS):
        number = MOST if row == ROWS - 1 else FULL
        corner = 40.0 * np.stack(np.divmod(draw.permutation(16)[:number], 4), 1) + draw.random((number, 2)) * 8
        scores = np.sort(0.5 + 0.45 * draw.random(number))[::-1]
        scores = np.full(number, 0.75) if tied else scores
        rows[row, :number] = np.column_stack(
            [corner, corner + 20 + 8 * draw.random((number, 2)), scores, draw.integers(0, 3, number)]
        )
    return counted(rows)


def counted(rows: Array) -> Answer:
    return {"detections": rows, "count": (rows[..., 4] > 0).sum(1)}


def verdict(
    made: Answer, tolerance: Tolerance = FP32, answer: Answer | None = None, real: bool = True
) -> EvaluationResult:
    found = compare(OUTPUTS, answer or right(), made, [f"picture {row}" for row in range(ROWS)])
    return judge(tolerance, {}, evaluation=[found]) if real else judge(tolerance, {}, stress=[found])


def changed(change: Callable[[Array], object], rows: slice | int = slice(None)) -> Answer:
    made = right()["detections"]
    change(made[rows])
    return counted(made)


def shift(by: float) -> Callable[[Array], object]:
    return lambda rows: np.add(rows[..., 1, :4], by, out=rows[..., 1, :4])


def gone(place: int) -> Callable[[Array], object]:
    def change(rows: Array) -> None:
        rows[..., place:-1, :] = rows[..., place + 1 :, :].copy()
        rows[..., -1, :] = 0

    return change


def permuted(rows: Array) -> None:
    rows[..., 5] = np.where(rows[..., 4] > 0, (rows[..., 5] + 1) % 3, 0)


def scaled(rows: Array) -> None:
    rows[..., 4] = np.where(rows[..., 4] > 0, 0.31 + 0.5 * (rows[..., 4] - 0.31), 0)


def twice(rows: Array) -> None:
    """Suppression that was left out: each box of the first four stands there again, a little moved."""
    rows[:-1, 8:] = rows[:-1, :4] + np.array([1, 1, 1, 1, 0, 0])
    order = np.argsort(-rows[..., 4], axis=1, kind="stable")
    rows[:] = np.take_along_axis(rows, order[..., None], 1)


def added(rows: Array) -> None:
    rows[:-1, FULL] = (200, 200, 230, 230, 0.45, 1)


WRONG: dict[str, Callable[[Array], object]] = {
    "a box of each shifted by half": shift(12.0),
    "the best missing": gone(0),
    "the third missing": gone(2),
    "classes permuted": permuted,
    "classes between two": lambda rows: np.add(rows[..., 5], 0.4 * (rows[..., 4] > 0), out=rows[..., 5]),
    "scores halved": scaled,
    "boxes twice": twice,
    "one too many": added,
    "none": lambda rows: rows.fill(0),
    "worst first": lambda rows: np.copyto(rows[:-1, :FULL], rows[:-1, :FULL][:, ::-1].copy()),
    "something after the end": lambda rows: rows[:-1, -1, :4].fill(3.0),
}


@pytest.mark.parametrize("tolerance", TOLERANCES, ids=lambda t: t.name)
@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_list_is_rejected(fault: str, tolerance: Tolerance) -> None:
    assert verdict(changed(WRONG[fault]), tolerance).status == "rejected"


@pytest.mark.parametrize("tolerance", [FP32, FP32_DELEGATED], ids=lambda t: t.name)
@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("real", [True, False])
def test_one_wrong_picture_is_rejected_in_fp32_on_whatever_inputs(fault: str, tolerance: Tolerance, real: bool) -> None:
    made = right()
    made["detections"][:2] = changed(WRONG[fault])["detections"][:2]
    made = counted(made["detections"])
    assert verdict(made, tolerance, real=real).status == "rejected"


@pytest.mark.parametrize("tolerance", TOLERANCES, ids=lambda t: t.name)
@pytest.mark.parametrize("by", [-1, 1])
def test_a_count_that_is_off_by_one_is_rejected(tolerance: Tolerance, by: int) -> None:
    made = right()
    made["count"][3] += by
    found = verdict(made, tolerance)
    assert found.status == "rejected"
    assert {reason.metric for reason in found.reasons} == {"own count"}


@pytest.mark.parametrize("tolerance", TOLERANCES, ids=lambda t: t.name)
def test_the_same_and_rounding_are_verified(tolerance: Tolerance) -> None:
    made = right()
    assert verdict(made, tolerance).status == "verified"
    there = made["detections"][..., 4:5] > 0
    made["detections"][..., :4] += np.where(there, 2e-3, 0)
    made["detections"][..., 4:5] += np.where(there, 2e-5, 0)
    assert verdict(made, tolerance).status == "verified"


@pytest.mark.parametrize("tolerance", TOLERANCES, ids=lambda t: t.name)
def test_equal_scores_in_another_order_are_right(tolerance: Tolerance) -> None:
    answer = right(tied=True)
    made = answer["detections"].copy()
    made[:-1, :FULL] = made[:-1, :FULL][:, ::-1]
    assert verdict(counted(made), tolerance, answer).status == "verified"
    made[:-1, FULL - 1] = 0  # and a box less is none of it
    assert verdict(counted(made), tolerance, answer).status == "rejected"


@pytest.mark.parametrize("step", [5, 10])
def test_over_a_flat_picture_rounding_chooses_among_equal_boxes(step: int) -> None:
    """Boxes of one score side by side: whichever goes first, the others follow."""
    side = np.arange(MOST)[:, None] * np.array([step, 0, step, 0])
    rows = np.concatenate([side + np.array([0, 0, 20, 20]), np.full((MOST, 1), 0.8), np.zeros((MOST, 1))], 1)
    sides = []
    for first in (0, 1):  # neighbours, which overlap by 0.6 or 1 / 3, go
        made = np.zeros((ROWS, MOST, 6), np.float32)
        made[:, : MOST // 2] = rows[first::2]
        sides.append(counted(made))
    assert verdict(sides[1], FP32, sides[0], real=False).status == "verified"
    assert verdict(sides[1], FP32, sides[0]).status == "rejected"  # real pictures are not flat


@pytest.mark.parametrize(
    ("score", "tolerance", "status"),
    [(0.30005, FP32, "verified"), (0.302, FP32, "rejected"), (0.305, FP16, "verified"), (0.45, FP16, "rejected")],
)
def test_a_box_at_the_threshold_may_go(score: float, tolerance: Tolerance, status: str) -> None:
    """Beyond the rounding of scores it may not, however few they are."""
    answer = right()
    answer["detections"][3, FULL] = (200, 200, 230, 230, score, 1)
    assert verdict(right(), tolerance, counted(answer["detections"])).status == status


def test_the_last_of_a_full_list_may_give_its_place_to_an_equal_one() -> None:
    made = right()["detections"]
    last = made[-1, -1, 4]
    made[-1, -1] = (200, 200, 230, 230, last, 2)
    assert verdict(counted(made)).status == "verified"
    made[-1, -1, 4] = last - 0.01
    assert verdict(counted(made)).status == "rejected"


@pytest.mark.parametrize("tolerance", TOLERANCES, ids=lambda t: t.name)
@pytest.mark.parametrize("real", [True, False])
def test_where_nothing_is_detected_nothing_is_verified(tolerance: Tolerance, real: bool) -> None:
    nothing = counted(np.zeros((ROWS, MOST, 6), np.float32))
    assert verdict(nothing, tolerance, nothing, real).status == "not verified here"
    wrong = {**nothing, "count": nothing["count"] + 1}
    assert verdict(wrong, tolerance, nothing, real).status == "rejected"


def test_lists_of_another_form_are_faults() -> None:
    made = right()
    flat = compare(OUTPUTS, right(), {**made, "detections": made["detections"][:, :-1]}, ["x"] * ROWS)
    assert {fault.code for fault in flat.faults} == {Code.WRONG_SHAPE}
    lonely = compare((replace(OUTPUTS[1], of=""),), right(), made, ["x"] * ROWS)
    assert {fault.code for fault in lonely.faults} == {Code.BASE_MISSING}
    broken = made["detections"].copy()
    broken[2, 1, 0] = np.nan
    odd = compare(OUTPUTS, right(), counted(broken), ["x"] * ROWS)
    assert {fault.code for fault in odd.faults} == {Code.NOT_FINITE}


def test_detections_are_paired_for_the_noise_of_a_reference() -> None:
    answer = right()["detections"]
    made = answer[:, ::-1].copy()
    np.testing.assert_array_equal(pair_detections(answer, made), answer)
    made[0, -1] = 0
    assert np.isnan(pair_detections(answer, made)[0, 0]).all()
    assert verdict(counted(answer), INT8).status == "verified"
