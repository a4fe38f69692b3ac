"""Outputs whose classes are not last, boxes with many classes, points that move little, pictures in bytes."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from edgekit.reference.store import read_reference
from tests.judge.broken.conftest import Shell
from tests.judge.broken.test_roles import backwards, wrap
from tests.judge.seeded.graph import Change, Graph

CLEAN = ("pixels", "undeclared", "anchors", "anchors_last", "keypoints", "in_bytes", "reader")


def of_channel(output: str, axis: int, channel: int, change: Callable[[Graph, str], str]) -> Change:
    """Another value of one channel; `change` takes the graph and the channel's values, [..., 1, ...]."""

    def made(g: Graph, x: str) -> str:
        count = g.add("Gather", g.add("Shape", x), np.int64(axis))
        shape = np.ones(3, np.int64)
        shape[axis] = -1
        is_it = g.add("Equal", g.add("Range", np.int64(0), count, np.int64(1)), np.int64(channel))
        return g.add("Where", g.add("Reshape", is_it, shape), change(g, x), x)

    return wrap(output, made)


def just_below(g: Graph, x: str) -> str:
    """What is a little above the middle is a little below it."""
    above = g.add("And", g.add("Greater", x, np.float32(0.5)), g.add("Less", x, np.float32(0.58)))
    return g.add("Where", above, np.float32(0.495), x)


def just_above(g: Graph, x: str) -> str:
    """What is a little below the middle is a little above it."""
    below = g.add("And", g.add("Less", x, np.float32(0.5)), g.add("Greater", x, np.float32(0.44)))
    return g.add("Where", below, np.float32(0.505), x)


def nudged(g: Graph, x: str) -> str:
    """One class gains what another one loses, by less than what INT8 may differ by."""
    return g.add("Add", x, np.array([0.5, -0.5, 0, 0], np.float32).reshape(1, 4, 1, 1))


def still(g: Graph, x: str) -> str:
    """The mean answer, whatever the input."""
    places = np.linspace(0, 1, 24, dtype=np.float32).reshape(12, 2)[::-1].copy()
    return g.add("Add", g.add("Mul", x, np.float32(0)), places)


def when_darkish(g: Graph, x: str) -> str:
    """The logits halved and negated where the mean of the bytes is between 0.02 and 0.2 of their range."""
    mean = g.add("ReduceMean", g.add("Cast", "images", to=1), np.array([1, 2, 3]), keepdims=0)
    between = g.add("And", g.add("Greater", mean, np.float32(5)), g.add("Less", mean, np.float32(51)))
    where = g.add("Unsqueeze", between, np.array([1]))
    return g.add("Where", where, g.add("Mul", x, np.float32(-0.5)), x)


FAULTS: dict[str, tuple[str, str, Change]] = {
    "classes of pixels": ("pixels", "int8", wrap("logits", nudged)),
    "classes of pixels along an axis that is found": ("undeclared", "int8", wrap("logits", nudged)),
    "labels of the neighbours": ("pixels", "int8", backwards("label", 2)),
    "labels of the neighbours, an axis that is found": ("undeclared", "int8", backwards("label", 2)),
    "boxes that go": ("anchors", "int8", of_channel("boxes", 2, 4, just_below)),
    "boxes that go, channels second": ("anchors_last", "int8", of_channel("boxes", 1, 4, just_below)),
    "boxes that come": (
        "anchors",
        "int8",
        of_channel("boxes", 2, 4, just_above),
    ),
    "the same points for all": ("keypoints", "int8", wrap("points", still)),
    "a mask that is ignored": ("reader", "int8", lambda g: g.wrap("mask", lambda x: g.add("Max", x, np.int64(1)))),
    "dark pictures in bytes": ("in_bytes", "fp32", wrap("logits", when_darkish)),
}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("model", CLEAN)
def test_clean_graphs_are_verified(shell: Shell, model: str, precision: str) -> None:
    said = shell.judged(model, precision=precision)
    assert said.status == "verified", said.sentences


def test_what_the_model_itself_cannot_answer_is_not_asked_and_said(shell: Shell) -> None:
    """Texts of padding alone among strange and random inputs; both values of the mask are drawn."""
    recorded = read_reference(shell.built("reader") / "reference")
    lost = recorded.info.raw["unanswered"]
    assert lost
    assert {name.partition("-")[0] for name in lost} <= {"changed", "stress", "grid"}
    masks = np.concatenate([b.inputs["mask"].ravel() for b in recorded.batches if b.name.startswith("grid")])
    assert set(masks) == {0, 1}
    _, found = shell.run("verify", str(shell.built("reader")))
    (artifact,) = found["artifacts"]
    rows = sum(map(len, lost.values()))
    said = json.dumps(artifact)
    assert f"{rows} inputs that the model itself answers with NaN or Inf" in said


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_answer_is_rejected(shell: Shell, fault: str) -> None:
    model, precision, change = FAULTS[fault]
    said = shell.judged(model, change, precision)
    assert (said.status, said.code) == ("rejected", 3), said.sentences
