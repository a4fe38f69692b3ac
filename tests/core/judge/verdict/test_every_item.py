"""Decisions on inputs that are not the user's, single items of long lists, and signals on a large offset."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edgekit.artifact.result import EvaluationResult
from edgekit.judge.deviation import spreads
from edgekit.judge.limits import CHANGED, FP16, FP32, INT8, Tolerance
from edgekit.judge.metrics import Comparison, compare
from edgekit.judge.verdict import judge
from edgekit.model.spec import Array, Output

ROWS = 60
DRAW = np.random.default_rng(11)
PRECISIONS = {"fp32": (FP32, 1e-6), "fp16": (FP16, 1e-3), "int8": (INT8, 0.05)}
"""The limits, and the noise of a sound artifact in units of the spread."""


def verdict(
    output: Output, right: Array, wrong: Array, tolerance: Tolerance, changed: tuple[Array, Array] | None = None
) -> EvaluationResult:
    """The verdict on an output's rows for real inputs, and on others for changed inputs."""
    scales = spreads((output,), [{output.name: right.astype(np.float32)}], {}, tolerance.rounding)

    def compared(*sides: Array) -> list[Comparison]:
        expected, found = ({output.name: values.astype(np.float32)} for values in sides)
        return [compare((output,), expected, found, [f"row {n}" for n in range(len(sides[0]))], scales=scales)]

    more = {CHANGED: compared(*changed)} if changed is not None else None
    return judge(tolerance, {output.name: 0.0}, evaluation=compared(right, wrong), more=more)


def noisy(values: Array, share: float) -> Array:
    return np.asarray(values + share * values.std() * np.random.default_rng(3).normal(size=values.shape))


LOGITS = DRAW.normal(size=(ROWS, 100))
SURE = np.where(np.arange(100) == DRAW.integers(100, size=(ROWS, 1)), 8.0, LOGITS)


def another_class(logits: Array) -> Array:
    """One logit of a hundred is raised above the largest: the error of the row grows little."""
    changed = logits.copy()
    second = np.argsort(logits, axis=1)[:, -2]
    changed[np.arange(len(logits)), second] = logits.max(1) + 0.5
    return changed


@pytest.mark.parametrize("precision", PRECISIONS)
def test_another_class_on_changed_pictures_is_rejected(precision: str) -> None:
    tolerance, noise = PRECISIONS[precision]
    classes = Output("logits", role="logits")
    sound = (SURE, noisy(SURE, noise), tolerance)
    assert verdict(classes, *sound, changed=(SURE, noisy(SURE, noise))).status == "verified"
    found = verdict(classes, *sound, changed=(SURE, np.where(np.arange(ROWS)[:, None] % 3, SURE, another_class(SURE))))
    assert found.status == "rejected"
    assert ("changed", "lost accuracy") in {(reason.batch, reason.metric) for reason in found.reasons}


def test_another_class_costs_nothing_where_the_model_is_unsure() -> None:
    classes = Output("logits", role="logits")
    unsure = 0.01 * LOGITS
    changed = (unsure, noisy(unsure, 0.05))
    assert verdict(classes, SURE, noisy(SURE, 0.02), INT8, changed).status == "verified"


def disc(shift: int, confidence: float) -> Array:
    rows, columns = np.mgrid[0:32, 0:32]
    inside = [(rows - 16) ** 2 + (columns - 12 - shift - n % 4) ** 2 < 64 for n in range(ROWS)]
    return np.where(np.array(inside)[:, None], 0.5 + confidence / 2, 0.5 - confidence / 2)


def test_a_mask_that_moves_on_changed_pictures_is_rejected_and_an_unsure_one_may() -> None:
    mask, real = Output("mask", role="mask"), (disc(0, 0.9), disc(0, 0.9))
    assert verdict(mask, *real, INT8, (disc(0, 0.9), noisy(disc(0, 0.9), 0.05))).status == "verified"
    moved = verdict(mask, *real, INT8, (disc(0, 0.9), disc(6, 0.9)))
    assert moved.status == "rejected"
    assert "lost mask" in {reason.metric for reason in moved.reasons}
    assert verdict(mask, *real, INT8, (disc(0, 0.1), disc(2, 0.1))).status == "verified"


