from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.model.shapes import BANDS, BATCHES, fixed_sizes, grid, shapes_between, size_text
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


def test_a_model_without_axes_has_one_shape() -> None:
    assert grid({}) == ({},)
    assert all(set(shape) == {"width"} for shape in grid({"width": Axis(8, 4, 16, 4)}))


@st.composite
def one_axis(draw: st.DrawFn) -> Axis:
    """Any axis that a model may declare; its maximum need not be a multiple."""
    step = draw(st.integers(1, 32))
    minimum, default = sorted(step * draw(st.integers(1, 12)) for _ in range(2))
    return Axis(default, minimum, default + draw(st.integers(0, 40)), step)


AXES = st.dictionaries(st.sampled_from(["batch", "height", "width", "tokens"]), one_axis(), max_size=4)


@settings(max_examples=60, deadline=None)
@given(AXES)
def test_every_shape_that_is_asked_is_one_that_the_model_declares(axes: dict[str, Axis]) -> None:
    for shape in (*grid(axes), *shapes_between(axes)):
        assert set(shape) == set(axes)
        for name, size in shape.items():
            assert axes[name].minimum <= size <= axes[name].maximum
            assert size % axes[name].multiple_of == 0, (name, size)


@settings(max_examples=60, deadline=None)
@given(AXES)
def test_the_grid_meets_the_ends_of_every_axis_and_shapes_between_are_new(axes: dict[str, Axis]) -> None:
    shapes = grid(axes)
    for name, axis in axes.items():
        if name != "batch":
            met = {shape[name] for shape in shapes}
            assert {axis.default, axis.minimum, axis.maximum // axis.multiple_of * axis.multiple_of} <= met
    assert not [shape for shape in shapes_between(axes) if shape in shapes]


def test_shapes_are_those_that_people_use() -> None:
    asked = {tuple(shape.values()) for shape in (*grid(IMAGE), *shapes_between(IMAGE))}
    assert {(1, size, size) for size in range(96, 513, 16)} <= asked
    assert {(batch, 224, 224) for batch in range(1, 9)} <= asked
    assert {(8, 96, 96), (8, 512, 512), (1, 96, 512), (1, 512, 96), (6, 320, 512)} <= asked
    assert len(asked) <= 72  # each costs a run of every artifact


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(BANDS, 40), min_size=2, max_size=4))
def test_every_pair_of_bands_of_two_axes_is_met(lengths: list[int]) -> None:
    axes = {f"axis {n}": Axis(1, 1, length) for n, length in enumerate(lengths)}
    asked = (*grid(axes), *shapes_between(axes))
    bands = {name: np.array_split(np.arange(1, axis.maximum + 1), BANDS) for name, axis in axes.items()}

    def band(name: str, size: int) -> int:
        return next(number for number, one in enumerate(bands[name]) if size in one)

    for one, other in itertools.combinations(axes, 2):
        met = {(band(one, shape[one]), band(other, shape[other])) for shape in asked}
        assert len(met) == BANDS**2


def test_sizes_that_an_artifact_may_be_fixed_at_are_asked_one_row_at_a_time() -> None:
    found = fixed_sizes(IMAGE)
    assert [size_text(sizes) for sizes in found[:3]] == ["224x224", "96x96", "512x512"]
    assert all({"batch": 1, **sizes} in [dict(shape) for shape in grid(IMAGE)] for sizes in found)
    assert len({size_text(sizes) for sizes in found}) == len(found)
    assert fixed_sizes({"batch": Axis(1, 1, 8)}) == ()
    assert [size_text(sizes) for sizes in fixed_sizes({"length": Axis(16, 8, 32)})] == ["16", "8", "32", "17"]
