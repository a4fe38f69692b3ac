from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgekit.model.shapes import grid, shapes_between
from edgekit.model.spec import Input
from edgekit.reference.batches import (
    BETWEEN,
    CHANGED,
    EVALUATION,
    GRID,
    LEVELLED,
    LEVELS,
    PHOTOGRAPHS,
    RESIZED,
    SHIFTED,
    STRESS,
    Batch,
    applicable_batches,
    batches_for,
    inputs_digest,
    same_inputs,
    stress_batch,
)
from edgekit.reference.pictures import resize
from edgekit.reference.store import arrays_of
from tests.core.reference.small_spec import evaluation, made, spec


def test_a_model_is_asked_real_inputs_strange_inputs_the_grid_and_what_lies_between() -> None:
    asked = batches_for(spec(), evaluation())
    shapes, others = grid(spec().axes), shapes_between(spec().axes)
    single = [b for b in asked if b.single]
    assert [b.name for b in single] == [EVALUATION, PHOTOGRAPHS, CHANGED, LEVELLED, STRESS]
    kinds = {name: [b for b in asked if b.name.startswith(f"{name}-")] for name in (GRID, RESIZED, BETWEEN)}
    assert [b.sizes for b in kinds[GRID]] == [b.sizes for b in kinds[RESIZED]] == list(shapes)
    assert [b.sizes for b in kinds[BETWEEN]] == list(others)
    for batch in asked[len(single) :]:
        assert batch.inputs["images"].shape == (batch.sizes["batch"], 3, batch.sizes["height"], 4)
        assert batch.inputs["n"].shape == (batch.sizes["batch"],)
        assert len(batch.names) == batch.sizes["batch"]
    assert [b.name for b in batches_for(spec(), None)] == [b.name for b in asked[1:]]
    assert same_inputs(asked, batches_for(spec(), evaluation()))


def test_real_inputs_are_resized_not_drawn_and_other_inputs_stay_theirs() -> None:
    real = evaluation()
    whole = next(b for b in batches_for(spec(), real) if b.name.startswith(RESIZED) and b.sizes["height"] == 8)
    assert any(np.array_equal(whole.inputs["images"][0], image) for image in real.inputs["images"])
    tall = resize(np.arange(8, dtype=np.float32).reshape(1, 8, 1).repeat(4, 2), 16, 4)
    assert np.all(np.diff(tall[0, :, 0]) >= 0)
    assert np.allclose(resize(np.full((1, 9, 5), 0.3, np.float32), 4, 7), 0.3)


def test_changed_pictures_are_dark_bright_grey_flat_barred_tinted_and_lit_from_one_side() -> None:
    batch = next(b for b in batches_for(spec(), None) if b.name == CHANGED)
    rows = dict(zip(batch.names, batch.inputs["images"], strict=True))
    pictures = {name.partition(", ")[2]: row for name, row in rows.items()}
    assert pictures["darkened to 0.05"].max() <= -1 + 0.05 * 4 + 1e-6
    assert pictures["brightened to 0.05"].min() >= 3 - 0.05 * 4 - 1e-6
    assert np.ptp(pictures["contrast 0.05"]) <= 0.05 * 4 + 1e-6
    assert np.ptp(pictures["grey"], axis=0).max() == 0 < np.ptp(pictures["grey"])
    assert np.ptp(pictures["flat"], axis=(1, 2)).max() == 0 < np.ptp(pictures["flat"])
    assert pictures["contrast 2"].std() > 1.2 * pictures["contrast 0.25"].std() * 4
    assert (pictures["black bars"][:, [0, -1]] == -1).all()
    assert (pictures["grey bars"][:, [0, -1]] == 1).all()
    light = {side: pictures[f"lit from the {side}"] + 1 for side in ("left", "right")}
    assert light["left"][:, :, 0].sum() > light["left"][:, :, -1].sum()
    assert light["right"][:, :, -1].sum() > light["right"][:, :, 0].sum()
    assert (pictures["reddish"][0] - pictures["reddish"][2]).mean() > 0.5
    assert (pictures["bluish"][2] - pictures["bluish"][0]).mean() > 0.5


