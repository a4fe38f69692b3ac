"""Faults with a condition: a size, a batch, a brightness, a query, chance. Each is right wherever it does not hold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.core.judge.broken.conftest import Shell
from tests.core.judge.broken.test_kinds import when_darkish, wrap
from tests.core.judge.seeded.graph import Change, Graph

Condition = Callable[[Graph], str]
"""Adds nodes that give [] or [B, 1] bool."""


def inverted(condition: Condition) -> Change:
    """Relevance is 1 less itself where the condition holds."""

    def change(g: Graph) -> None:
        where = condition(g)
        g.wrap("relevance", lambda x: g.add("Where", where, g.add("Sub", np.float32(1), x), x))

    return change


def size(axis: int, *sizes: int) -> Condition:
    def holds(g: Graph) -> str:
        found = g.add("Gather", g.add("Shape", "images"), np.int64(axis))
        return g.add("ReduceMax", g.add("Cast", g.add("Equal", found, np.array(sizes)), to=6), keepdims=0)

    return lambda g: g.add("Cast", holds(g), to=9)


def mean(g: Graph, of: str = "images") -> str:
    axes = np.array([1, 2, 3]) if of == "images" else np.array([1])
    made = g.add("ReduceMean", of, axes, keepdims=0)
    return g.add("Unsqueeze", made, np.array([1]))


def spread(g: Graph) -> str:
    """[B, 1]: the largest minus the smallest value of a picture."""
    axes = np.array([1, 2, 3])
    most, least = (g.add(op, "images", axes, keepdims=0) for op in ("ReduceMax", "ReduceMin"))
    return g.add("Unsqueeze", g.add("Sub", most, least), np.array([1]))


def colour(g: Graph) -> str:
    """[B, 1]: the largest difference of two channels of a pixel."""
    across = [g.add(op, "images", np.array([1]), keepdims=0) for op in ("ReduceMax", "ReduceMin")]
    most = g.add("ReduceMax", g.add("Sub", *across), np.array([1, 2]), keepdims=0)
    return g.add("Unsqueeze", most, np.array([1]))


def channel_mean(g: Graph, channel: int) -> str:
    """[B, 1]: the mean of a channel of a picture."""
    one = g.add("Gather", "images", np.array([channel]), axis=1)
    return g.add("Unsqueeze", g.add("ReduceMean", one, np.array([1, 2, 3]), keepdims=0), np.array([1]))


def both(g: Graph, one: str, other: str) -> str:
    return g.add("And", one, other)


def below(value: str, limit: float) -> Condition:
    return lambda g: g.add("Less", MEASURES[value](g), np.float32(limit))


def rows_times_area(g: Graph) -> str:
    """[]: pixels of a run."""
    sizes = g.add("Gather", g.add("Shape", "images"), np.array([0, 2, 3]))
    return g.add("Cast", g.add("ReduceProd", sizes, keepdims=0), to=1)


def square(g: Graph, *but: int) -> str:
    """[]: whether a picture is square, and of none of some sizes."""
    height, width = (g.add("Gather", g.add("Shape", "images"), np.int64(axis)) for axis in (2, 3))
    known = size(2, *but)(g)
    return both(g, g.add("Equal", height, width), g.add("Not", known))


MEASURES: dict[str, Callable[[Graph], str]] = {
    "mean": mean,
    "spread": spread,
    "colour": colour,
    "query": lambda g: g.add("ReduceMax", g.add("Abs", "query"), np.array([1]), keepdims=1),
}


def rarely(g: Graph) -> str:
    """In one run of thirty or so; ONNX Runtime draws the same numbers in every session."""
    drawn = g.add("RandomUniform", shape=[1], seed=7.0, dtype=1)
    return g.add("Reshape", g.add("Greater", drawn, np.float32(0.97)), np.array([], np.int64))


CONDITIONS: dict[str, Condition] = {
    "a height between two of the grid": size(2, 56),
    "a width between two of the grid": size(3, 88),
    "batch 5": size(0, 5),
    "batch 4 to 7": size(0, 4, 5, 6, 7),
    "squares that the grid lacks": lambda g: square(g, 32, 40, 64, 72, 96),
    "large runs": lambda g: g.add("Greater", rows_times_area(g), np.float32(7 * 88 * 88)),
    "batch 6 and height 96": lambda g: both(g, size(0, 6)(g), size(2, 96)(g)),
    "dark pictures": lambda g: both(g, below("mean", 0.08)(g), g.add("Greater", spread(g), np.float32(0.001))),
    "bright pictures": lambda g: both(
        g, g.add("Greater", mean(g), np.float32(0.92)), g.add("Greater", spread(g), np.float32(0.001))
    ),
    "low contrast": lambda g: both(g, below("spread", 0.3)(g), g.add("Greater", spread(g), np.float32(0.01))),
    "a narrow band of brightness": lambda g: both(
        g, g.add("Greater", mean(g), np.float32(0.73)), below("mean", 0.77)(g)
    ),
    "grey pictures": lambda g: both(g, below("colour", 0.02)(g), g.add("Greater", spread(g), np.float32(0.2))),
    "flat colours": lambda g: both(g, below("spread", 0.9)(g), g.add("Greater", colour(g), np.float32(0.02))),
    "bluish pictures": lambda g: g.add(
        "Greater", g.add("Sub", channel_mean(g, 2), channel_mean(g, 0)), np.float32(0.05)
    ),
    "a query of zero": below("query", 1e-6),
    "chance": rarely,
}


@pytest.mark.nightly(
    but=(
        "a height between",
        "batch 5",
        "a query of zero",
        "dark",
        "chance",
        "flat",
    )
)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_fault_with_a_condition_is_rejected(shell: Shell, condition: str) -> None:
    said = shell.judged("looking", inverted(CONDITIONS[condition]))
    assert (said.status, said.code) == ("rejected", 3)


def test_a_query_that_is_ignored_at_other_sizes_is_rejected(shell: Shell) -> None:
    """With random pictures alone the map of each size would hardly depend on it."""

    def change(g: Graph) -> None:
        height = g.add("Gather", g.add("Shape", "images"), np.int64(2))
        keep = g.add("Equal", height, np.int64(64))
        g.wrap("query", lambda x: g.add("Where", keep, x, g.add("Mul", x, np.float32(0.97))))

    assert shell.judged("looking", change).status == "rejected"


def test_chance_is_found_by_what_was_asked_twice_or_timed(shell: Shell) -> None:
    said = shell.judged("looking", inverted(rarely))
    assert any(reason["batch"].endswith(" again") for reason in said.reasons), said.sentences


@pytest.mark.nightly
def test_int8_answers_are_wrong_for_dark_pictures(shell: Shell) -> None:
    said = shell.judged("in_bytes", wrap("logits", when_darkish), "int8")
    assert said.status == "rejected", said.sentences
    assert {reason["batch"] for reason in said.reasons} & {"changed", "changed inputs", "levelled"}


@pytest.mark.nightly
def test_numbers_at_one_of_their_ends_are_asked_in_each_precision(shell: Shell) -> None:
    def change(g: Graph) -> None:
        low = g.add("Less", g.add("ReduceMean", "x", np.array([1]), keepdims=1), np.float32(-0.7))
        g.wrap("logits", lambda x: g.add("Where", low, g.add("Neg", x), x))

    for precision in ("fp32", "int8"):
        assert {reason["batch"] for reason in shell.judged("classifier", change, precision).reasons} >= {"shifted"}


def test_a_number_just_beyond_the_data_is_asked_in_a_real_row(shell: Shell) -> None:
    """Random rows have many numbers beyond the data at once."""

    def change(g: Graph) -> None:
        beyond = g.add("Cast", g.add("Greater", g.add("Abs", "x"), np.float32(0.5)), to=1)
        count = g.add("ReduceSum", beyond, np.array([1]), keepdims=1)
        one = g.add("Equal", count, np.float32(1))
        g.wrap("logits", lambda x: g.add("Where", one, g.add("Mul", x, np.float32(0.5)), x))

    said = shell.judged("table", change)
    assert said.status == "rejected"
    assert {reason["batch"] for reason in said.reasons} == {"shifted"}
    assert all("beyond the data" in r["row"] or "far from the mean" in r["row"] for r in said.reasons), said.sentences


@pytest.mark.nightly
def test_int8_is_judged_by_its_ranks_on_photographs_which_are_named(shell: Shell) -> None:
    """Also of a model without an evaluation set; and on real inputs of other sizes."""
    clean = shell.judged("looking", precision="int8")
    assert clean.status == "verified", clean.sentences
    flatter = shell.judged("looking", lambda g: g.wrap("relevance", lambda x: g.add("Mul", x, x)), "int8")
    assert flatter.status == "rejected"
    assert any(r["row"].startswith("photograph ") and r["batch"] == "photographs" for r in flatter.reasons)
    between = shell.judged("looking", inverted(size(2, 56)), "int8")
    assert {reason["metric"] for reason in between.reasons} >= {"spearman"}
    assert all("height 56" in reason["batch"] or reason["batch"] == "real inputs" for reason in between.reasons)
