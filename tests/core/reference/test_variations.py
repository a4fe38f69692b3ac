"""Real rows varied a little: pictures of another camera, and numbers just beyond those of the data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.reference.batches import EVALUATION, STRESS, batches_for
from edgekit.reference.variations import (
    EXPOSED,
    PACES,
    UNFOCUSED,
    are_waves,
    camera_rows,
    distinct,
    drifting_rows,
    paced_rows,
    rows_beyond,
)


def classifier(role: str = "logits", size: int = 4) -> ModelSpec:
    images = Input("images", ("batch", 3, size, size), low=-1.0, high=1.0, kind="image")
    output = Output("y", role=role)  # type: ignore[arg-type]  # one of the roles
    return ModelSpec("net", torch.nn.Identity(), (images,), (output,))


def test_a_classifier_of_pictures_is_asked_pictures_from_all_over_the_set_with_clipped_values() -> None:
    draw = np.random.default_rng(0)
    rows = {f"picture {n}": {"images": draw.uniform(-1, 1, (1, 3, 4, 4)).astype(np.float32)} for n in range(120)}
    exposed = {name: row for name, row in camera_rows(classifier(), rows).items() if "exposed" in name}
    assert len(exposed) == EXPOSED
    assert len({name.partition(",")[0] for name in exposed}) == EXPOSED
    assert int([*exposed][-1].partition(",")[0].split()[1]) > 110
    picture = exposed["picture 4, exposed 1.5 times"]["images"]
    assert np.allclose(picture, np.minimum(1.5 * (rows["picture 4"]["images"] + 1) - 1, 1), atol=1e-6)
    assert picture.max() == 1.0
    assert not camera_rows(classifier("embedding"), rows)


@pytest.mark.parametrize(
    ("role", "exposed", "unfocused"), [("logits", EXPOSED, UNFOCUSED), ("boxes", 0, UNFOCUSED // 2)]
)
def test_a_decision_on_pictures_is_asked_for_blurred_objects_in_each_corner_and_mirrored(
    role: str, exposed: int, unfocused: int
) -> None:
    picture = np.full((1, 3, 40, 40), -1.0, np.float32)
    picture[..., 16:24, 16:20] = 1.0
    picture[..., 16:24, 20:24] = 0.5
    rows = camera_rows(classifier(role, 40), {f"picture {n}": {"images": picture} for n in range(unfocused)})
    moved = {name: row["images"] for name, row in rows.items() if "out of focus" in name}
    assert (len(moved), len(rows) - len(moved)) == (unfocused, min(exposed, unfocused))
    for name, image in moved.items():
        weights = (image[0].mean(0) + 1).astype(np.float64)
        down, across = (float((weights.sum(axis) * np.arange(40)).sum() / weights.sum()) for axis in (1, 0))
        assert (down < 15, across < 15) == ("upper" in name, "left" in name)
        assert (down > 25, across > 25) == ("lower" in name, "right" in name)
        assert np.abs(np.diff(image, axis=-2)).max() < 0.7  # an edge of 2 before
        assert image.min() >= -1
    left, right = (moved[f"picture {n}, out of focus in the upper left"][0, 0] for n in (0, 4))
    assert left[..., :10].sum() > right[..., :10].sum()


def test_each_number_of_a_row_is_asked_alone_just_beyond_the_data_and_within_its_range() -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (20, 5)).astype(np.float32)
    values[:, 4] = np.linspace(-10, 10, 20)  # its ends are those of the range
    spec = ModelSpec("net", torch.nn.Identity(), (Input("x", ("batch", 5), low=-10, high=10),), (Output("y"),))
    rows = rows_beyond(spec, {f"row {n}": {"x": values[n : n + 1]} for n in range(20)})
    for column in range(4):
        alone = [row["x"][0] for name, row in rows.items() if f"in value {column} " in name]
        reached = sorted(float(row[column]) for row in alone)
        low, high = values[:, column].min(), values[:, column].max()
        assert np.allclose(reached, [low - 0.1 * (high - low), high + 0.1 * (high - low)], atol=1e-5)
        assert all(np.delete(row, column).tolist() in np.delete(values, column, 1).tolist() for row in alone)
    assert not [name for name in rows if "in value 4 " in name]
    stretched = [row["x"] for name, row in rows.items() if "times as far" in name]
    assert len(stretched) == 8
    assert max(np.abs(row).max() for row in stretched) <= 10


def table(values: np.ndarray) -> tuple[ModelSpec, EvaluationSet]:
    axes = {"batch": Axis(1, 1, 8)}
    x = Input("x", ("batch", values.shape[1]), low=float(values.min()), high=float(values.max()))
    spec = ModelSpec("net", torch.nn.Identity(), (x,), (Output("y"),), axes=axes)
    return spec, EvaluationSet({"x": values}, tuple(f"row {n}" for n in range(len(values))))


def test_numbers_of_several_units_are_drawn_and_moved_in_the_range_of_their_own_column() -> None:
    draw = np.random.default_rng(0)
    columns = (draw.uniform(18, 90, 40), draw.uniform(-3000, 9000, 40), draw.uniform(0, 1, 40))
    values = np.stack(columns, 1).astype(np.float32)
    batches = {batch.name: batch.inputs["x"] for batch in batches_for(*table(values))}
    low, span = values.min(0), np.ptp(values, 0)
    for name, made in batches.items():
        # Just beyond the data are asked a few rows; nothing is far from it but a silence, which is zero.
        near = (made >= low - 0.2 * span - 1e-3) & (made <= low + 1.2 * span + 1e-3)
        assert (near | (made == 0) | (np.abs(made) < 10)).all(), name
    stress = batches[STRESS]
    assert np.allclose((stress.min(0), stress.max(0)), (low, low + span), rtol=1e-5)
    assert any(name.startswith("grid") for name in batches)
    assert np.array_equal(batches[EVALUATION], values)


def test_numbers_of_one_unit_are_drawn_in_the_range_of_their_input() -> None:
    values = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32) * [1, 2, 3]
    spec, rows = table(values.astype(np.float32))
    stress = next(batch for batch in batches_for(spec, rows) if batch.name == STRESS)
    assert (stress.inputs["x"].min(), stress.inputs["x"].max()) == (
        values.min().astype(np.float32),
        values.max().astype(np.float32),
    )


def test_rows_that_became_the_same_are_asked_once() -> None:
    first, other = np.array([[101, 0]]), np.array([[101, 7]])
    rows = {"a, the first 1 of 3": {"ids": first}, "b, the first 1 of 2": {"ids": first.copy()}, "c": {"ids": other}}
    assert [*distinct(rows)] == ["a, the first 1 of 3", "c"]


def test_signals_are_played_faster_and_slower() -> None:
    time = np.linspace(0, 1, 400, dtype=np.float32)
    signal = Input("x", ("batch", 2, 400), low=-1.0, high=1.0)
    spec = ModelSpec("net", torch.nn.Identity(), (signal, Input("age", ("batch", 1), low=0.0)), (Output("y"),))
    wave = np.stack([np.sin(40 * np.pi * time), np.cos(40 * np.pi * time)])[None]
    rows = {f"row {n}": {"x": wave, "age": np.ones((1, 1), np.float32)} for n in range(3)}
    found = paced_rows(spec, rows)
    assert len(found) == 6
    for change, paces in PACES.items():
        for number, pace in enumerate(paces):
            row = found[f"row {number}, {change}"]
            assert row["age"] == 1
            assert row["x"].shape == wave.shape
            assert row["x"].dtype == np.float32
            turns = int((np.diff(np.sign(row["x"][0]), axis=1) != 0).sum(1).mean())
            assert turns == pytest.approx(40 * pace, abs=2)
    short = ModelSpec("net", torch.nn.Identity(), (Input("x", ("batch", 8), low=-1.0),), (Output("y"),))
    assert not paced_rows(short, {"row": {"x": np.ones((1, 8), np.float32)}})


def test_each_channel_of_a_signal_leaves_the_data_alone() -> None:
    draw = np.random.default_rng(0)
    signal = Input("x", ("batch", 24, 3), low=-4.0, high=4.0)
    spec = ModelSpec("net", torch.nn.Identity(), (signal, Input("age", ("batch", 1), low=0.0)), (Output("y"),))
    values = (draw.uniform(-1, 1, (50, 1, 3)) + draw.normal(0, 0.005, (50, 24, 3))).astype(np.float32)
    rows = {f"day {n}": {"x": values[n : n + 1], "age": np.ones((1, 1), np.float32)} for n in range(50)}
    found = drifting_rows(spec, rows)
    assert len(found) == 3 * 4 * 2
    coldest = int(values[:, :, 1].mean(1).argmin())
    colder = found[f"day {coldest}, 'x' 1 lower"]["x"]
    assert colder.shape == (1, 24, 3)
    assert colder.dtype == np.float32
    assert colder[..., 1].mean() < values[:, :, 1].mean(1).min() - 0.5
    assert np.array_equal(colder[..., ::2], values[coldest : coldest + 1, :, ::2])
    falling = [row["x"][0, :, 2] for name, row in found.items() if name.endswith("2 falling")]
    assert all((np.diff(x[-7:]) < -0.03).all() for x in falling)
    assert max(np.abs(row["x"]).max() for row in found.values()) <= 4
    pictures = Input("x", ("batch", 24, 24), low=-4.0, high=4.0)
    wide = ModelSpec("net", torch.nn.Identity(), (pictures,), (Output("y"),))
    assert not drifting_rows(wide, {"map": {"x": np.zeros((1, 24, 24), np.float32)}})


@pytest.mark.parametrize(("offset", "waves"), [(0.0, True), (0.3, False)])
def test_a_sound_is_not_asked_as_a_whisper_beside_a_constant(offset: float, waves: bool) -> None:
    """fp16 has a hundred steps for a twentieth of a signal near 0.95; a temperature may be there."""
    inputs = (Input("x", ("batch", 128), low=-1.0, high=1.0),)
    spec = ModelSpec("net", torch.nn.Identity(), inputs, (Output("y"),), {"batch": Axis(1, 1, 8)})
    values = np.random.default_rng(0).normal(offset, 0.2, (4, 128)).clip(-1, 1).astype(np.float32)
    values -= 0 if offset else values.mean(1, keepdims=True)
    names = tuple(f"clip {n}" for n in range(4))
    assert are_waves(spec, [(name, {"x": values[n : n + 1]}) for n, name in enumerate(names)]) is waves
    asked = {name for b in batches_for(spec, EvaluationSet({"x": values}, names)) for name in b.names}
    near_end = {name for name in asked if "at 5% of its distance from the lowest" in name or "mean 0.0192" in name}
    assert bool(near_end) is not waves
    assert any("at 5% of its distance from the middle" in name for name in asked)
