"""Golden vectors: what they hold, and that a model with other weights fails on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.model.spec import Array, Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.reference import golden
from edgekit.reference.golden import BINARY, FAULTS, JSON, Case, Golden
from edgekit.reference.pictures import in_size, resize
from edgekit.reference.record import record_reference
from edgekit.reference.store import read_reference, write_reference
from edgekit.runtime.eager import EagerRuntime
from edgekit.testing import small_model

KINDS = ("fp32", "delegated", "fp16", "int8")


class Segments(nn.Module):
    """A mask of the picture's size, logits that a vector tilts, and the likeliest class."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.mask = nn.Conv2d(6, 1, 3, padding=1)
        self.classes = nn.Linear(6, 4)

    def forward(self, images: torch.Tensor, tilt: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = torch.relu(self.first(images))
        logits = self.classes(found.mean((2, 3))) + tilt
        return self.mask(found), logits, logits.argmax(1)


def evaluation() -> EvaluationSet:
    draw = np.random.default_rng(0)
    images = (draw.integers(0, 256, (6, 3, 16, 16)) * draw.uniform(0.3, 1, (6, 3, 1, 1))).astype(np.uint8)
    inputs: dict[str, Array] = {
        "images": images.astype(np.float32) / 255,
        "tilt": draw.normal(0, 1, (6, 4)).astype(np.float32),
    }
    return EvaluationSet(inputs=inputs, names=tuple(f"row {row}" for row in range(6)))


def spec() -> ModelSpec:
    return ModelSpec(
        name="segments",
        module=Segments().eval(),
        inputs=(Input("images", ("batch", 3, 16, 16), kind="image"), Input("tilt", ("batch", 4), low=-3, high=3)),
        outputs=(
            Output("mask", "mask", low=-1),
            Output("logits", "logits"),
            Output("label", "labels", "logits", "int64"),
        ),
        axes={"batch": Axis(1, 1, 2)},
        evaluation=evaluation,
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs") / "reference"
    record_reference(spec(), folder)
    return folder


@pytest.fixture(scope="module")
def chosen(recorded: Path) -> Golden:
    return golden.choose_golden(spec(), recorded, EagerRuntime(spec()).run)


def test_a_case_is_a_row_as_it_was_evaluated(chosen: Golden) -> None:
    real = evaluation()
    assert len(chosen.cases) == 2
    for case in chosen.cases:
        row = real.names.index(case.name)
        assert case.image is not None
        assert set(case.inputs) == {"tilt"}
        fed = case.feed(spec())
        for name, values in real.inputs.items():
            np.testing.assert_allclose(fed[name][0], values[row], atol=1e-6)
    assert chosen.failures(EagerRuntime(spec()).run, chosen.limits("fp32", {})) == ()
    assert set(chosen.spread) == {"mask", "logits"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_whose_weights_were_changed_by_one_fails(kind: str, chosen: Golden) -> None:
    allowed = chosen.limits(kind, {})
    assert chosen.failures(EagerRuntime(spec()).run, allowed) == ()
    names = [name for name, _ in spec().module.named_parameters()]
    assert len(names) == 6
    for name in names:
        changed = replace(spec(), module=deepcopy(spec().module))
        with torch.no_grad():
            changed.module.get_parameter(name).add_(1.0)
        assert chosen.failures(EagerRuntime(changed).run, allowed), name


def test_what_an_artifact_shows_here_widens_its_limits(chosen: Golden) -> None:
    def coarse(inputs: Mapping[str, Array]) -> dict[str, Array]:
        right = EagerRuntime(spec()).run(inputs)
        return {**right, "mask": right["mask"] + np.float32(2 * chosen.spread["mask"])}

    assert chosen.failures(coarse, chosen.limits("int8", {}))
    assert chosen.failures(coarse, chosen.limits("int8", chosen.largest_errors(coarse))) == ()


def test_faults_of_preprocessing_are_seen_and_those_that_nobody_sees_are_told(chosen: Golden) -> None:
    run = EagerRuntime(spec()).run
    assert chosen.undetected_faults(run, chosen.limits("fp16", {})) == ()
    wide = {name: dict.fromkeys(found, 1e9) for name, found in chosen.limits("fp16", {}).items()}
    assert set(chosen.undetected_faults(run, wide)) == set(FAULTS)


def test_what_is_written_is_found_at_its_offsets(chosen: Golden, tmp_path: Path) -> None:
    allowed = {"fp32": chosen.limits("fp32", {})}
    assert golden.write_golden(tmp_path, chosen, allowed) == JSON
    listed, binary = json.loads((tmp_path / JSON).read_text()), (tmp_path / BINARY).read_bytes()
    assert (listed["format"], listed["limits"]) == (golden.FORMAT, allowed)
    for row, case in zip(listed["cases"], chosen.cases, strict=True):
        held = {**row["inputs"], **row["expected"], "image": row["image"]}
        for name, values in {**case.inputs, **case.expected, "image": case.image}.items():
            part = held[name]
            assert part["offset"] % 4 == 0
            found = np.frombuffer(binary, part["dtype"], int(np.prod(part["shape"])), part["offset"])
            np.testing.assert_array_equal(found.reshape(part["shape"]), values)


def test_of_a_large_output_some_values_are_kept(chosen: Golden) -> None:
    right = np.arange(200_000, dtype=np.float32)[None]
    one = replace(chosen, cases=(Case("a", None, {}, {"logits": right}),), spread={"logits": 1.0})
    wrong = right.copy()
    wrong[0, 1] += 7  # every fourth value is kept
    assert one.largest_errors(lambda inputs: {"logits": wrong})["logits"] == {"max_abs": 0.0, "rms": 0.0}
    wrong[0, 4] += 7
    assert one.largest_errors(lambda inputs: {"logits": wrong})["logits"]["max_abs"] == 7


def test_what_is_missing_or_not_finite_fails(chosen: Golden) -> None:
    right = {"logits": np.ones((1, 4), np.float32), "label": np.array([3])}
    one = replace(chosen, cases=(Case("a", None, {}, right),), spread={"logits": 1.0})
    allowed = one.limits("fp32", {})
    assert one.failures(lambda inputs: right, allowed) == ()
    wrong = [{"logits": right["logits"]}, {**right, "logits": np.ones((1, 3), np.float32)}]
    wrong += [{**right, "label": np.array([2])}, {**right, "logits": right["logits"] * np.nan}]
    for answers in wrong:
        assert one.failures(partial(_always, answers), allowed)


def _always(answers: Mapping[str, Array], inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    return answers


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "reference"
    record_reference(small_model(), folder)
    return folder


def test_of_scores_counts_and_a_ranking_each_has_its_own_limit(scored: Path) -> None:
    model = small_model()
    run = EagerRuntime(model).run
    chosen = golden.choose_golden(model, scored, run, ("width",))
    assert {name for case in chosen.cases for name in case.expected} == {"relevance", "budgets", "indices"}
    limits = chosen.limits("fp32", {})
    assert limits == {"relevance": {"max_abs": 1e-4}, "budgets": {"max_abs": 1.03}, "indices": {"lost_mass": 0.02}}
    assert chosen.failures(run, limits) == ()

    def changed(name: str, change: Callable[[Array], Array]) -> tuple[str, ...]:
        return chosen.failures(lambda inputs: {**run(inputs), name: change(run(inputs)[name])}, limits)

    assert "max_abs of the output 'relevance'" in changed("relevance", lambda scores: scores + np.float32(0.01))[0]
    assert changed("budgets", lambda counts: counts + 1) == ()
    assert "max_abs of the output 'budgets'" in changed("budgets", lambda counts: counts + 2)[0]
    assert changed("indices", lambda ranking: ranking[:, ::-1]) == ()
    assert "lost_mass of the output 'indices'" in changed("indices", lambda ranking: np.zeros_like(ranking))[0]
    assert changed("indices", lambda ranking: ranking[:, 1:])


def test_a_case_of_another_width_has_the_answer_of_the_artifact(scored: Path) -> None:
    model = small_model()
    run = EagerRuntime(model).run
    telling, *_, wide = golden.choose_golden(model, scored, run, ("width",)).cases
    assert wide.image is not None
    assert telling.image is not None
    height, width, _ = wide.image.shape
    assert height != width
    np.testing.assert_array_equal(wide.image[:, :height], telling.image[:, :width])
    np.testing.assert_array_equal(wide.expected["relevance"], run(wide.feed(model))["relevance"])
    assert len(golden.choose_golden(model, scored, run).cases) == 2


def test_pictures_that_are_not_made_of_bytes_are_passed_over(scored: Path, tmp_path: Path) -> None:
    whole = read_reference(scored).batches[0]
    images = whole.inputs["images"].copy()
    images[1] += np.float32(0.4 / 255)
    changed = replace(whole, inputs={**whole.inputs, "images": images})
    write_reference(tmp_path / "reference", (changed,), {"noise": {}, "device": ""}, with_inputs=True)
    names = [case.name for case in golden.pictures(small_model(), tmp_path / "reference", 12)]
    assert names == [name for i, name in enumerate(changed.names) if i != 1]
    chosen = golden.choose_golden(small_model(), tmp_path / "reference", EagerRuntime(small_model()).run)
    assert all(case.image is not None for case in chosen.cases)


def test_a_picture_of_another_size_is_a_case_for_each_size_that_it_gets(scored: Path, tmp_path: Path) -> None:
    model = small_model()
    run = EagerRuntime(model).run
    chosen = golden.choose_golden(model, scored, run)
    sizes = {"a": lambda _: (112, 96), "b": lambda _: (96, 96), "c": lambda _: (112, 96)}
    made = chosen.with_another_size(run, sizes)
    *before, tall, square = made.cases
    assert (tuple(before), tall.targets, square.targets) == (chosen.cases, ("a", "c"), ("b",))
    assert [tall.name, square.name] == [
        f"{before[0].name}, 115 x 144 pixels as {size}" for size in ("96 x 112", "96 x 96")
    ]
    assert tall.image is not None
    assert tall.image.shape == (144, 115, 3)
    assert (tall.expected["relevance"].shape, square.expected["relevance"].shape) == ((1, 42), (1, 36))
    small = replace(tall, image=in_size(tall.image, 112, 96))
    np.testing.assert_array_equal(tall.expected["relevance"], run(small.feed(model))["relevance"])
    golden.write_golden(tmp_path, made, {})
    written = json.loads((tmp_path / golden.JSON).read_text())["cases"]
    assert [case.get("targets") for case in written] == [*[None] * len(before), ["a", "c"], ["b"]]


def test_a_case_of_another_size_tells_whether_a_picture_is_stretched_by_the_filter(scored: Path) -> None:
    model = small_model()
    run = EagerRuntime(model).run
    chosen = golden.choose_golden(model, scored, run)
    first, *_, other = chosen.with_another_size(run, {"one": lambda _: (96, 96)}).cases
    assert first.image is not None
    assert other.image is not None
    side = first.image.shape[0]
    assert other.image.shape == (side + side // 2, side + side // 5, 3)
    np.testing.assert_array_equal(other.image[:side, :side], first.image)
    height, width, _ = other.image.shape
    rows, columns = np.arange(side) * height // side, np.arange(side) * width // side
    top, left = (height - side) // 2, (width - side) // 2
    planes = resize(other.image.transpose(2, 0, 1).astype(np.float32), side, side)
    ways = {
        "stretched": np.floor(planes.transpose(1, 2, 0) + 0.5).astype(np.uint8),
        "cropped": other.image[top : top + side, left : left + side],
        "its corner": first.image,
        "nearest pixels": other.image[rows][:, columns],
    }
    cases = {name: replace(chosen, cases=(replace(other, image=image),)) for name, image in ways.items()}
    off = {name: one.largest_errors(run)["relevance"]["max_abs"] for name, one in cases.items()}
    assert off.pop("stretched") < 1e-6
    assert min(off.values()) > 0.01, off


def test_a_fault_that_changes_nothing_is_told(scored: Path) -> None:
    """Of a model that sums the channels nobody sees that they are in reverse order."""

    def grey(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"relevance": inputs["images"].sum(1)[:, ::16, ::16].reshape(1, -1) / 100}

    model = replace(small_model(), outputs=small_model().outputs[:1])
    cases = tuple(golden.pictures(model, scored, 12))
    chosen = Golden(tuple(replace(case, expected=grey(case.feed(model))) for case in cases), model, {"relevance": 1.0})
    assert chosen.undetected_faults(grey, {"relevance": {"max_abs": 1e-6}}) == ("channels in reverse order",)