def boxes(moved: dict[int, float]) -> Array:
    """A hundred detections that do not overlap, each 20 wide; some are moved by a share of their width."""
    listed = np.zeros((ROWS, 100, 6))
    for n in range(100):
        left, top = 40.0 * (n % 10) + 20 * moved.get(n, 0.0), 40.0 * (n // 10)
        listed[:, n] = (left, top, left + 20, top + 20, 0.95 - 0.005 * n, n % 3)
    return listed


@pytest.mark.parametrize(
    ("precision", "moved"),
    [
        ("fp32", {0: 0.03}),
        ("fp16", {0: 0.09}),
        ("int8", {0: 0.3}),
        ("int8", dict.fromkeys(range(10), 0.3)),
    ],
)
def test_the_best_box_of_a_hundred_counts_for_itself(precision: str, moved: dict[int, float]) -> None:
    listed, (tolerance, _) = Output("detections", role="detections"), PRECISIONS[precision]
    assert verdict(listed, boxes({}), boxes({}), tolerance).status == "verified"
    found = verdict(listed, boxes({}), boxes(moved), tolerance)
    assert found.status == "rejected"
    assert "moved box" in {reason.metric for reason in found.reasons}


POINTS = 100 + 10 * DRAW.normal(size=(ROWS, 1, 2)) + 3 * DRAW.normal(size=(ROWS, 68, 2))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_one_point_of_many_that_stands_still_is_rejected(precision: str) -> None:
    points, (tolerance, noise) = Output("points"), PRECISIONS[precision]
    assert verdict(points, POINTS, noisy(POINTS, noise), tolerance).status == "verified"
    still = POINTS.copy()
    still[:, 30] = still[:, 30].mean(0)
    found = verdict(points, POINTS, still, tolerance)
    assert found.status == "rejected"
    assert "error of a place" in {reason.metric for reason in found.reasons}


def test_a_box_of_a_fixed_anchor_is_measured_by_more_than_its_own_small_moves() -> None:
    """Each of 40 boxes moves by 0.5 % of what they differ, and rounding moves it by as much again."""
    anchors = np.linspace(0, 40, 40)[None, :, None] + np.arange(4)
    boxes = anchors + 0.06 * DRAW.normal(size=(ROWS, 40, 4))
    role = Output("boxes", role="tensor", axes=("batch", "boxes", "channels"))
    assert verdict(role, boxes, boxes + 0.06 * DRAW.normal(size=boxes.shape), INT8).status == "verified"


KELVIN = 290 + 1.5 * DRAW.normal(size=(ROWS, 1))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "wrong",
    [
        lambda y: 290 + 0.4 * (y - 290),
        lambda y: 580 - y,
        lambda y: np.roll(y, 1, axis=0),
        lambda y: np.full_like(y, 290.0),
        lambda y: y + 1.0,
    ],
    ids=["40 % of the signal", "reversed", "another row", "constant", "one kelvin more"],
)
def test_a_signal_on_a_large_offset_is_measured_by_its_own_spread(
    precision: str, wrong: Callable[[Array], Array]
) -> None:
    kelvin, (tolerance, _) = Output("temperature"), PRECISIONS[precision]
    assert verdict(kelvin, KELVIN, wrong(KELVIN), tolerance).status == "rejected"


def test_rounding_of_a_large_offset_is_no_error() -> None:
    kelvin = Output("temperature")
    assert verdict(kelvin, KELVIN, KELVIN.astype(np.float32), FP32).status == "verified"
    assert verdict(kelvin, KELVIN, KELVIN.astype(np.float16), FP16).status == "verified"
    assert verdict(kelvin, KELVIN, noisy(KELVIN, 0.1), INT8).status == "verified"
    constant = np.full((ROWS, 1), 290.0)
    assert verdict(kelvin, constant, constant + 0.1, FP16).status == "verified"


@pytest.mark.parametrize(
    ("rows", "turned", "status"),
    [
        (400, 2, "verified"),
        (400, 4, "not verified here"),
        (400, 6, "rejected"),
        (60, 1, "not verified here"),
        (60, 2, "rejected"),
    ],
)
def test_a_metric_of_right_or_wrong_is_judged_by_its_mean(rows: int, turned: int, status: str) -> None:
    """Of 400 pictures two are half a percent, and four may be chance; a limit on any one row would allow none."""
    output, logits = Output("logits", role="logits"), np.resize(SURE, (rows, 100)).astype(np.float32)
    right = np.ones(rows)
    wrong = right.copy()
    wrong[:turned] = 0
    both = iter((right, wrong))
    found = compare(
        (output,),
        {"logits": logits},
        {"logits": logits},
        [f"row {n}" for n in range(rows)],
        metric=lambda _outputs, _truth: next(both),
        truth=right,
    )
    assert judge(INT8, {"logits": 0.0}, evaluation=[found]).status == status
