"""The place `qnn`: the real emulator of Qualcomm's NPU where its package is installed, else what is said of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgekit import api, registry
from edgekit.artifact.manifest import AxisInfo
from edgekit.artifact.result import EvaluationResult
from edgekit.errors import NotVerifiedHere, RuntimeMissingError, UsageError
from edgekit.hosts.catalogue import further_place
from edgekit.judge.limits import FP16, INT8
from edgekit.testing import small_model
from edgekit_targets.onnx import qnn
from tests.builds import unjudged, without_report
from tests.manifests import manifest, spoilt
from tests.networks import resnet

needs_qnn = pytest.mark.skipif(not qnn.is_installed(), reason="pip install onnxruntime-qnn")


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unjudged(resnet(4), tmp_path_factory.mktemp("build"), ("onnx",))


@needs_qnn
def test_an_artifact_is_judged_by_what_the_emulator_answers_and_a_wrong_one_is_rejected(convolutions: Path) -> None:
    def asked() -> EvaluationResult:
        found = api.verify(convolutions, places=["qnn"], images=2, trust_build=True, progress="none")["onnx"]
        return found.places[0]

    with without_report():
        place = asked()
        assert place.status == "verified", place.reasons
        assert "fp16, in the emulator of Qualcomm's NPU" in place.device
        assert place.evidence is not None
        assert place.evidence.inputs["evaluation"] == 2
        assert "other sizes of batch, height, width, which are fixed" in place.evidence.not_asked
        said = " ".join(map(str, place.notes))
        assert "nodes in the emulator: " in said
        assert "nodes on the CPU, in fp32: " in said
        assert (place.timings, place.start_up) == ({}, None)
        spoilt(convolutions / "onnx")
        place = asked()
    assert place.status == "rejected"


@needs_qnn
def test_each_file_of_fixed_sizes_is_compiled_and_judged(tmp_path: Path) -> None:
    build = unjudged(small_model(), tmp_path, ("onnx", "onnx-buckets"))
    with without_report():
        asked = api.verify(build, places=["qnn"], targets=["onnx-buckets"], trust_build=True, progress="none")
    [place] = asked["onnx-buckets"].places
    assert place.device.startswith("ONNX Runtime"), asked["onnx-buckets"].reasons
    assert place.evidence is not None
    assert place.evidence.shapes > 1
    assert not any("height" in text for text in place.evidence.not_asked if "which are fixed" in text)
    assert any("nodes in the emulator: " in str(note) for note in place.notes)


def test_a_missing_package_is_named_with_its_command(build: Path) -> None:
    with without_report():
        found = api.verify(build, places=["qnn"], targets=["onnx"], images=1, progress="none")["onnx"]
    if qnn.is_installed():
        assert "emulator" in found.places[0].device
    else:
        assert found.status == "not verified here"
        assert "pip install onnxruntime-qnn" in str(found.reasons[0])


def test_what_cannot_be_emulated_here_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qnn, "is_installed", lambda: True)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(NotVerifiedHere, match="for x86-64, and this host has aarch64"):
        qnn.QnnRuntime(tmp_path / "model.onnx")
    monkeypatch.setattr(qnn, "is_installed", lambda: False)
    with pytest.raises(RuntimeMissingError):
        qnn.QnnRuntime(tmp_path / "model.onnx")


@needs_qnn
def test_a_graph_of_which_nothing_runs_in_the_emulator_has_no_verdict(tmp_path: Path) -> None:
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [2, 3, 3]), ("y", [2]))
    ]
    graph = helper.make_graph([helper.make_node("Det", ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path / "m.onnx")
    runtime = qnn.QnnRuntime(tmp_path / "m.onnx")
    with pytest.raises(NotVerifiedHere, match=r"accepts no node of 'm\.onnx'"):
        runtime.run({"x": np.ones((2, 3, 3), np.float32)})


def test_it_is_asked_at_default_sizes_by_the_limits_of_fp16_and_packed_alone(build: Path, tmp_path: Path) -> None:
    place, target = further_place("qnn"), registry.find("onnx")
    open_axes = {"batch": AxisInfo(default=1, minimum=1, maximum=4, multiple_of=1, dynamic=True)}
    asked = place.manifest_at(manifest(axes=open_axes))
    assert (asked.open_sizes, asked.axes["batch"].default) == ({}, 1)
    assert place.tolerance(manifest(), target) is FP16
    assert place.tolerance(manifest(precision="int8"), registry.find("onnx-int8-static")) is INT8
    assert further_place("adb").tolerance(manifest(precision="fp16"), registry.find("mnn")) is FP16
    with pytest.raises(UsageError, match="the artifacts, or the places, take inputs of different sizes"):
        api.pack(build, tmp_path / "p.zip", places=["qnn", "ort"], targets=["onnx"], progress="none")
    assert api.pack(build, tmp_path / "p.zip", places=["qnn"], targets=["onnx"], progress="none") == ("onnx",)
