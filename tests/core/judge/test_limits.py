"""The table of limits: what was promised, and what each row is for."""

from __future__ import annotations

import pytest

from edgekit.artifact.metric import METRICS
from edgekit.judge.limits import (
    ALL,
    FP16,
    FP32,
    FP32_DELEGATED,
    INT8,
    TABLE,
    TASK_DROP,
    TASK_DROP_WORST,
    TOLERANCES,
    Tolerance,
)


@pytest.mark.parametrize(
    ("tolerance", "limits"),
    [
        (FP32, {"max abs/scores": 1e-4, "relative/tensor": 1e-4, "task drop/task": 0.002, "deviation/scores": 1e-3}),
        (FP32_DELEGATED, {"max abs/scores": 1e-3, "relative/tensor": 1e-3, "deviation/boxes": 1e-2}),
        (FP16, {"max abs/scores": 1e-2, "cosine/scores": 0.997, "snr/scores": 20.0, "task drop/task": 0.002}),
        (INT8, {"spearman/scores": 0.99, "lost mass/ranking": 0.01, "cosine/scores": 0.99, "cosine/tensor": 0.955}),
        (INT8, {"task drop/task": 0.005, "task drop, worst row/task": 0.05, "max abs/scores": None}),
        (INT8, {"relative/tensor": None, "deviation/tensor": None, "error/tensor": 0.3, "gain/tensor": 0.15}),
    ],
    ids=lambda value: value.name if isinstance(value, Tolerance) else "",
)
def test_the_limits_are_those_that_were_promised(tolerance: Tolerance, limits: dict[str, float]) -> None:
    named = {name: tuple(name.rsplit("/", 1)) for name in limits}
    assert {name: tolerance.limit(metric, role) for name, (metric, role) in named.items()} == limits


def test_no_limit_is_tighter_where_precision_is_less() -> None:
    for row in TABLE:
        values = [value for value in (row.fp32, row.delegated, row.fp16, row.int8) if value is not None]
        assert values in (sorted(values), sorted(values, reverse=True)), row


def test_every_row_limits_a_metric_says_why_and_stands_once() -> None:
    names = {TASK_DROP, TASK_DROP_WORST, *METRICS}
    assert [row.metric for row in TABLE if row.metric not in names] == []
    assert all(row.reason and set(row.kinds) <= set(ALL) for row in TABLE)
    assert len({(row.metric, row.roles, row.kinds) for row in TABLE}) == len(TABLE)


def test_only_int8_may_rank_otherwise_and_then_its_ranks_have_limits() -> None:
    assert [tolerance.exact_ranking for tolerance in TOLERANCES] == [True, True, True, False]
    assert all(tolerance.limit("max abs", "scores") for tolerance in TOLERANCES if tolerance.exact_ranking)
    assert None not in (INT8.limit("spearman", "scores"), INT8.limit("lost mass", "ranking"))


def test_inputs_that_are_not_real_have_absolute_limits_or_looser_ones() -> None:
    assert ("ranking", "lost mass") in INT8.on("real")
    assert ("ranking", "lost mass") not in INT8.on("changed")
    assert INT8.on("changed")["tensor", "error"].value == 0.7
    assert INT8.on("random")["tensor", "gross error"].value == 10
    assert FP32.on("random")["scores", "max abs"].value == 1e-4


def test_a_change_of_a_limit_is_one_of_real_inputs() -> None:
    half = INT8.with_limit("error", "tensor", lambda limit: limit / 2)
    real, changed = (half.on(kind)["tensor", "error"] for kind in ("real", "changed"))
    assert (real.value, real.worst, changed.value) == (0.15, 0.45, 0.7)
    assert INT8.without(TASK_DROP).limit(TASK_DROP, "task") is None


def test_tolerances_have_names_of_their_own() -> None:
    assert len({tolerance.name for tolerance in TOLERANCES}) == len(TOLERANCES)
