from __future__ import annotations

from typing import Any

import pytest

from edgekit.report import trials


def tried(name: str, **facts: Any) -> dict[str, Any]:
    return {"name": name, "passed": True, "chosen": False, "p50_ms": 2.0, "size": 1000, "measures": {}, **facts}


def test_the_chosen_comes_first_then_what_passed_then_by_speed() -> None:
    given = [
        tried("failed", passed=False, p50_ms=0.5),
        tried("untimed", p50_ms=None),
        tried("slow", p50_ms=9.0),
        tried("fast", p50_ms=1.0),
        tried("chosen", chosen=True, p50_ms=5.0),
    ]
    assert [row.name for row in trials.trial_rows(given)] == ["chosen", "fast", "slow", "untimed", "failed"]


def test_what_became_of_a_recipe_is_a_word() -> None:
    marks = {(True, True): "chosen", (True, False): "best, failed", (False, True): "passed", (False, False): "failed"}
    for (chosen, passed), mark in marks.items():
        assert trials.trial_rows([tried("one", chosen=chosen, passed=passed)])[0].mark == mark


def test_numbers_have_units_and_options_are_told() -> None:
    facts = {"size": 3_150_000, "p50_ms": 2.1, "measures": {"spearman": 0.99231, "snr": 31.0}}
    (row,) = trials.trial_rows([tried("one", **facts, float_groups=["a", "b"], pareto=True, alpha=0.5)])
    assert (row.size, row.p50, row.float_groups) == ("3.15 MB", "2.10 ms", "a, b")
    assert row.measures == "spearman 0.99231, snr 31.0 dB"
    assert row.options == "pareto yes, alpha 0.5"


@pytest.mark.parametrize("strange", [{}, {"measures": 3}, {"p50_ms": "fast", "size": True}, {"size": float("nan")}])
def test_what_is_missing_or_of_another_kind_is_a_dash(strange: dict[str, Any]) -> None:
    (row,) = trials.trial_rows([strange])
    assert row.name == "unnamed"
    assert (row.p50, row.size, row.measures) == ("–", "–", "–")
    assert not row.passed
