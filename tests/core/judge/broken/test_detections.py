"""A detector's graph with its non-maximum suppression, whole and broken."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.judge.broken.conftest import Change, Shell
from tests.core.judge.broken.test_kinds import plus
from tests.core.judge.seeded.graph import Graph
from tests.detectors import MOST


def permuted(g: Graph) -> None:
    """The first class for the second, and the other way about."""

    def other(x: str) -> str:
        there = g.add("Cast", g.add("Greater", g.add("Slice", x, *places(4)), np.float32(0)), to=1)
        turned = g.add("Mul", there, g.add("Sub", np.float32(1), g.add("Slice", x, *places(5))))
        rest = g.add("Slice", x, *(np.array([a]) for a in (0, 5, 2)))
        return g.add("Concat", rest, turned, axis=2)

    g.wrap("detections", other)


def places(channel: int) -> list[np.ndarray]:
    return [np.array([a]) for a in (channel, channel + 1, 2)]


def without_the_best(g: Graph) -> None:
    pads = np.array([0, 0, 0, 0, 1, 0])
    g.wrap("detections", lambda x: g.add("Pad", g.add("Slice", x, *(np.array([a]) for a in (1, MOST, 1))), pads))
    g.wrap("count", lambda x: g.add("Max", g.add("Sub", x, np.int64(1)), np.int64(0)))


SHIFT = np.where(np.arange(MOST)[:, None] == 0, np.array([4, 4, 4, 4, 0, 0]), 0)
FAULTS: dict[str, tuple[Change, str]] = {
    "a box shifted": (plus("detections", SHIFT), "iou"),
    "classes permuted": (permuted, "detection gap"),
    "a box missing": (without_the_best, "detection gap"),
    "a count off by one": (lambda g: g.wrap("count", lambda x: g.add("Add", x, np.int64(1))), "own count"),
}


@pytest.fixture
def detector(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr("tests.core.judge.broken.conftest.MODELS", "tests.detectors")
    return shell


def test_a_right_graph_is_verified(detector: Shell) -> None:
    said = detector.judged("detections")
    assert (said.status, said.code) == ("verified", 0), said.sentences


@pytest.mark.nightly(
    but=(
        "a box shifted",
        "a count",
    )
)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_graph_is_rejected(detector: Shell, fault: str) -> None:
    change, metric = FAULTS[fault]
    said = detector.judged("detections", change)
    assert (said.status, said.code) == ("rejected", 3), said.sentences
    assert metric in {reason.get("metric") for reason in said.reasons}
