"""Rows that nobody looked at: every row of every output counts, wherever its batch axis is."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.judge.broken.conftest import Shell
from tests.core.judge.seeded.graph import Change, Graph


def last_rows(output: str, axis: int, first: int, value: float) -> Change:
    """From a row on, a value is added to what stands there along an axis (if the batch has so many)."""

    def change(g: Graph) -> None:
        def new(x: str) -> str:
            places = g.add("Range", np.int64(0), g.add("Gather", g.add("Shape", x), np.int64(axis)), np.int64(1))
            late = g.add("Cast", g.add("GreaterOrEqual", places, np.int64(first)), to=1)
            shape = np.array([-1 if a == axis else 1 for a in range(3 if output in ("second", "features") else 2)])
            return g.add("Add", x, g.add("Mul", g.add("Reshape", late, shape), np.float32(value)))

        g.wrap(output, new)

    return change


def test_clean_graphs_are_verified(shell: Shell) -> None:
    for model in ("axes", "chosen"):
        said = shell.judged(model)
        assert said.status == "verified", said.sentences


@pytest.mark.nightly(but=("second-0-1",))
@pytest.mark.parametrize(
    ("output", "axis", "first"), [("second", 1, 5), ("second", 0, 1), ("last", 1, 2), ("last", 0, 23)]
)
def test_a_late_row_is_compared_wherever_the_batch_axis_is(shell: Shell, output: str, axis: int, first: int) -> None:
    said = shell.judged("axes", last_rows(output, axis, first, 0.1))
    assert (said.status, said.code) == ("rejected", 3)
    assert {reason["output"] for reason in said.reasons} == {output}


def test_what_is_one_thing_is_compared_as_one(shell: Shell) -> None:
    said = shell.judged("axes", last_rows("one", 0, 0, 1.0))
    assert {reason["output"] for reason in said.reasons} == {"one"}


@pytest.mark.nightly(but=("nan",))
@pytest.mark.parametrize("value", [np.nan, np.inf, 0.5])
def test_features_of_every_place_of_every_image_are_compared(shell: Shell, value: float) -> None:
    """The last place of images that are no longer among the first four."""

    def change(g: Graph) -> None:
        def new(x: str) -> str:
            mean = g.add("ReduceMean", "x", np.array([1]), keepdims=0)
            late = g.add("Less", mean, np.float32(THRESHOLD))
            place = g.const((np.arange(6) == 5)[None, :, None])
            where = g.add("And", g.add("Reshape", late, np.array([-1, 1, 1])), place)
            return g.add("Where", where, np.float32(value), x)

        g.wrap("features", new)

    said = shell.judged("chosen", change)
    assert said.status == "rejected"
    named = {reason["row"] for reason in said.reasons if reason["batch"] == "evaluation"}
    assert LATE in named
    assert all(name in (LATE, "all inputs") or name.startswith("channel ") for name in named), named


def _means() -> np.ndarray:
    from tests.core.judge.broken.models import real

    return np.asarray(real().inputs["x"].mean(1))


LATE = f"sample {4 + int(_means()[4:].argmin())}"
THRESHOLD = float(np.sort(_means())[:2].mean())
assert _means()[:4].min() > THRESHOLD, "the smallest mean must be a late row's"
