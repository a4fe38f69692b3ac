from __future__ import annotations

import pytest

from edgekit.model.shapes import BATCHES, grid
from edgekit.model.spec import Axis

IMAGE = {"batch": Axis(1, 1, 8), "height": Axis(224, 96, 512, 16), "width": Axis(224, 96, 512, 16)}


def test_every_batch_meets_the_default_and_another_size_and_every_size_meets_one_image() -> None:
    shapes = grid(IMAGE)
    assert {s["batch"] for s in shapes if (s["height"], s["width"]) == (224, 224)} == set(BATCHES)
    others = {(s["height"], s["width"]) for s in shapes} - {(224, 224)}
    assert others
    met = [{s["batch"] for s in shapes if (s["height"], s["width"]) == size} for size in others]
    assert all(min(BATCHES) in batches and len(batches) <= 2 for batches in met)
    assert set.union(*met) == set(BATCHES)
    assert len(shapes) <= 20


def test_height_and_width_differ_in_both_directions() -> None:
    shapes = grid(IMAGE)
    assert any(s["height"] > s["width"] for s in shapes)
    assert any(s["height"] < s["width"] for s in shapes)
    assert {s["height"] for s in shapes} == {s["width"] for s in shapes} == {96, 224, 240, 512}


@pytest.mark.parametrize("axis", [Axis(224, 96, 512, 16), Axis(100, 50, 149, 50), Axis(32, 32, 32, 32), Axis(7, 1, 9)])
def test_no_shape_leaves_its_axis(axis: Axis) -> None:
    for shape in grid({"batch": Axis(1, 1, 8), "height": axis}):
        assert axis.minimum <= shape["height"] <= axis.maximum


def test_sizes_are_multiples_where_the_axis_is_whole() -> None:
    axis = Axis(64, 32, 100, 32)  # 100 is no multiple of 32: the largest that can be proved is 96
    assert {shape["height"] for shape in grid({"height": axis})} == {32, 64, 96}


def test_a_batch_that_is_limited_is_not_exceeded() -> None:
    assert {shape["batch"] for shape in grid({"batch": Axis(1, 1, 2)})} == {1, 2}
    assert {shape["batch"] for shape in grid({"batch": Axis(4, 4, 4)})} == {4}


def test_a_model_without_axes_has_one_shape() -> None:
    assert grid({}) == ({},)
    assert all(set(shape) == {"width"} for shape in grid({"width": Axis(8, 4, 16, 4)}))
