"""Faults of rows in batches, which rows run alone do not show: the user's own inputs and metric show them too."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.artifact.fact import EVALUATION, IN_BATCHES
from edgekit.judge import verdict
from edgekit.judge.limits import FP32, FP32_DELEGATED, INT8, MIXED
from tests.core.judge.broken.conftest import Change, Shell
from tests.core.judge.seeded.graph import Graph


def before(g: Graph, x: str) -> str:
    """[B, ...]: the row before each row of a batch."""
    last, end, start = (np.array([value], np.int64) for value in (-1, np.iinfo(np.int64).max, 0))
    return g.add("Concat", g.add("Slice", x, last, end, start), g.add("Slice", x, start, last, start), axis=0)


def mixes_rows(g: Graph) -> None:
    g.wrap("logits", lambda x: before(g, x))


def takes_the_answer_of_a_like_row(g: Graph) -> None:
    first = g.add("Slice", "x", np.array([0]), np.array([1]), np.array([1]))
    distance = g.add("Abs", g.add("Sub", first, before(g, first)))
    like = g.add("And", g.add("Less", distance, np.float32(0.03)), g.add("Greater", distance, np.float32(0)))
    g.wrap("logits", lambda x: g.add("Where", like, before(g, x), x))


def mixes_an_eighth(g: Graph) -> None:
    g.wrap("logits", lambda x: g.add("Add", x, g.add("Mul", g.add("Sub", before(g, x), x), np.float32(0.12))))


@pytest.mark.parametrize("fault", [mixes_rows, takes_the_answer_of_a_like_row])
def test_limits_task_accepts_no_artifact_whose_rows_depend_on_each_other(shell: Shell, fault: Change) -> None:
    said = shell.judged("table", fault, "int8", "--limits", "task")
    assert said.status == "rejected"
    metrics = {reason["metric"] for reason in said.reasons if reason["batch"] == IN_BATCHES}
    # Another answer for a few rows may keep their largest class.
    assert ("task metric drop" if fault is mixes_rows else "cosine") in metrics, said.sentences


def test_an_eighth_of_the_row_before_is_too_much_in_int8(shell: Shell) -> None:
    said = shell.judged("table", mixes_an_eighth, "int8")
    assert said.status == "rejected"
    (reason,) = [reason for reason in said.reasons if reason["metric"] == MIXED]
    assert reason["value"] == pytest.approx(0.12, abs=0.01)


def test_a_right_graph_is_verified_in_batches(shell: Shell) -> None:
    said = shell.judged("table", None, "int8")
    assert said.status == "verified"
    assert any("64 of these again in batches" in note["sentence"] for note in said.notes)


def test_in_fp32_rows_beside_may_change_the_order_of_sums() -> None:
    key = ("tensor", "relative")
    assert verdict._limits_of(FP32, IN_BATCHES, "real")[key] == FP32_DELEGATED.on("real")[key]
    assert verdict._limits_of(FP32, IN_BATCHES, "real").keys() == FP32.on("real").keys()
    assert verdict._limits_of(FP32, EVALUATION, "real") == FP32.on("real")
    assert verdict._limits_of(INT8, IN_BATCHES, "real") == INT8.on("real")
