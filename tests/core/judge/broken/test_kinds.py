"""Outputs of any role, kind and scale, in any precision: what each is for, per row and per channel.

Among them are classes that are not last, boxes with many classes, points that move little, pictures in bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from edgekit.reference.store import read_reference
from tests.core.judge.broken.conftest import Shell
from tests.core.judge.seeded.changes import first_row
from tests.core.judge.seeded.graph import Change, Graph

CLEAN = ("pixels", "undeclared", "anchors", "anchors_last", "keypoints", "in_bytes", "reader")
CLEAN_INT8 = ("classifier", "detector", "embedding", "attention")


def wrap(output: str, new: Callable[[Graph, str], str]) -> Change:
    return lambda g: g.wrap(output, lambda x: new(g, x))


def times(output: str, factor: float | np.ndarray) -> Change:
    return wrap(output, lambda g, x: g.add("Mul", x, np.asarray(factor, np.float32)))


def plus(output: str, term: float | np.ndarray) -> Change:
    return wrap(output, lambda g, x: g.add("Add", x, np.asarray(term, np.float32)))


def backwards(output: str, axis: int) -> Change:
    places = [np.array([a]) for a in (-1, -9999, axis, -1)]
    return wrap(output, lambda g, x: g.add("Slice", x, *places))


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


CONFIDENCE = np.array([0, 0, 0, 0, 1])[:, None]
REST = np.where(np.arange(25) < 24, 1.25, 1)
FAULTS: dict[str, tuple[str, str, Change]] = {
    "logits of another order": ("classifier", "int8", backwards("logits", 1)),
    "logits times 2": ("classifier", "int8", times("logits", 2)),
    "logits moved": ("classifier", "int8", plus("logits", 3)),
    "one class moved": ("classifier", "int8", plus("logits", np.where(np.arange(24) == 5, 4, 0))),
    "probabilities sharpened": ("classifier", "int8", wrap("shares", lambda g, x: g.add("Mul", x, x))),
    "labels off by one": (
        "classifier",
        "int8",
        wrap("label", lambda g, x: g.add("Max", g.add("Sub", x, np.int64(1)), np.int64(0))),
    ),
    "labels of a batch's first row": ("classifier", "fp32", wrap("label", lambda g, x: first_row(g, x))),
    "no confidence": ("detector", "int8", times("boxes", 1 - CONFIDENCE)),
    "confidence off by 0.05": ("detector", "fp32", plus("boxes", 0.05 * CONFIDENCE)),
    "booleans inverted": ("detector", "int8", wrap("kept", lambda g, x: g.add("Not", x))),
    "all but the large channel off by a quarter": ("embedding", "fp32", times("embedding", REST)),
    "the same in int8": ("embedding", "int8", times("embedding", REST)),
    "embedding turned round": ("embedding", "int8", wrap("embedding", lambda g, x: g.add("Neg", x))),
    "depth times 3": ("embedding", "int8", times("depth", 3)),
    "a constant depth": (
        "embedding",
        "int8",
        wrap("depth", lambda g, x: g.add("Add", g.add("Mul", x, np.float32(0)), np.float32(1))),
    ),
    "depth of the neighbours": ("embedding", "int8", backwards("depth", 3)),
    "small scores reversed": ("attention", "fp32", backwards("scores", 1)),
    "small scores reversed in int8": ("attention", "int8", backwards("scores", 1)),
    "small scores times 1.05": ("attention", "fp32", times("scores", 1.05)),
    "mask inverted": ("attention", "int8", wrap("mask", lambda g, x: g.add("Sub", np.float32(1), x))),
    "classes of pixels": ("pixels", "int8", wrap("logits", nudged)),
    "classes of pixels along an axis that is found": ("undeclared", "int8", wrap("logits", nudged)),
    "labels of the neighbours": ("pixels", "int8", backwards("label", 2)),
    "labels of the neighbours, an axis that is found": ("undeclared", "int8", backwards("label", 2)),
    "boxes that go": ("anchors", "int8", of_channel("boxes", 2, 4, just_below)),
    "boxes that go, channels second": ("anchors_last", "int8", of_channel("boxes", 1, 4, just_below)),
    "boxes that come": ("anchors", "int8", of_channel("boxes", 2, 4, just_above)),
    "the same points for all": ("keypoints", "int8", wrap("points", still)),
    "a mask that is ignored": ("reader", "int8", lambda g: g.wrap("mask", lambda x: g.add("Max", x, np.int64(1)))),
    "dark pictures in bytes": ("in_bytes", "fp32", wrap("logits", when_darkish)),
}


@pytest.mark.nightly(but=("classifier-int8", "detector-int8", "pixels-fp32"))
@pytest.mark.parametrize(("model", "precision"), [*product(CLEAN, ("fp32", "int8")), *product(CLEAN_INT8, ("int8",))])
def test_clean_graphs_are_verified(shell: Shell, model: str, precision: str) -> None:
    said = shell.judged(model, precision=precision)
    assert (said.status, said.code) == ("verified", 0), said.sentences


@pytest.mark.nightly
def test_what_the_model_itself_cannot_answer_is_not_asked_and_said(shell: Shell) -> None:
    """Texts of padding alone among strange and random inputs; both values of the mask are drawn."""
    recorded = read_reference(shell.built("reader") / "reference")
    lost = recorded.info.raw["unanswered"]
    assert lost
    assert {name.partition("-")[0] for name in lost} <= {"changed", "shifted", "stress", "grid"}
    masks = np.concatenate([b.inputs["mask"].ravel() for b in recorded.batches if b.name.startswith("grid")])
    assert set(masks) == {0, 1}
    _, found = shell.run("verify", str(shell.built("reader")))
    (artifact,) = found["artifacts"]
    rows = sum(map(len, lost.values()))
    said = json.dumps(artifact)
    assert f"{rows} inputs that the model itself answers with NaN or Inf" in said


DAILY = (
    "labels off by one",
    "logits times 2",
    "classes of pixels",
    "booleans inverted",
    "confidence off by 0.05",
    "probabilities sharpened",
)
"""One fault of each kind of output is asked in `make test`; the others belong to `make nightly`."""


@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=() if f in DAILY else pytest.mark.nightly, id=f) for f in FAULTS]
)
def test_a_wrong_answer_is_rejected(shell: Shell, fault: str) -> None:
    model, precision, change = FAULTS[fault]
    said = shell.judged(model, change, precision)
    assert (said.status, said.code) == ("rejected", 3), said.sentences
