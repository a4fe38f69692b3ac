"""A reference that was changed, is of other weights, holds NaN or is noisy judges nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from edgekit.artifact.manifest import Source
from edgekit.reference.info import INFO, OUTPUTS
from edgekit.storage import verified_io
from edgekit.storage.files import digest_file, dump_json
from tests.core.judge.broken.conftest import Shell
from tests.manifests import resealed, unchecked


def copied(shell: Shell, model: str) -> Path:
    copy = shell.folder / "changed" / model
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(shell.built(model), copy)
    return copy


def edited(build: Path, change: Callable[[dict[str, Any]], object], sealed: bool = True) -> None:
    path = build / "reference" / INFO
    info = json.loads(path.read_text())
    change(info)
    path.write_text(verified_io.seal_record(info) if sealed else dump_json(info))


def verified(shell: Shell, build: Path) -> dict[str, Any]:
    code, found = shell.run("verify", str(build))
    (artifact,) = found["artifacts"]
    assert code == 0
    assert artifact["status"] == "not verified here"
    reason: dict[str, Any] = artifact["reasons"][0]
    return reason


@pytest.mark.parametrize(
    ("sealed", "change", "sentence"),
    [
        (False, lambda info: info.update(device="NVIDIA H200"), "was changed after it was recorded"),
        (False, lambda info: info["noise"]["scores"].update(more=1.0), "was changed after it was recorded"),
        (True, lambda info: info.update(weights_sha256="0" * 64), "was recorded with other weights than the model's"),
        (True, lambda info: info.update(outputs_sha256="0" * 64), "was changed after it was recorded"),
    ],
)
@pytest.mark.parametrize("command", ["verify", "explain", "inspect"])
def test_a_changed_reference_is_refused_by_every_command(
    shell: Shell,
    capsys: pytest.CaptureFixture[str],
    sealed: bool,
    change: Callable[[dict[str, Any]], object],
    sentence: str,
    command: str,
) -> None:
    build = copied(shell, "chosen")
    edited(build, change, sealed)
    if command == "explain":
        shutil.copytree(build / "onnx", build / "onnx-fp16")
        plain = unchecked(build / "onnx")
        export = plain.export.model_copy(update={"source": Source(name="onnx", sha256=plain.sha256)})
        resealed(build / "onnx-fp16", target="onnx-fp16", export=export)
    said: list[str] = []
    shell.printed = lambda: _kept(capsys, said)
    asked = {"explain": build / "onnx-fp16", "inspect": build / "onnx"}.get(command, build)
    code, _ = shell.run(command, str(asked))
    assert code == 2
    assert sentence in said[0]


def _kept(capsys: pytest.CaptureFixture[str], said: list[str]) -> str:
    found = capsys.readouterr()
    said.append(found.err)
    return found.out


@pytest.mark.nightly(but=("features",))
@pytest.mark.parametrize("output", ["scores", "features"])
def test_nan_in_the_reference_is_not_the_artifacts_fault(shell: Shell, output: str) -> None:
    build = copied(shell, "chosen")
    path = build / "reference" / OUTPUTS
    arrays = load_file(path)
    arrays[f"evaluation/{output}"][7] = np.nan
    save_file(arrays, path)
    edited(build, lambda info: info.update(outputs_sha256=digest_file(path)))
    reason = verified(shell, build)
    assert (reason["code"], reason["output"]) == ("not finite", output)
    assert reason["details"]["side"] == "reference"


@pytest.mark.nightly(but=("features",))
@pytest.mark.parametrize("output", ["scores", "features"])
def test_a_noisy_reference_judges_nothing(shell: Shell, output: str) -> None:
    build = copied(shell, "chosen")
    edited(build, lambda info: info["noise"].update({output: {"cpu32 cpu64": 0.05}}))
    reason = verified(shell, build)
    assert (reason["code"], reason["output"]) == ("reference too noisy", output)
    assert "the reference is too noisy to use" in reason["sentence"]


def test_a_verdict_says_what_it_rests_on_and_that_there_was_no_evaluation_set(shell: Shell) -> None:
    """In the manifest as fields, in the report as words."""
    build = copied(shell, "looking")
    code, found = shell.run("verify", str(build))
    assert code == 0
    told = [note["sentence"] for note in found["artifacts"][0]["notes"] if note["code"] == "asked"]
    assert told[0].startswith("evidence: no evaluation set, 8 photographs, ")
    assert told[0].endswith("a second time, in another order")
    assert any(line.startswith("run in: ONNX Runtime") for line in told)
    manifest = json.loads((build / "onnx" / "manifest.json").read_text())
    for name, axis in manifest["axes"].items():  # every advertised axis was proved from end to end
        sizes = {shape[name] for shape in manifest["verdicts"][0]["proof"]}
        assert axis["dynamic"]
        assert sizes == set(range(axis["minimum"], axis["maximum"] + 1, axis["multiple_of"]))
    evidence = manifest["verdicts"][0]["evidence"]
    assert evidence["inputs"]["photographs"] == 8
    assert evidence["between"] >= 12
    assert evidence["place"].startswith("ONNX Runtime")
    assert sum(evidence["answered_by"].values()) == sum(evidence["inputs"].values())
    assert "verified (no evaluation set)" in (build / "report.md").read_text()
    assert "no evaluation set" in (build / "report.html").read_text()
    assert "evidence: no evaluation set" in (build / "report.csv").read_text()
    other = copied(shell, "chosen")
    shell.run("verify", str(other))
    assert "no evaluation set" not in (other / "report.md").read_text()
