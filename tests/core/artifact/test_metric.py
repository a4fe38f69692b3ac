"""The table of metrics: complete, each with its direction, and no number that looks better than it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.artifact.metric import METRICS, NOT_FINITE, metric_info, plain, share
from edgekit.judge import verdict
from edgekit.judge.deviation import spreads
from edgekit.judge.limits import (
    BIAS,
    FP16,
    FP32,
    FP32_DELEGATED,
    INT8,
    MIXED,
    TASK_DROP,
    TASK_DROP_WORST,
    Kind,
)
from edgekit.judge.metrics import Comparison, compare
from edgekit.model.spec import Array, Output
from tests.answers import OUTPUTS, answer

HIGHER = {
    "cosine", "cosine whole", "row cosine", "snr", "spearman", "spearman raw", "equal", "jaccard", "agreement",
    "matched", "correlation", "channel correlation", "iou", "mask iou",
    "untied iou",
}  # fmt: skip


def measured() -> dict[str, list[float]]:
    """Value of each metric of an answer that is somewhat wrong, by name."""
    draw = np.random.default_rng(3)
    scores = draw.random((4, 20)).astype(np.float32)
    moved = np.clip(scores + draw.normal(0, 0.2, scores.shape), 0, 1).astype(np.float32)
    right, wrong = answer(scores, 6, 5), answer(moved, 6, 5, seed=1)
    declared = (replace(OUTPUTS[0], threshold=0.9), *OUTPUTS[1:])
    found = compare(declared, right, wrong, [f"image {number}" for number in range(4)])
    assert not found.faults
    values: dict[str, list[float]] = {}
    names = [f"image {number}" for number in range(4)]
    usual = compare(declared, right, wrong, names, scales=spreads(declared, [right], {})).measures
    usual = tuple(measure for measure in usual if measure.metric == "usual error")
    for measure in (*found.measures, *roles(right, wrong).measures, *usual):
        values.setdefault(measure.metric, []).extend(measure.values.tolist())
    return values


ROLES = (
    Output("distribution", role="probabilities"),
    Output("named", role="labels", of="distribution", dtype="int64"),
    Output("labels", role="labels", dtype="int64"),
    Output("boxes", role="boxes"),
    Output("detections", role="detections"),
    Output("count", role="count", of="detections", dtype="int64"),
    Output("mask", role="mask"),
    Output("embedding", role="embedding"),
    Output("integers", dtype="int64"),
)


def roles(right: Mapping[str, Array], wrong: Mapping[str, Array]) -> Comparison:
    """The same answers as outputs of all other roles, the last of each with its labels moved."""
    sides: list[dict[str, Array]] = []
    for side in (right, wrong):
        made = side["logits"]
        corners = np.abs(made[:, None, :2])
        boxes = np.concatenate([corners, corners + 1, side["relevance"][:, None, :2]], -1)
        named = side["relevance"].argmax(1)
        scores = -np.sort(-side["relevance"][:, : made.shape[1]], axis=1)[:, :, None]
        listed = np.concatenate([10 * made[:, :, None] + [0, 0, 9, 9], scores, 0 * scores], -1).astype(np.float32)
        floats = {"distribution": side["relevance"], "boxes": boxes, "mask": side["relevance"], "embedding": made}
        sides.append({**floats, "named": named, "labels": named, "integers": side["indices"]})
        sides[-1] |= {"detections": listed, "count": np.full(len(listed), listed.shape[1])}
    return compare(ROLES, sides[0], sides[1], [f"image {number}" for number in range(4)])


def test_every_metric_that_the_judge_measures_is_in_the_table_and_no_other() -> None:
    # The verdict measures the rows of a category, and what the rows of a run share.
    assert {*measured(), BIAS, MIXED} == set(METRICS)


def test_every_limit_is_on_a_metric_of_the_table() -> None:
    limited = {
        metric for tolerance in (FP32, FP32_DELEGATED, FP16, INT8) for kind in get_args(Kind)
        for _, metric in tolerance.on(kind)
    }  # fmt: skip
    assert limited - {TASK_DROP, TASK_DROP_WORST} <= set(METRICS)
    assert set(verdict._ROUNDING) <= set(METRICS)


def test_the_direction_is_that_of_the_numbers() -> None:
    """A perfect answer is at least as good as a wrong one in every metric, by the table's direction."""
    scores = np.random.default_rng(3).random((4, 20)).astype(np.float32)
    made = answer(scores, 6, 5)
    perfect = compare(OUTPUTS, made, made, ["a", "b", "c", "d"]).measures + roles(made, made).measures
    wrong = measured()
    for measure in perfect:
        sign = metric_info(measure.metric).sign
        assert sign * measure.values.max() <= sign * min(wrong[measure.metric], key=lambda v: sign * v) + 1e-9
    assert {name for name, info in METRICS.items() if info.better == "higher"} == HIGHER
    assert {info.sign for name, info in METRICS.items() if name in HIGHER} == {-1.0}
    assert {info.sign for name, info in METRICS.items() if name not in HIGHER} == {1.0}


