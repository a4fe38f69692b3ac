"""The table of limits: what DESIGN promises, and what each row is for."""

from __future__ import annotations

from dataclasses import fields

import pytest

from edgekit.judge.tolerance import FP16, FP32, FP32_DELEGATED, INT8, Tolerance

TABLE = (FP32, FP32_DELEGATED, FP16, INT8)
LIMITS = [field.name for field in fields(Tolerance) if field.name not in ("name", "exact_ranking")]


@pytest.mark.parametrize(
    ("row", "limits"),
    [
        (FP32, {"max_abs": 1e-4, "relative": 1e-4, "task_drop": 0.002, "deviation": 1e-3}),
        (FP32_DELEGATED, {"max_abs": 1e-3, "relative": 1e-3, "task_drop": 0.002, "deviation": 1e-2}),
        (FP16, {"max_abs": 1e-2, "relative": 2e-2, "cosine": 0.997, "snr_db": 20.0, "task_drop": 0.002}),
        (INT8, {"spearman": 0.99, "lost_mass": 0.01, "cosine": 0.99, "task_drop": 0.005, "task_drop_worst": 0.05}),
        (INT8, {"max_abs": None, "relative": None, "deviation": None, "error": 0.3, "gain": 0.15, "offset": 0.15}),
    ],
    ids=lambda value: value.name if isinstance(value, Tolerance) else "",
)
def test_the_limits_are_those_that_were_promised(row: Tolerance, limits: dict[str, float]) -> None:
    assert {name: getattr(row, name) for name in limits} == limits


def test_no_limit_is_tighter_where_precision_is_less() -> None:
    for name in LIMITS:
        given = [value for row in TABLE if (value := getattr(row, name)) is not None]
        assert given in (sorted(given), sorted(given, reverse=True)), name
        assert None not in (INT8.error, INT8.gain, INT8.offset, INT8.correlation)


def test_less_precision_is_allowed_more() -> None:
    absolute = [row.max_abs for row in (FP32, FP32_DELEGATED, FP16)]
    assert absolute == sorted(absolute, key=lambda limit: limit or 0.0)
    drops = [row.task_drop or 0.0 for row in TABLE]
    assert drops == sorted(drops)


def test_only_int8_may_rank_otherwise_and_then_its_ranks_have_limits() -> None:
    assert [row.exact_ranking for row in TABLE] == [True, True, True, False]
    assert all(row.max_abs is not None for row in TABLE if row.exact_ranking)
    assert INT8.max_abs is None
    assert None not in (INT8.spearman, INT8.lost_mass, INT8.task_drop_worst)


def test_rows_have_names_of_their_own() -> None:
    assert len({row.name for row in TABLE}) == len(TABLE)
