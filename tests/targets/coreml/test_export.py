from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.artifact.store import read_artifact
from edgekit.errors import ExportError, UsageError
from edgekit.model.sources import resolve_model
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.model.spec import Array, Axis, Input, ModelSpec, Output
from edgekit.pipeline import run
from edgekit.pipeline.outcome import TargetOutcome
from edgekit.testing import QuietListener, TargetContract, small_model
from edgekit_targets.coreml import export as coreml
from edgekit_targets.coreml.export import ConversionSettings, convert
from edgekit_targets.coreml.runtime import find_package, open_package
from mil_interpreter import read_package, write_package
from tests.targets import phone_models

HERE = str(Path(__file__).parent)
SMALL = "edgekit.testing:small_model"


class TestCoreml(TargetContract):
    name = "coreml"
    statuses = {"coreml": "not verified here"}  # noqa: RUF012 - the contract's own way; Linux has no Core ML


@pytest.fixture(scope="module", autouse=True)
def importable() -> None:
    sys.path.insert(0, HERE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("small")


def made(folder: Path, **options: str) -> Path:
    """An artifact of the small model with some options."""
    spec = replace(small_model(), factory=SMALL)
    path: Path = phone_models.made(coreml.TARGET, "-".join(("coreml", *options.values())), spec, folder, **options)
    return path


def asked(spec: ModelSpec, count: int = 1, first: int = 0) -> tuple[dict[str, Array], dict[str, Array]]:
    """Evaluation inputs, or random ones, and what the module answers."""
    if spec.evaluation is None:
        inputs = spec.random(first, {"batch": count})
    else:
        inputs = {name: array[first : first + count] for name, array in spec.evaluation().inputs.items()}
    with torch.no_grad():
        answer = spec.module(*(torch.from_numpy(inputs[i.name]) for i in spec.inputs))
    values = answer if isinstance(answer, tuple) else (answer,)
    return inputs, {o.name: v.numpy() for o, v in zip(spec.outputs, values, strict=True)}


def near(mine: Mapping[str, Array], right: Mapping[str, Array], limit: float) -> None:
    for name, array in right.items():
        assert mine[name].dtype == array.dtype
        assert mine[name].shape == array.shape
        if array.dtype.kind == "f":
            peak = max(1.0, float(np.max(np.abs(array))))
            assert np.max(np.abs(mine[name] - array)) <= limit * peak


def test_fp32_answers_like_the_module(folder: Path) -> None:
    opened = open_package(made(folder, precision="fp32"), "interpreter")
    for first in range(6):
        inputs, right = asked(small_model(), first=first)
        mine = opened.run(inputs)
        near(mine, {"relevance": right["relevance"]}, 1e-5)
        np.testing.assert_array_equal(mine["budgets"], right["budgets"])
        assert {name: array.dtype for name, array in mine.items()} == {n: a.dtype for n, a in right.items()}


def test_the_scores_own_arithmetic_stays_in_fp32(folder: Path) -> None:
    """In fp16 sure scores become equal: PyTorch's own half precision shows it, the package must not."""
    opened = read_package(find_package(made(folder)))
    kinds = {o.outputs[0].name: o.outputs[0].type.dtype for o in opened.main.operations if o.kind == "linear"}
    assert set(kinds.values()) == {"fp16"}
    scores = next(o for o in opened.main.operations if o.outputs[0].name == "relevance")
    assert (scores.kind, scores.outputs[0].type.dtype) == ("sigmoid", "fp32")
    ranked = next(o for o in opened.main.operations if o.kind == "topk")
    assert ranked.outputs[0].type.dtype == "fp32"


def test_images_as_pixel_buffers(folder: Path) -> None:
    path = made(folder, image_input="image")
    feature = read_package(find_package(path)).inputs[0]
    assert (feature.kind, feature.shape, feature.colours) == ("image", (96, 96), "RGB")
    inputs, right = asked(small_model())
    near(open_package(path, "interpreter").run(inputs), {"relevance": right["relevance"]}, 1e-2)


@pytest.mark.parametrize("batch", ["dynamic", "enumerated"])
def test_flexible_batches(folder: Path, batch: str) -> None:
    path = made(folder, batch=batch)
    found = read_artifact(path)
    assert {name for name, axis in found.axes.items() if axis.dynamic} == {"batch"}
    assert "static: height 96, width 96" in found.notes
    opened = open_package(path, "interpreter")
    for count in (1, 2, 3, 6):
        if batch == "dynamic" or count != 6:
            inputs, right = asked(small_model(), count)
            near(opened.run(inputs), {"relevance": right["relevance"]}, 1e-2)
    with pytest.raises(UsageError, match="The package takes"):
        opened.run({name: np.repeat(array, 9, axis=0) for name, array in asked(small_model())[0].items()})


def test_top_k_can_be_cut_off_and_is_derived(folder: Path) -> None:
    path = made(folder, topk="cut")
    opened = read_package(find_package(path))
    assert [f.name for f in opened.outputs] == ["relevance"]
    assert "topk" not in {o.kind for o in opened.main.operations}
    assert coreml.SCORES_ONLY in read_artifact(path).notes
    inputs, right = asked(small_model(), first=5)
    mine = open_package(path, "interpreter").run(inputs)
    near(mine, {"relevance": right["relevance"]}, 1e-2)
    np.testing.assert_array_equal(mine["indices"], right["indices"])
    assert np.max(np.abs(mine["budgets"] - right["budgets"])) <= 1
    assert mine["budgets"].dtype == mine["indices"].dtype == np.int64


def test_the_package_says_what_it_is(folder: Path) -> None:
    path = find_package(made(folder))
    metadata = read_package(path).metadata
    assert path.name == "Small.mlpackage"
    assert (metadata["author"], metadata["license"]) == ("edgekit", "Apache-2.0")
    assert metadata["version"] == weights_digest(small_model())[:12]
    assert "images: RGB, bytes scaled to [0, 1], channels first" in metadata["edgekit.preprocessing"]
    assert not [key for key in metadata if "date" in key]
    assert all(b"/tmp" not in file.read_bytes() for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    ("name", "identifier"),
    [("arr-coc-tiny", "ArrCocTiny"), ("arr-coc-0.1", "ArrCoc01"), ("3d.net", "Model3dNet"), ("x", "X")],
)
def test_names_are_swift_identifiers(name: str, identifier: str) -> None:
    assert coreml.swift_name(name) == identifier


def test_wishes_that_exclude_each_other_are_sentences(folder: Path) -> None:
    with pytest.raises(UsageError, match="needs a model with an image input and"):
        made(folder, image_input="image", batch="dynamic")
    plain = ModelSpec("plain", torch.nn.Identity().eval(), (Input("x", (1, 4)),), (Output("y"),))
    for options, sentence in (({"topk": "cut"}, "no output of the role 'scores'"), ({"batch": "dynamic"}, "no axis")):
        with pytest.raises(UsageError, match=sentence):
            phone_models.made(coreml.TARGET, "plain", plain, folder / "plain", **options)


class Odd(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = torch.linalg.svdvals(x)
        return values


def test_an_operator_that_core_ml_lacks_is_a_sentence() -> None:
    spec = ModelSpec("odd", Odd(), (Input("x", (3, 3)),), (Output("y"),))
    exported = torch.export.export(spec.module, (torch.eye(3),))
    with pytest.raises(ExportError, match="coremltools cannot convert 'odd': ") as caught:
        convert(spec, exported, ConversionSettings())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (Input("state", (3,)), "Core ML cannot have 'state' as the name of an input or output of 'net'"),
        (Input("a.b", (3,)), "Core ML cannot have 'a.b' as the name"),
        (Input("x", ()), "the input 'x' of 'net' has no axes"),
    ],
)
def test_an_input_that_core_ml_cannot_have_is_a_sentence(given: Input, sentence: str) -> None:
    spec = ModelSpec("net", torch.nn.Tanh(), (given,), (Output("y"),))
    exported = torch.export.export(spec.module, (torch.ones(spec.shape(given.name)),))
    with pytest.raises(ExportError, match=sentence):
        convert(spec, exported, ConversionSettings(half=False))