def test_each_change_is_made_of_rows_of_its_own() -> None:
    batch = next(b for b in batches_for(spec(), evaluation(12)) if b.name == CHANGED)
    by_change: dict[str, set[str]] = {}
    for name in batch.names:
        by_change.setdefault(name.partition(", ")[2], set()).add(name.partition(", ")[0])
    assert len(by_change["darkened to 0.05"]) == 4
    assert len(set.union(*by_change.values())) == 12


def test_an_input_of_few_values_is_asked_at_its_ends() -> None:
    batch = next(b for b in batches_for(spec(), evaluation()) if b.name == CHANGED)
    rows = dict(zip(batch.names, batch.inputs["images"], strict=True))
    assert {name.partition(", ")[2] for name in rows if "all" in name} == {
        "'images' all 0",
        "'images' all -1",
        "'images' all 3",
        "'n' all 0",
        "'n' all 1",
    }


def test_every_band_of_brightness_as_wide_as_a_step_is_asked() -> None:
    batch = next(b for b in batches_for(spec(), None) if b.name == LEVELLED)
    shares = (batch.inputs["images"].astype(np.float64).mean((1, 2, 3)) + 1) / 4
    assert np.allclose(shares, LEVELS, atol=1e-6)
    assert (batch.inputs["images"].min() >= -1, batch.inputs["images"].max() <= 3) == (True, True)
    assert np.diff([0.0, *LEVELS, 1.0]).max() < 0.04  # a range so wide holds one, wherever its ends are
    assert len({name.partition(",")[0] for name in batch.names}) == 8
    own = next(b for b in batches_for(spec(), evaluation()) if b.name == LEVELLED)
    assert len({name.partition(",")[0] for name in own.names}) == 5


def test_without_pictures_all_floating_inputs_have_every_mean_and_integers_have_none() -> None:
    floats = replace(
        spec(), inputs=(Input("x", ("batch", 6), low=-2.0, high=2.0), Input("y", ("batch", 3)), spec().inputs[1])
    )
    batch = next(b for b in batches_for(floats, None) if b.name == SHIFTED)
    for name, low, span in (("x", -2, 4), ("y", 0, 1)):
        levelled = [number for number, row in enumerate(batch.names) if ", mean " in row]
        means = batch.inputs[name][levelled].astype(np.float64).mean(1)
        assert np.allclose((means - low) / span, LEVELS, atol=1e-6)
    assert "random, at 5% of its distance from the lowest" in batch.names
    assert len(np.unique(batch.inputs["n"][levelled])) == 1
    assert "random, 'x' silent at its start" in batch.names
    tokens = replace(spec(), inputs=(spec().inputs[1],))
    (ends,) = [b.names for b in batches_for(tokens, None) if b.name == SHIFTED]
    assert ends == ("random, 'n' all 0", "random, 'n' all 1")


def test_stress_holds_both_ends_the_middle_and_chance_and_nothing_beyond() -> None:
    batch = stress_batch(spec())
    rows = dict(zip(batch.names, batch.inputs["images"], strict=True))
    assert {name: set(np.unique(rows[name])) for name in ("all lowest", "all highest", "all middle")} == {
        "all lowest": {-1.0},
        "all highest": {3.0},
        "all middle": {1.0},
    }
    assert set(np.unique(rows["lowest or highest 0"])) == {-1.0, 3.0}
    assert not np.array_equal(rows["random 0"], rows["random 1"])
    assert (batch.inputs["images"].min(), batch.inputs["images"].max()) == (-1.0, 3.0)
    assert {name: str(array.dtype) for name, array in batch.inputs.items()} == {"images": "float32", "n": "int64"}


