"""A classifier that is set up wrongly is doubted on the first line, and in every record; a right one is not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from edgekit import api
from tests import trained_classifiers
from tests.command import exit_code
from tests.trained_classifiers import CLASSES, write_pictures

NETWORKS = ("patches", "normed", "convolutions")
IMAGENET = ",mean=0.485,0.456,0.406,std=0.229,0.224,0.225"


@dataclass(frozen=True)
class Export:
    """The first line of an export, or the sentence with which it was refused, all that it printed, and its build."""

    code: int
    line: str
    text: str
    build: Path


@pytest.fixture
def export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Export]:
    def export(
        network: str,
        normalized: bool = False,
        factory: str = "{}",
        declared: str = "",
        size: int = 32,
        role: str = "logits",
        shuffled: bool = False,
    ) -> Export:
        module = getattr(trained_classifiers, network)()
        trained_classifiers.train(module, normalized)
        torch.save(module.state_dict(), tmp_path / "weights.pt")
        inputs = f"pixels:kind=image,shape=1,3,{size},{size}{declared}"
        outputs = f"output:role={role},classes={','.join(CLASSES)}"
        code = exit_code(
            "export", f"tests.trained_classifiers:{factory.format(network)}", "--weights", tmp_path / "weights.pt",
            "--name", "net", "--inputs", inputs, "--outputs", outputs, "--metric", "top_k:output",
            "--data", write_pictures(tmp_path / "photos", shuffled), "-t", "onnx", "-o", tmp_path / "build",
        )  # fmt: skip
        printed = capsys.readouterr()
        text = printed.out if code == 0 else printed.err
        # Lines are wrapped to the width of a pipe.
        lines = text.replace("\n  ", " ").splitlines()
        return Export(code, lines[0 if code == 0 else -1], text, tmp_path / "build" / "net")

    return export


# What is wrong, and what the line says of it. A model that is no better than chance is refused.
SET_UPS: dict[str, tuple[dict[str, object], str]] = {
    "mean and std": ({"normalized": True}, "with ImageNet's mean and std"),
    "channel order": ({"declared": ",channels=BGR"}, "with the channels in the other order (BGR) it has"),
    "labels": ({"shuffled": True}, "or labels wrong?"),
    "sigmoid for softmax": ({"factory": "sigmoid_{}", "role": "probabilities"}, "does a sigmoid give them"),
    "size": ({"size": 16}, "size"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("set_up", SET_UPS)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_wrong_set_up_is_doubted_on_the_first_line(network: str, set_up: str, export: Callable[..., Export]) -> None:
    changes, advice = SET_UPS[set_up]
    exported = export(network, **changes)
    assert exported.line.startswith("warning: the " if exported.code == 0 else "edgekit: the model itself has")
    assert advice in exported.line
    assert "Ship onnx" not in exported.text
    assert exported.code == 0 or not (exported.build / "onnx").exists(), "nothing is half-written"


@pytest.mark.nightly
@pytest.mark.parametrize("network", NETWORKS)
def test_a_right_set_up_is_not_doubted(network: str, export: Callable[..., Export]) -> None:
    exported = export(network, normalized=True, declared=IMAGENET)
    assert exported.line.startswith("onnx\tverified")
    assert "Ship onnx" in exported.text


def test_the_doubt_stands_on_the_first_line_in_the_report_in_json_and_beside_an_imported_result(
    export: Callable[..., Export], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = export("patches", normalized=True)
    build = exported.build
    assert exported.line.startswith("warning: the model itself has 75% by 'top_k:output' on 40 inputs: with ImageNet's")
    for report in ("report.html", "report.md", "report.json"):
        assert "with ImageNet" in (build / report).read_text()
    assert exit_code("verify", build, "--trust-build", "--json") == 0
    doubt = json.loads(capsys.readouterr().out)["doubt"]
    assert "the model itself has" in doubt
    api.pack(build, tmp_path / "pack.zip", places=["ort-basic"], trust_build=True, progress="none")
    shutil.unpack_archive(tmp_path / "pack.zip", tmp_path / "far")
    subprocess.run([sys.executable, "-m", "edgekit.evaluate"], cwd=tmp_path / "far", check=True, capture_output=True)
    imported = api.import_result(build, tmp_path / "far" / "result.zip", trust_build=True, progress="none")
    assert imported.doubt == doubt
