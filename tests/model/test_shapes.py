from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.model.shapes import BATCHES, between, fixed_sizes, grid, size_text
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
    for shape in (*grid(axes), *between(axes)):
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
    assert not [shape for shape in between(axes) if shape in shapes]


def test_sizes_that_an_artifact_may_be_fixed_at_are_asked_one_row_at_a_time() -> None:
    axes = {"batch": Axis(1, 1, 8), "height": Axis(224, 96, 512, 16), "width": Axis(224, 96, 512, 16)}
    found = fixed_sizes(axes)
    assert [size_text(sizes) for sizes in found[:3]] == ["224x224", "96x96", "512x512"]
    assert all({"batch": 1, **sizes} in [dict(shape) for shape in grid(axes)] for sizes in found)
    assert len({size_text(sizes) for sizes in found}) == len(found)
    assert fixed_sizes({"batch": Axis(1, 1, 8)}) == ()
    assert [size_text(sizes) for sizes in fixed_sizes({"length": Axis(16, 8, 32)})] == ["16", "8", "32", "17"]
