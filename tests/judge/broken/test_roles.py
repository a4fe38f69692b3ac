"""Outputs of any scale, in any precision: what a role is for, per row and per channel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.judge.broken.conftest import Shell
from tests.judge.seeded.changes import first_row
from tests.judge.seeded.graph import Change, Graph

MODEL_NAMES = ("classifier", "detector", "embedding", "attention")


def wrap(output: str, new: Callable[[Graph, str], str]) -> Change:
    return lambda g: g.wrap(output, lambda x: new(g, x))


def times(output: str, factor: float | np.ndarray) -> Change:
    return wrap(output, lambda g, x: g.add("Mul", x, np.asarray(factor, np.float32)))


def plus(output: str, term: float | np.ndarray) -> Change:
    return wrap(output, lambda g, x: g.add("Add", x, np.asarray(term, np.float32)))


def backwards(output: str, axis: int) -> Change:
    places = [np.array([a]) for a in (-1, -9999, axis, -1)]
    return wrap(output, lambda g, x: g.add("Slice", x, *places))


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
}


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_clean_graphs_are_verified(shell: Shell, model: str) -> None:
    said = shell.judged(model, precision="int8")
    assert (said.status, said.code) == ("verified", 0), said.sentences


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_scale_order_or_class_is_rejected(shell: Shell, fault: str) -> None:
    model, precision, change = FAULTS[fault]
    said = shell.judged(model, change, precision)
    assert (said.status, said.code) == ("rejected", 3), said.sentences
