from __future__ import annotations

import os

import pytest

from edgekit.runtime.processor import MOST, VARIABLE, threads


def test_the_cores_that_this_process_may_use_but_no_more_than_a_phone_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    for cores, expected in ((1, 1), (2, 2), (4, 4), (64, MOST)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, cores=cores: set(range(cores)), raising=False)
        assert threads() == expected


def test_where_affinity_is_unknown_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert threads() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert threads() == 1


def test_a_number_above_zero_is_obeyed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    for value, expected in {"7": 7, "1": 1, "0": 2, "-1": 2, "many": 2, "": 2}.items():
        monkeypatch.setenv(VARIABLE, value)
        assert threads() == expected
