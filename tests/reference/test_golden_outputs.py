"""Golden vectors of a model without scores: what they hold, and that a model with other weights fails on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.model.spec import Array, Axis, Evaluation, Input, ModelSpec, Output
from edgekit.reference import golden_outputs
from edgekit.reference.golden import BINARY, FAULTS, JSON
from edgekit.reference.golden_limits import difference, errors, failure, limits
from edgekit.reference.record import record_reference
from edgekit.runtime.eager import EagerRuntime

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


def evaluation() -> Evaluation:
    draw = np.random.default_rng(0)
    images = (draw.integers(0, 256, (6, 3, 16, 16)) * draw.uniform(0.3, 1, (6, 3, 1, 1))).astype(np.uint8)
    inputs: dict[str, Array] = {
        "images": images.astype(np.float32) / 255,
        "tilt": draw.normal(0, 1, (6, 4)).astype(np.float32),
    }
    return Evaluation(inputs=inputs, names=tuple(f"row {row}" for row in range(6)))


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
def chosen(recorded: Path) -> golden_outputs.NamedGolden:
    return golden_outputs.choose_outputs(spec(), recorded, EagerRuntime(spec()).run, FAULTS)


def test_a_case_is_a_row_as_it_was_evaluated(chosen: golden_outputs.NamedGolden) -> None:
    real = evaluation()
    assert len(chosen.cases) == 2
    for case in chosen.cases:
        row = real.names.index(case.name)
        assert case.image is not None
        assert set(case.inputs) == {"tilt"}
        fed = case.feed(spec())
        for name, values in real.inputs.items():
            np.testing.assert_allclose(fed[name][0], values[row], atol=1e-6)
        assert failure(case.expected, EagerRuntime(spec()).run(fed), chosen.limits("fp32", {})) == ""
    assert set(chosen.spread) == {"mask", "logits"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_whose_weights_were_changed_by_one_fails(kind: str, chosen: golden_outputs.NamedGolden) -> None:
    allowed = chosen.limits(kind, {})
    assert chosen.failures(spec(), EagerRuntime(spec()).run, allowed) == ()
    names = [name for name, _ in spec().module.named_parameters()]
    assert len(names) == 6
    for name in names:
        changed = replace(spec(), module=deepcopy(spec().module))
        with torch.no_grad():
            changed.module.get_parameter(name).add_(1.0)
        assert chosen.failures(spec(), EagerRuntime(changed).run, allowed), name


def test_what_an_artifact_shows_here_widens_its_limits(chosen: golden_outputs.NamedGolden) -> None:
    def coarse(inputs: Mapping[str, Array]) -> dict[str, Array]:
        right = EagerRuntime(spec()).run(inputs)
        return {**right, "mask": right["mask"] + np.float32(2 * chosen.spread["mask"])}

    assert chosen.failures(spec(), coarse, chosen.limits("int8", {}))
    assert chosen.failures(spec(), coarse, chosen.limits("int8", chosen.shown(spec(), coarse))) == ()


def test_faults_of_preprocessing_are_seen_and_those_that_nobody_sees_are_told(
    chosen: golden_outputs.NamedGolden,
) -> None:
    run = EagerRuntime(spec()).run
    assert golden_outputs.undetected(chosen, spec(), run, chosen.limits("fp16", {}), FAULTS) == ()
    wide = {name: dict.fromkeys(found, 1e9) for name, found in chosen.limits("fp16", {}).items()}
    assert set(golden_outputs.undetected(chosen, spec(), run, wide, FAULTS)) == set(FAULTS)


def test_a_case_of_another_size_has_the_answer_to_the_resized_picture(chosen: golden_outputs.NamedGolden) -> None:
    (*_, other) = golden_outputs.with_another_size(chosen, spec(), EagerRuntime(spec()).run).cases
    assert other.image is not None
    assert other.image.shape == (21, 19, 3)
    assert other.expected["mask"].shape == (1, 1, 16, 16)
    assert difference(other.expected, chosen.cases[0].expected, chosen.spread) > 0.01


def test_what_is_written_is_found_at_its_offsets(chosen: golden_outputs.NamedGolden, tmp_path: Path) -> None:
    allowed = {"fp32": chosen.limits("fp32", {})}
    assert golden_outputs.write_outputs(tmp_path, chosen, allowed, (JSON, BINARY)) == JSON
    listed, binary = json.loads((tmp_path / JSON).read_text()), (tmp_path / BINARY).read_bytes()
    assert (listed["format"], listed["limits"]) == (golden_outputs.FORMAT, allowed)
    for row, case in zip(listed["cases"], chosen.cases, strict=True):
        held = {**row["inputs"], **row["expected"], "image": row["image"]}
        for name, values in {**case.inputs, **case.expected, "image": case.image}.items():
            part = held[name]
            assert part["offset"] % 4 == 0
            found = np.frombuffer(binary, part["dtype"], int(np.prod(part["shape"])), part["offset"])
            np.testing.assert_array_equal(found.reshape(part["shape"]), values)


def test_of_a_large_output_some_values_are_kept() -> None:
    right = np.arange(200_000, dtype=np.float32)
    wrong = right.copy()
    wrong[1] += 7  # every fourth value is kept
    assert errors(right, wrong) == {"max_abs": 0.0, "rms": 0.0}
    wrong[4] += 7
    assert errors(right, wrong)["max_abs"] == 7


def test_what_is_missing_or_not_finite_fails() -> None:
    right = {"y": np.ones((1, 4), np.float32), "label": np.array([3])}
    allowed = limits("fp32", {"y": 1.0}, ("label",), {})
    assert failure(right, right, allowed) == ""
    wrong = [{"y": right["y"]}, {**right, "y": np.ones((1, 3), np.float32)}, {**right, "label": np.array([2])}]
    assert all(failure(right, answers, allowed) for answers in (*wrong, {**right, "y": right["y"] * np.nan}))
