"""edgekit from Python: models in every form that a user has them in, what comes back, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgekit
import edgekit_inspect
from edgekit import api
from edgekit.artifact.result import EvaluationResult, Result
from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, RecordError, UsageError
from edgekit.model.spec import Axis, EvaluationSet, ModelSpec
from edgekit.pipeline import run
from edgekit.pipeline.outcome import Build, TargetOutcome
from edgekit.reference.info import read_info
from edgekit.reference.store import read_reference
from edgekit.testing import small_model
from edgekit_provenance import signature
from tests import modules, notebook
from tests.keys import NO_LIBRARY, write_keys


def factory(output: Path, **more: Any) -> Build:
    return edgekit.export(small_model, targets="onnx", output=output, progress="none", **more)


@pytest.fixture(scope="module")
def built(small_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """By a factory function, in the place of an earlier artifact of the same model."""
    output = tmp_path_factory.mktemp("factory")
    shutil.copytree(small_build, output / "small", ignore=shutil.ignore_patterns("onnx-fp16"))
    return factory(output, fresh=True)


def spec() -> ModelSpec:
    """Rows of six numbers, made in memory: no factory that a worker could import."""
    torch.manual_seed(0)
    return modules.of_rows("rows", notebook.MyNet(), 6, batch=4)


def real() -> EvaluationSet:
    rows = np.random.default_rng(1).random((5, 6)).astype(np.float32)
    names = tuple(f"row {number}" for number in range(5))
    return EvaluationSet(
        {"x": rows},
        names,
        truth=np.zeros(5, np.float32),
        metric=lambda outputs, truth: outputs["y"][:, 0] - truth,
        metric_name="first",
    )


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """By a ModelSpec, under another name and with other inputs to judge on."""
    output = tmp_path_factory.mktemp("spec")
    return edgekit.export(spec(), targets=["onnx"], evaluation=real(), name="mine", output=output, progress="none")


def test_a_factory_function_is_exported_and_its_artifact_described(built: Build) -> None:
    assert built.ok
    built.raise_for_verdict()
    made = built["onnx"]
    assert (made.status, made.reused) == ("verified", False)
    assert made.path == built.path / "onnx"
    assert set(made.latency) == {"cpu"}
    assert made.size == (made.path / "model.onnx").stat().st_size
    assert {measure.metric for measure in made.metrics} >= {"max abs", "spearman", "found@8 drop"}
    assert built.report.is_file()
    assert built.reference.startswith("CPU (")


def test_the_manifest_names_what_made_it_with_versions(built: Build) -> None:
    tools = read_artifact(built["onnx"].path).export.tools
    for name in ("edgekit-export", "torch", "onnx", "onnxscript", "onnx-ir", "numpy"):
        assert tools[name] == version(name).partition("+")[0]
    assert list(tools) == sorted(tools)
    assert "coremltools" not in tools


def test_an_unchanged_run_does_no_work_and_fresh_does(built: Build, small_build: Path) -> None:
    earlier, model = small_build / "onnx" / "model.onnx", built["onnx"].path / "model.onnx"
    assert model.stat().st_mtime_ns != earlier.stat().st_mtime_ns
    assert model.read_bytes() == earlier.read_bytes()
    before = model.stat().st_mtime_ns
    assert factory(built.path.parent)["onnx"].reused
    assert model.stat().st_mtime_ns == before


def test_a_damaged_artifact_is_not_loaded(built: Build, tmp_path: Path) -> None:
    for file in built["onnx"].path.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    damaged = bytearray((tmp_path / "model.onnx").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "model.onnx").write_bytes(bytes(damaged))
    with pytest.raises(ArtifactError, match="is damaged"):
        edgekit.load(tmp_path)


def test_a_spec_in_memory_is_captured_renamed_and_judged_on_what_is_given(in_memory: Build) -> None:
    made = in_memory["onnx"]
    assert made.status == "verified", made.sentences
    assert in_memory.path.name == "mine"
    assert json.loads((in_memory.path / "model" / "config.json").read_text())["factory"] == ""
    assert read_reference(in_memory.path / "reference").batches[0].names == real().names
    assert "first drop" in {measure.metric for measure in made.metrics}
    assert not [note for note in made.notes if "no evaluation set" in str(note)]
    assert read_artifact(made.path).axes["batch"].dynamic


def test_verifying_judges_again(built: Build) -> None:
    again = edgekit.verify(built.path, trust_build=True, progress="none")
    assert list(again) == ["onnx"]
    assert (again["onnx"].status, again["onnx"].reused) == ("verified", False)
    with pytest.raises(ArtifactError, match="`edgekit export`"):
        edgekit.verify(built.path.parent, trust_build=True, progress="none")


@NO_LIBRARY
def test_a_signature_holds_after_the_artifact_was_judged_again_and_not_for_another_verdict(
    built: Build, tmp_path: Path
) -> None:
    private, public = write_keys(tmp_path, "release")
    signed = factory(built.path.parent, sign=private)
    assert signed["onnx"].reused
    again = edgekit.verify(built.path, key=public, trust_build=True, progress="none")
    assert again["onnx"].status == "verified"
    vouched = signature.require_signed(built.path, public)
    made = read_artifact(built.path / "onnx")
    vouched.require_artifact(built.path / "onnx", made)
    with pytest.raises(ArtifactError, match="is not what was signed"):
        vouched.require_artifact(built.path / "onnx", made.model_copy(update={"verdicts": ()}))


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `notebook.py` prints, run as a user runs it; no worker can import its module."""
    command = [sys.executable, str(Path(str(notebook.__file__))), str(tmp_path_factory.mktemp("main"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "said": done.stderr}


def test_a_module_of_main_is_exported_as_its_program(script: dict[str, Any]) -> None:
    first, _ = ({made["target"]: made for made in record["artifacts"]} for record in script["records"])
    assert {name: made["status"] for name, made in first.items()} == {
        "onnx": "verified",
        "torchscript": "failed",
    }
    assert first["torchscript"]["error"] == (
        "TorchScript compiles the module itself, and 'my-net' was given in memory, so only its captured program is "
        "here. Put it into a file with a function that returns its ModelSpec, and export 'package.module:function'"
    )
    assert script["difference"] < 1e-6
    cells = ("onnx", "verified (no evaluation set)")
    assert "".join(f"<td style='text-align:left'>{cell}</td>" for cell in cells) in script["html"]


def test_a_module_of_main_that_is_unchanged_is_not_exported_again(script: dict[str, Any]) -> None:
    first, again = ({made["target"]: made for made in record["artifacts"]} for record in script["records"])
    assert (first["onnx"]["reused"], again["onnx"]["reused"]) == (False, True)
    assert (
        len(re.findall(r"\[\d/2\] onnx: verified \(no evaluation set\) \((\d+ s|unchanged)\)\n", script["said"])) == 2
    )
    assert re.search(r"torchscript: failed \(\d+ s\) - TorchScript compiles the module itself", script["said"])


def test_axes_of_a_module_have_their_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ModelSpec] = []
    monkeypatch.setattr(run, "export", lambda spec, *_: seen.append(spec))
    net = torch.nn.Conv2d(3, 4, 3, padding=1).eval()
    axes: dict[str, Any] = {"input": {0: "batch", 2: ("height", Axis(32, 16, 64, 8))}}
    edgekit.export(net, example=torch.ones(1, 3, 32, 32), axes=axes, output=tmp_path, progress="none")
    [made] = seen
    assert made.name == "conv2d"
    assert made.inputs[0].shape == ("batch", 3, "height", 32)
    assert made.axes == {"batch": Axis(1, 1, 8), "height": Axis(32, 16, 64, 8)}
    edgekit.export(net, example=torch.ones(1, 3, 32, 32), axes=["input:0=batch,2=height:16..64/8"], output=tmp_path)
    assert (seen[1].inputs, seen[1].axes) == (made.inputs, made.axes)  # the words of the command line say the same
    with pytest.raises(UsageError, match="axis 'height' has no range"):
        edgekit.export(net, example=torch.ones(1, 3, 32, 32), axes={"input": {2: "height"}}, output=tmp_path)


def test_an_unknown_progress_names_the_possible_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown progress 'loud'"):
        edgekit.export(small_model, output=tmp_path, progress="loud")  # type: ignore[arg-type]  # a user's mistake


def test_images_to_explain_are_at_least_one(built: Build) -> None:
    with pytest.raises(UsageError, match="cannot run -1 images"):
        edgekit_inspect.explain(built["onnx"].path, images=-1)


def test_quantizing_is_an_export_with_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(run, "export", lambda *arguments: asked.append(arguments))
    edgekit.quantize(small_model, search="none", reduce_range=True, output=tmp_path, progress="none")
    [(model, targets, root, options, _, fresh, *_)] = asked
    assert (model.name, targets, root, fresh) == ("small", ("onnx-int8-static",), tmp_path / "small", False)
    assert options == {
        "onnx-int8-static": {"search": "none", "method": "auto", "calibration": "", "reduce_range": True}
    }


@pytest.mark.parametrize(
    ("rejected", "ranks"), [((), [None]), (("openvino",), [None, 1]), (("openvino",) * 3, [None, 1, 2])]
)
@pytest.mark.parametrize("elsewhere", [True, False])
def test_quantizing_for_a_place_takes_the_best_recipe_that_holds_there(
    rejected: tuple[str, ...], ranks: list[int | None], elsewhere: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Three recipes passed the search; some or all are rejected in OpenVINO. Without that place, nobody asks."""
    trials, tried = tmp_path / "small/cache/onnx-int8-static/trials.json", []
    trials.parent.mkdir(parents=True)
    trials.write_text(json.dumps([{"rank": 0}, {"rank": 1}, {"rank": 2}, {"passed": True}]))

    def exported(spec: ModelSpec, targets: Any, root: Path, options: Any, *more: Any) -> Build:
        tried.append(options["onnx-int8-static"].get("rank"))
        status = "rejected" if len(tried) <= len(rejected) else "verified"
        result = Result.model_construct(places=(EvaluationResult.model_construct(place="openvino", status=status),))
        outcome = TargetOutcome("onnx-int8-static", root, status, result=result)
        return Build((outcome,), root, "CPU")

    monkeypatch.setattr(run, "export", exported)
    places = ["openvino"] if elsewhere else []
    edgekit.quantize(small_model, places=places, output=tmp_path, progress="none")
    assert tried == (ranks if elsewhere else [None])


def test_recording_writes_a_reference_and_refuses_a_device_that_is_none(tmp_path: Path) -> None:
    asked = edgekit.join_evaluation_sets(day=real(), night=real())
    folder = edgekit.record(spec(), evaluation=asked, output=tmp_path / "recorded", progress="none")
    assert tuple(read_info(folder).evaluation.names) == asked.names
    assert {path.name for path in folder.iterdir()} == {"reference.json", "outputs.safetensors"}
    with pytest.raises(UsageError, match="unknown device 'tpu'"):
        edgekit.record(spec(), device="tpu", output=tmp_path / "other", progress="none")
    with pytest.raises(RecordError):
        read_reference(tmp_path / "other")


def test_explaining_what_cannot_be_explained_is_a_sentence(built: Build) -> None:
    with pytest.raises(UsageError, match=r"has the target 'onnx'. Only fp16 and INT8 ONNX artifacts can be explained"):
        edgekit_inspect.explain(built["onnx"].path)


def test_targets_are_described() -> None:
    found = edgekit.targets()
    assert list(found) == sorted(found)
    onnx = found["onnx"]
    assert (onnx.name, onnx.source, onnx.places, onnx.missing) == ("onnx", "program", ("cpu",), ())
    assert onnx.options["properties"]["opset"]["enum"] == [17, 20, 21, 22, 23]
    assert "mobile" in found["coreml"].groups
    assert found["web"].places == ("wasm-fp32", "wasm-fp16", "wasm-q8", "webgpu-fp16", "webgpu-fp32")


def test_the_public_names() -> None:
    assert edgekit.__version__ == version("edgekit-export")
    assert dir(edgekit) == sorted(edgekit.__all__)
    for name in edgekit.__all__:
        assert getattr(edgekit, name) is not None
    for name in api.__all__:
        if name not in ("LoadedArtifact", "TargetInfo"):
            assert getattr(edgekit, name) is getattr(api, name)
    with pytest.raises(AttributeError, match="module 'edgekit' has no attribute 'exprot'"):
        edgekit.exprot  # noqa: B018
    assert (Path(str(edgekit.__file__)).parent / "py.typed").is_file()


def test_importing_is_quick_and_the_version_is_printed() -> None:
    code = (
        "import sys, edgekit; edgekit.__version__; print([m for m in ('torch', 'numpy', 'onnx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    done = subprocess.run([sys.executable, "-m", "edgekit", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"edgekit {edgekit.__version__}"


def test_the_small_model_of_the_first_export_needs_no_pytest() -> None:
    """What `make export` installs has none."""
    code = (
        "import sys; sys.modules['pytest'] = None; from edgekit.model.sources.factory import import_function; "
        "print(import_function('edgekit.testing:small_model').__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["small_model"], done.stderr