def test_rows_are_run_one_at_a_time_but_a_shape_of_the_grid_at_once() -> None:
    real, *_, shape = (
        b for b in batches_for(spec(), evaluation()) if b.name.partition("-")[0] in (EVALUATION, RESIZED)
    )
    assert real.single
    assert not shape.single
    assert [row["n"].tolist() for row in real.rows()] == [[0], [1], [2], [3], [4]]
    (whole,) = shape.rows()
    assert whole["images"].shape == shape.inputs["images"].shape


@pytest.mark.parametrize(("batch", "height"), [(True, True), (False, True), (True, False), (False, False)])
def test_a_fixed_axis_is_asked_its_default_only(batch: bool, height: bool) -> None:
    found = [b.sizes for b in applicable_batches(batches_for(spec(), evaluation()), made(batch, height)) if b.sizes]
    shapes = [b.sizes for b in batches_for(spec(), evaluation()) if b.sizes]
    wanted = [s for s in shapes if (batch or s["batch"] == 1) and (height or s["height"] == 8)]
    assert found == wanted
    assert len(wanted) < len(shapes) or (batch and height)


def test_an_artifact_of_another_size_is_asked_the_rows_of_that_size_one_at_a_time() -> None:
    asked = [
        replace(b, outputs={"y": np.arange(len(b.names)) + 0.5}) for b in batches_for(spec(), evaluation()) if b.sizes
    ]
    size = next(b.sizes["height"] for b in asked if b.sizes["height"] != 8 and b.sizes["batch"] > 1)
    fixed = made(
        False,
        False,
        axes={
            n: a.model_copy(update={"default": size}) if n == "height" else a
            for n, a in made(False, False).axes.items()
        },
    )
    found = applicable_batches(
        (*batches_for(spec(), evaluation())[:5], *asked), fixed.model_copy(update={"sizes": ({"height": size},)})
    )
    whole = [b for b in asked if b.sizes["height"] == size]
    assert [b.name for b in found] == [b.name for b in whole]
    assert {tuple(b.sizes.values()) for b in found} == {(1, size)}
    assert sum(1 for b in found for _ in b.rows()) == sum(len(b.names) for b in whole) > len(whole)
    several = made(False, True, sizes=({"height": 8}, {"height": size}))
    sizes = {b.sizes["height"] for b in applicable_batches(tuple(asked), several)}
    assert sizes == {8, size}
    one_thing = tuple(replace(b, outputs={"y": np.zeros(1)}) for b in asked)
    assert all(len(b.names) == 1 for b in applicable_batches(one_thing, several))


@pytest.mark.parametrize(
    "change",
    [
        lambda b: replace(b, name="another"),
        lambda b: replace(b, inputs={**b.inputs, "n": b.inputs["n"] + 1}),
        lambda b: replace(b, inputs={"images": b.inputs["images"]}),
    ],
)
def test_other_inputs_have_another_digest(change: object) -> None:
    asked = batches_for(spec(), evaluation())
    other = (change(asked[0]), *asked[1:])  # type: ignore[operator]
    assert inputs_digest(other) != inputs_digest(asked)
    assert not same_inputs(other, asked)


def test_the_digest_sees_types_and_shapes_and_not_memory() -> None:
    array = np.zeros((2, 6), np.float32)

    def of(values: np.ndarray) -> str:
        return inputs_digest((Batch("b", {"x": values}, {}, {}, ()),))

    assert of(array) == of(np.asfortranarray(array))
    assert len({of(array), of(array.reshape(3, 4)), of(array.view(np.int32))}) == 3


def test_arrays_are_found_by_their_batch() -> None:
    arrays = {"grid-01/y": np.zeros(1), "grid-010/y": np.ones(1), "stress/y": np.ones(2)}
    assert {n: a.tolist() for n, a in arrays_of("grid-01", arrays).items()} == {"y": [0.0]}
    assert arrays_of("nothing", arrays) == {}