class Ones(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.new_ones(3, 3)


def test_new_ones_is_said_in_operators_that_core_ml_has(tmp_path: Path) -> None:
    spec = ModelSpec("ones", Ones(), (Input("x", (3, 3)),), (Output("y"),))
    inputs, right = asked(spec)
    converted = convert(
        spec, torch.export.export(spec.module, (torch.from_numpy(inputs["x"]),)), ConversionSettings(half=False)
    )
    write_package(converted.get_spec(), None, tmp_path / "Ones.mlpackage")
    near(open_package(tmp_path, "interpreter").run(inputs), right, 1e-6)


class Tanh(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x, approximate="tanh")


def test_the_mode_of_gelu_survives(tmp_path: Path) -> None:
    """coremltools 9.0 drops it, which costs 5e-4 without a word."""
    spec = ModelSpec("tanh", Tanh(), (Input("x", (1, 64), low=-4.0, high=4.0),), (Output("y"),))
    inputs, right = asked(spec)
    exported = torch.export.export(spec.module, (torch.from_numpy(inputs["x"]),))
    converted = convert(spec, exported, ConversionSettings(half=False))
    write_package(converted.get_spec(), None, tmp_path / "Tanh.mlpackage")
    near(open_package(tmp_path, "interpreter").run(inputs), right, 1e-6)


class Divided(torch.nn.Module):
    """The row of a flat place, as a detector asks it."""

    def forward(self, rows: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
        of = torch.div(places, 3, rounding_mode="floor")
        away = torch.div(2 - places, 3, rounding_mode="trunc")
        real = torch.div(rows, 3, rounding_mode="trunc")
        return rows.gather(1, of[:, :, None].expand(-1, -1, 2)), of, away, real


def test_a_quotient_of_integers_is_an_integer(tmp_path: Path) -> None:
    """coremltools 9.0 makes fp32 of it, which `gather` refuses."""
    places = Input("places", (1, 6), dtype="int32", low=0, high=11)
    outputs = (Output("y"), Output("of", dtype="int32"), Output("away", dtype="int32"), Output("real"))
    spec = ModelSpec("divided", Divided(), (Input("rows", (1, 4, 2), low=-9.0, high=9.0), places), outputs)
    inputs, right = asked(spec)
    exported = torch.export.export(spec.module, tuple(map(torch.from_numpy, inputs.values())))
    write_package(
        convert(spec, exported, ConversionSettings(half=False)).get_spec(), None, tmp_path / "Divided.mlpackage"
    )
    answer = open_package(tmp_path, "interpreter").run(inputs)
    near(answer, right, 1e-6)
    assert all(np.array_equal(answer[name], right[name]) for name in ("of", "away"))


@pytest.mark.nightly
def test_the_shipped_model(tmp_path: Path) -> None:
    spec = resolve_model("arr-coc-tiny")
    path = phone_models.made(coreml.TARGET, "coreml", spec, tmp_path, precision="fp32")
    opened = open_package(path, "interpreter")
    for first in range(4):
        inputs, right = asked(spec, first=first)
        mine = opened.run(inputs)
        near(mine, {"relevance": right["relevance"]}, 1e-5)
        np.testing.assert_array_equal(mine["indices"], right["indices"])
        assert np.max(np.abs(mine["budgets"] - right["budgets"])) <= 1
    assert find_package(path).name == "ArrCocTiny.mlpackage"


class LargeInside(torch.nn.Module):
    """A layer whose values inside are beyond fp16's largest, 65,504."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        large: torch.Tensor = self.layer(x) * 1e6
        return large.tanh() + large * 1e-6


def test_a_package_whose_fp16_is_rejected_is_exported_in_fp32(tmp_path: Path) -> None:
    spec = ModelSpec(
        "large-inside",
        LargeInside().eval(),
        (Input("x", ("batch", 8)),),
        (Output("y"),),
        {"batch": Axis(1)},
    )

    def export(**options: str) -> TargetOutcome:
        return run.export(spec, ("coreml",), tmp_path / spec.name, {"coreml": options}, QuietListener())["coreml"]

    for reused in (False, True):
        outcome = export()
        assert outcome.manifest is not None
        assert (outcome.manifest.precision, outcome.reused) == ("fp32", reused)
        assert any(note.startswith("precision fp16 was rejected: ") for note in outcome.manifest.notes)
        assert not outcome.bad
    assert export(precision="fp16").status == "rejected"
