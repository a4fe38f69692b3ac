"""A user's classifier and pictures: what the command line, the report and the records say of them.

Its fp16 artifact is right on the user's pictures, and beyond limits on brighter ones alone.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.command import exit_code
from tests.dim_classifier import write_pictures

MODEL = "tests.dim_classifier:make"
FACTS = ("--inputs", "pixels:kind=image,shape=1,3,8,8", "--outputs", "output:role=logits,classes=red,green,blue")
ACCEPTED = "on your data alone, limits: task"


@dataclass(frozen=True)
class Run:
    """What one call of the command line printed, its exit code, and the build."""

    code: int
    text: str
    build: Path

    def json(self, path: str) -> Any:
        return json.loads((self.build / path).read_text())


def run(build: Path, *arguments: object) -> Run:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        code = exit_code(*arguments)
    # Lines are wrapped to the width of a pipe.
    return Run(code, " ".join(text.getvalue().split()), build)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module")
def rejected(pictures: Path) -> Run:
    output = pictures.parent / "build"
    targets = ("--name", "dim", "-t", "onnx", "-t", "onnx-fp16", "--budget", "task_drop=0.01,size=1MB")
    return run(output / "dim", "export", MODEL, *FACTS, "--data", pictures, *targets, "-o", output)


@pytest.fixture(scope="module")
def accepted(rejected: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    build = Path(shutil.copytree(rejected.build, tmp_path_factory.mktemp("accepted") / "dim"))
    return run(build, "verify", build, "--trust-build", "-t", "onnx-fp16", "--limits", "task")


def test_an_artifact_that_fails_only_on_made_inputs_is_rejected_and_says_so(rejected: Run) -> None:
    assert rejected.code == 3
    assert "fails only on made inputs (drawn, photographs of edgekit, changed, levelled, resized)" in rejected.text
    assert "your own top_k:output is 1 -> 1 on 30 inputs. `--limits task` accepts it" in rejected.text


def test_limits_task_accepts_it_by_name_in_every_record(accepted: Run) -> None:
    assert accepted.code == 0
    assert f"onnx-fp16 verified ({ACCEPTED})" in accepted.text
    assert f"onnx-fp16: verified ({ACCEPTED})" in accepted.text, "the line of progress too"
    (place,) = accepted.json("onnx-fp16/result.json")["places"]
    assert (place["status"], place["evidence"]["limits"]) == ("verified", "task")
    assert "made inputs" in [note["code"] for note in place["notes"]]
    (summary,) = accepted.json("onnx-fp16/manifest.json")["verdicts"]
    assert (summary["status"], summary["evidence"]["limits"]) == ("verified", "task")
    for report in ("report.html", "report.md"):
        assert ACCEPTED in (accepted.build / report).read_text()


def test_limits_task_needs_truth_and_a_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("export", MODEL, *FACTS, "-t", "onnx-fp16", "--limits", "task", "-o", tmp_path) == 2
    assert "Add --data FOLDER with labels and --metric" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "nothing is half-written"


@pytest.mark.parametrize(
    ("arguments", "value"), [(("--limits", "tasks"), "tasks"), (("--limits", "task", "--minutes", "1"), "minutes")]
)
def test_other_limits_are_refused_with_a_sentence(
    arguments: tuple[str, ...], value: str, rejected: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("verify", rejected.build, *arguments) == 2
    assert value in capsys.readouterr().err
