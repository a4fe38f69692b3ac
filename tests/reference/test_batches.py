from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgekit.artifact.manifest import AxisInfo, Manifest, TensorInfo
from edgekit.judge.sketch import SUFFIX
from edgekit.model.shapes import between, grid
from edgekit.model.spec import Axis, Evaluation, Input, ModelSpec, Output
from edgekit.reference.batches import (
    AMPLE_SHAPE,
    AMPLY,
    BETWEEN,
    CHANGED,
    EVALUATION,
    FEW,
    GRID,
    LEVELLED,
    PHOTOGRAPHS,
    RESIZED,
    SPARSELY,
    STRESS,
    Batch,
    applicable_batches,
    arrays_of,
    batches_for,
    inputs_digest,
    same_inputs,
    stress_batch,
)
from edgekit.reference.pictures import resized
from edgekit.reference.variations import LEVELS


def spec() -> ModelSpec:
    import torch

    return ModelSpec(
        name="net",
        module=torch.nn.Identity(),
        inputs=(
            Input("images", ("batch", 3, "height", 4), low=-1.0, high=3.0, kind="image"),
            Input("n", ("batch",), dtype="int64"),
        ),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 3), "height": Axis(8, 4, 16, 4)},
    )


def evaluation(count: int = 5) -> Evaluation:
    images = np.arange(count * 96, dtype=np.float32).reshape(count, 3, 8, 4)
    return Evaluation({"images": images, "n": np.arange(count)}, tuple(f"image {i}" for i in range(count)))


def made(batch: bool = True, height: bool = True, **changes: Any) -> Manifest:
    axes = {n: AxisInfo.of_axis(a, {"batch": batch, "height": height}[n]) for n, a in spec().axes.items()}
    inputs = tuple(TensorInfo.of_input(i) for i in spec().inputs)
    told = {"name": "m", "target": "t", "precision": "fp32", "entry": "m", "key": "", "model_sha256": "", "files": ()}
    whole = Manifest.model_validate({**told, "source": {"name": "onnx", "sha256": ""}, "axes": axes, "inputs": inputs})
    return whole.model_copy(update=changes)


def test_a_model_is_asked_real_inputs_strange_inputs_the_grid_and_what_lies_between() -> None:
    asked = batches_for(spec(), evaluation())
    shapes, others = grid(spec().axes), between(spec().axes)
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
    tall = resized(np.arange(8, dtype=np.float32).reshape(1, 8, 1).repeat(4, 2), 16, 4)
    assert np.all(np.diff(tall[0, :, 0]) >= 0)
    assert np.allclose(resized(np.full((1, 9, 5), 0.3, np.float32), 4, 7), 0.3)


def test_changed_inputs_are_dark_bright_grey_flat_and_have_one_input_at_its_ends() -> None:
    batch = next(b for b in batches_for(spec(), evaluation()) if b.name == CHANGED)
    rows = dict(zip(batch.names, batch.inputs["images"], strict=True))
    first = {name.partition(", ")[2]: row for name, row in rows.items() if name.startswith("photograph picture-0b")}
    assert first["darkened to 0.05"].max() <= -1 + 0.05 * 4 + 1e-6
    assert first["brightened to 0.05"].min() >= 3 - 0.05 * 4 - 1e-6
    assert np.ptp(first["contrast 0.05"]) <= 0.05 * 4 + 1e-6
    assert np.ptp(first["grey"], axis=0).max() == 0 < np.ptp(first["grey"])
    assert np.ptp(first["flat"], axis=(1, 2)).max() == 0 < np.ptp(first["flat"])
    assert {name.partition(", ")[2] for name in rows if "all" in name} == {
        "'images' all 0",
        "'images' all -1",
        "'images' all 3",
        "'n' all 0",
        "'n' all 1",
    }


def test_every_band_of_brightness_as_wide_as_a_step_is_asked() -> None:
    batch = next(b for b in batches_for(spec(), evaluation()) if b.name == LEVELLED)
    shares = (batch.inputs["images"].astype(np.float64).mean((1, 2, 3)) + 1) / 4
    assert np.allclose(shares, LEVELS, atol=1e-6)
    assert (batch.inputs["images"].min() >= -1, batch.inputs["images"].max() <= 3) == (True, True)
    assert np.diff([0.0, *LEVELS, 1.0]).max() <= 0.04 + 1e-9
    assert len({name.partition(",")[0] for name in batch.names}) == 13  # five of the set, eight photographs