def test_every_row_says_what_it_is() -> None:
    for name, info in METRICS.items():
        assert info.name == name
        assert info.meaning
        assert info.format(0.5)
        assert info.format(None) == info.format(math.nan) == NOT_FINITE


def test_what_is_not_in_the_table_is_better_where_it_is_less() -> None:
    drop = metric_info("coverage@32 drop, one row")
    task = "the model's own task metric 'coverage', over the first 32 places of the ranking"
    assert (drop.name, drop.better) == ("coverage@32 drop, one row", "lower")
    assert drop.meaning == f"the largest loss of one input of {task}"
    assert metric_info("top-1 drop").meaning == "the artifact's average loss of the model's own task metric 'top-1'"
    assert metric_info("MAX ABS") is METRICS["max abs"]


def test_a_share_below_one_is_never_printed_as_one() -> None:
    below = (0.9, 0.995, 0.99949, 0.9999, 0.99999, 0.999994, 0.9999999, 1 - 2**-53)
    for info in (info for info in METRICS.values() if info.style == "share"):
        shown = {value: info.format(value) for value in below}
        assert {v: text for v, text in shown.items() if float(text.lstrip(">")) >= 1} == {}, info.name
        assert info.format(1.0) == "1", info.name


@given(st.floats(-1, 1))
def test_a_share_is_near_its_text_and_on_the_right_side_of_one(value: float) -> None:
    text = share(value)
    if text.startswith(">"):
        assert 0.99999 <= value < 1
    else:
        assert abs(float(text) - value) <= 5.1e-4
        assert (float(text) == 1) == (value == 1)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_plain_number_keeps_its_size(value: float) -> None:
    assert float(plain(value)) == pytest.approx(value, rel=0.06)


def test_limits_are_round() -> None:
    cases = {
        ("max abs", 1e-4): "1e-4",
        ("max abs", 0.01): "0.01",
        ("spearman", 0.99): "0.99",
        ("cosine", 0.997): "0.997",
        ("snr", 20.0): "20 dB",
        ("max abs", 3.32e-6): "3.32e-6",
        ("lost mass", 0.01): "0.01",
    }
    assert {(name, limit): METRICS[name].format_limit(limit) for name, limit in cases} == cases


def test_a_value_never_looks_like_the_limit_that_it_breaks() -> None:
    cases = {
        ("max abs", 1.02e-4, 1e-4): "1.02e-4",
        ("max abs", 1.0000001e-4, 1e-4): "1.0000001e-4",
        ("max abs", 0.01234, 0.01): "0.0123",
        ("spearman", 0.98999, 0.99): "0.98999",
        ("spearman", 0.9, 0.99): "0.900",
        ("cosine", 0.9999999, 1.0): ">0.99999",
        ("snr", 19.99, 20.0): "19.99 dB",
        ("snr", 12.0, 20.0): "12.0 dB",
        ("max abs", 1e-4, 1e-4): "1.0e-4",
        ("max abs", math.nan, 1e-4): NOT_FINITE,
    }
    assert {case: METRICS[case[0]].format_beside(*case[1:]) for case in cases} == cases


def test_decibels_have_their_unit() -> None:
    assert METRICS["snr"].format(19.7654) == "19.8 dB"
    assert METRICS["snr"].format(-200.0) == "-200 dB"
