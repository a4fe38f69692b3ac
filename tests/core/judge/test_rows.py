"""Rows are found wherever the batch axis stands; sketches find what differs in any row."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.evaluate.rows import rows_of
from edgekit.judge.rows import PROJECTIONS, row_axes, row_names, shape_of, sketch
from edgekit.model.spec import Output


def runs(*shapes: tuple[int, ...]) -> list[tuple[int, dict[str, np.ndarray]]]:
    return [(rows, {"y": np.zeros(shape)}) for rows, shape in zip((1, 2, 3), shapes, strict=False)]


@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        (((1, 5), (2, 5), (3, 5)), 0),
        (((2, 1, 64), (2, 2, 64), (2, 3, 64)), 1),
        (((4, 4, 1), (4, 4, 2)), 2),
        (((100, 5), (200, 5), (300, 5)), None),
        (((100, 5), (100, 5)), None),
        (((1, 1), (2, 2)), None),
        (((1, 7),), 0),
        (((7, 1),), None),
        (((), ()), None),
    ],
)
def test_the_batch_axis_is_the_one_that_always_has_the_batchs_size(
    shapes: tuple[tuple[int, ...], ...], axis: int | None
) -> None:
    assert row_axes((Output("y"),), runs(*shapes)) == {"y": axis}


def test_what_is_declared_counts() -> None:
    seen = runs((1, 1), (2, 2))
    assert row_axes((Output("y", axes=("time", "batch")),), seen) == {"y": 1}
    assert row_axes((Output("y", axes=("boxes", "corners")),), seen) == {"y": None}


def test_rows_come_first_and_one_thing_is_one_row() -> None:
    two = [(2, {"y": np.arange(12).reshape(3, 2, 2)}), (1, {"y": np.arange(6).reshape(3, 1, 2)})]
    assert rows_of(two, {"y": 1})["y"].shape == (3, 3, 2)
    assert np.array_equal(rows_of(two, {"y": 1})["y"][0], [[0, 1], [4, 5], [8, 9]])
    assert rows_of(two[:1], {"y": None})["y"].shape == (1, 3, 2, 2)
    assert row_names(("a", "b"), 2) == ("a", "b")
    assert row_names(("a", "b"), 1) == ("all rows",)
    assert shape_of("y", [({}, (4, 3, 2))], 1) == (3, "batch", 2)
    assert shape_of("y", [({}, (1, 3, 2))], None) == (3, 2)


def test_a_size_that_varies_has_the_name_of_its_axis_or_its_own() -> None:
    shapes = [({"time": 8, "width": 4}, (2, 8, 2, 5)), ({"time": 9, "width": 6}, (1, 9, 3, 5))]
    assert shape_of("y", shapes, 0) == ("batch", "time", "y_2", 5)
    assert shape_of("y", shapes, 1) == ("time", "batch", "y_2", 5)
    assert shape_of("y", shapes, None) == ("time", "y_1", 5)


@pytest.mark.parametrize("wrong", [1, 8, 300])
def test_a_sketch_shows_an_error_of_any_spread_at_a_third_of_its_size(wrong: int) -> None:
    """The bound of the docstring, for errors in one value, some and all."""
    draw = np.random.default_rng(wrong)
    rows = draw.standard_normal((200, 300)).astype(np.float32)
    error = np.zeros_like(rows)
    error[:, :wrong] = 0.01 * draw.standard_normal((200, wrong))
    size = np.sqrt((error**2).mean(1))
    shown = np.abs(sketch(rows + error) - sketch(rows)).max(1)
    assert sketch(rows).shape == (200, 1 + PROJECTIONS)
    assert (shown >= 0.3 * size - 1e-6).mean() >= 1 - 0.006
    assert (shown <= np.sqrt(300) * size + 1e-6).all()


def test_nan_and_scale_are_seen_in_a_sketch() -> None:
    rows = np.ones((2, 40), np.float32)
    rows[1, 7] = np.nan
    assert np.isfinite(sketch(rows)[0]).all()
    assert not np.isfinite(sketch(rows)[1, 0])
    assert sketch(3 * rows)[0, 0] == pytest.approx(3)
