from __future__ import annotations

import os

import pytest

from edgekit.runtime.processor import MOST, VARIABLE, threads


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 2), (4, 4), (64, MOST)])
def test_the_cores_that_this_process_may_use_but_no_more_than_a_phone_has(
    cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
    assert threads() == expected


def test_where_affinity_is_unknown_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert threads() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert threads() == 1


@pytest.mark.parametrize(("wanted", "expected"), [("7", 7), ("1", 1), ("0", 2), ("-1", 2), ("many", 2), ("", 2)])
def test_a_number_above_zero_is_obeyed_and_nothing_else(
    wanted: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    monkeypatch.setenv(VARIABLE, wanted)
    assert threads() == expected
