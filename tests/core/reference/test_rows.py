"""Rows of a batch: chosen, sampled, and those of inputs whose batch is not their first axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from edgekit.artifact.manifest import AxisInfo, TensorInfo
from edgekit.judge.rows import SUFFIX
from edgekit.model.spec import ModelSpec
from edgekit.reference.batches import (
    AMPLE_SHAPE,
    AMPLY,
    EVALUATION,
    FEW,
    GRID,
    RESIZED,
    SPARSELY,
    STRESS,
    Batch,
    applicable_batches,
    batches_for,
)
from tests import batch_modules
from tests.core.reference.small_spec import evaluation, made, spec


def test_the_first_rows_keep_their_names_and_answers() -> None:
    batch = replace(batches_for(spec(), evaluation())[0], outputs={"y": np.arange(5.0)})
    few = batch.first(2)
    assert (few.names, few.outputs["y"].tolist(), len(few.inputs["images"])) == (("image 0", "image 1"), [0.0, 1.0], 2)
    assert len(batch.names) == 5


def test_chosen_rows_keep_what_is_large_as_far_as_it_was_kept() -> None:
    rows = np.arange(6.0)
    outputs = {"y": rows[:3], "y" + SUFFIX: rows}
    batch = Batch("stress", {"x": rows}, outputs, {}, tuple("abcdef"))
    found = batch.select_rows([0, 2, 4, 5], "some").outputs
    assert {name: array.tolist() for name, array in found.items()} == {"y": [0, 2], "y" + SUFFIX: [0, 2, 4, 5]}
    assert batch.select_rows([5], "some").outputs["y"].shape == (0,)


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
    assert small < kinds[RESIZED]


def test_a_sample_takes_the_first_images_and_no_large_shape() -> None:
    found = applicable_batches(batches_for(spec(), evaluation()), made(), images=2)
    assert [len(b.names) for b in found if b.name == EVALUATION] == [2]
    assert [b.name for b in found if b.name == STRESS] == [STRESS]
    assert all(b.sizes["batch"] * b.sizes["height"] <= 8 for b in found if b.sizes)
    assert any(b.sizes for b in found)


@pytest.mark.parametrize("factory", [batch_modules.shared, batch_modules.time_first])
def test_each_input_keeps_its_axes_wherever_its_batch_is(factory: Callable[[], ModelSpec]) -> None:
    model = factory()
    assert model.evaluation is not None
    for batch in batches_for(model, model.evaluation()):
        rows = len(batch.names)
        sizes = dict(batch.sizes) | {"batch": 1}
        whole = [model.shape(i.name, batch.sizes if batch.sizes else sizes) for i in model.inputs]
        assert {tuple(a.shape for a in run.values()) for run in batch.rows()} == {tuple(whole)}
        alone = [model.shape(i.name, sizes) for i in model.inputs]
        apart = replace(batch, sizes=sizes, apart=True) if batch.sizes else batch
        singles = list(apart.rows())
        assert [[a.shape for a in run.values()] for run in singles] == [alone] * rows
        for some in (apart.first(2), apart.select_rows([0, rows - 1], "some")):
            chosen = [singles[0], singles[min(1, rows - 1) if some.name == batch.name else rows - 1]]
            for got, wanted in zip(some.rows(), chosen, strict=False):
                assert all(np.array_equal(got[name], wanted[name]) for name in wanted)
        if batch.sizes:
            for i in (i for i in model.inputs if "batch" in i.shape):
                joined = np.concatenate([run[i.name] for run in singles], i.shape.index("batch"))
                assert np.array_equal(joined, batch.inputs[i.name])


def test_an_artifact_of_one_length_is_asked_what_has_it() -> None:
    model = batch_modules.time_first()
    assert model.evaluation is not None
    axes = {name: AxisInfo.of_axis(axis, name == "batch") for name, axis in model.axes.items()}
    fixed = made(axes=axes, inputs=tuple(TensorInfo.of_input(i) for i in model.inputs))
    found = applicable_batches(batches_for(model, model.evaluation()), fixed)
    assert {EVALUATION, STRESS} <= {batch.name for batch in found}
    assert {batch.sizes["time"] for batch in found if batch.sizes} == {5}