def test_without_pictures_all_floating_inputs_have_every_mean_and_integers_have_none() -> None:
    floats = replace(
        spec(), inputs=(Input("x", ("batch", 6), low=-2.0, high=2.0), Input("y", ("batch", 3)), spec().inputs[1])
    )
    batch = next(b for b in batches_for(floats, None) if b.name == LEVELLED)
    for name, low, span in (("x", -2, 4), ("y", 0, 1)):
        assert np.allclose((batch.inputs[name].astype(np.float64).mean(1) - low) / span, LEVELS, atol=1e-6)
    assert len(np.unique(batch.inputs["n"])) == 1
    tokens = replace(spec(), inputs=(spec().inputs[1],))
    assert LEVELLED not in [b.name for b in batches_for(tokens, None)]


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


def test_the_first_rows_keep_their_names_and_answers() -> None:
    batch = replace(batches_for(spec(), evaluation())[0], outputs={"y": np.arange(5.0)})
    few = batch.first(2)
    assert (few.names, few.outputs["y"].tolist(), len(few.inputs["images"])) == (("image 0", "image 1"), [0.0, 1.0], 2)
    assert len(batch.names) == 5


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


def test_chosen_rows_keep_what_is_large_as_far_as_it_was_kept() -> None:
    rows = np.arange(6.0)
    outputs = {"y": rows[:3], "y" + SUFFIX: rows}
    batch = Batch("stress", {"x": rows}, outputs, {}, tuple("abcdef"))
    found = batch.chosen([0, 2, 4, 5], "some").outputs
    assert {name: array.tolist() for name, array in found.items()} == {"y": [0, 2], "y" + SUFFIX: [0, 2, 4, 5]}
    assert batch.chosen([5], "some").outputs["y"].shape == (0,)


@pytest.mark.parametrize(("images", "most_of"), [(2, SPARSELY), (9, AMPLY)], ids=["sparse", "ample"])
def test_a_sample_is_spread_over_each_kind(images: int, most_of: dict[str, int]) -> None:
    whole = {b.name: b for b in batches_for(spec(), evaluation())}
    whole = {n: replace(b, outputs={"y": np.arange(len(b.names), dtype=float)}) for n, b in whole.items()}
    sparse = {b.name: b for b in applicable_batches(tuple(whole.values()), made(), images=images)}
    for kind, most in most_of.items():
        if kind not in whole:
            continue
        names, all_names = sparse[kind].names, whole[kind].names
        assert len(names) == min(most, len(all_names))
        assert names[0] == all_names[0]
        assert most == 1 or names[-1] == all_names[-1]
        assert [all_names[int(row)] for row in sparse[kind].outputs["y"]] == list(names)
        for name, array in sparse[kind].inputs.items():
            chosen = [whole[kind].inputs[name][all_names.index(one)] for one in names]
            np.testing.assert_array_equal(array, chosen)
    assert STRESS in sparse
    assert sparse[EVALUATION].names == whole[EVALUATION].names[:images]
    usual = {b.name: b.names for b in applicable_batches(tuple(whole.values()), made(), images=FEW)}
    assert all(whole[name].names[: len(names)] == names for name, names in usual.items())


def test_an_ample_sample_has_every_shape_of_the_grid() -> None:
    """An artifact advertises them; real inputs are asked at those of a few images' size."""
    whole = batches_for(spec(), evaluation())
    found = applicable_batches(whole, made(), images=9)
    kinds = {kind: {b.name for b in whole if b.name.startswith(f"{kind}-")} for kind in (GRID, RESIZED)}
    assert kinds[GRID] <= {b.name for b in found}
    one_image = math.prod(axis.default for axis in made().axes.values())
    images = {b.name: math.prod(b.sizes.values()) / one_image for b in whole if b.name in kinds[RESIZED]}
    small = {name for name, size in images.items() if size <= AMPLE_SHAPE[RESIZED]}
    assert {b.name for b in found} & kinds[RESIZED] == small
    assert small < kinds[RESIZED] or not images


def test_a_sample_takes_the_first_images_and_no_large_shape() -> None:
    found = applicable_batches(batches_for(spec(), evaluation()), made(), images=2)
    assert [len(b.names) for b in found if b.name == EVALUATION] == [2]
    assert [b.name for b in found if b.name == STRESS] == [STRESS]
    assert all(b.sizes["batch"] * b.sizes["height"] <= 8 for b in found if b.sizes)
    assert any(b.sizes for b in found)


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
