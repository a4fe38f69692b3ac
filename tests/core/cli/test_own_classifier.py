"""A user's classifier and pictures: what the command line, the report and the records say of them.

Its artifact in fp16 arithmetic is right on the user's pictures, and beyond limits on brighter ones alone.
"""

from __future__ import annotations

import contextlib
import html
import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.command import exit_code
from tests.dim_classifier import write_pictures
from tests.manifests import spoilt

MODEL = "tests.dim_classifier:make"
FACTS = ("--inputs", "pixels:kind=image,shape=1,3,8,8", "--outputs", "output:role=logits,classes=red,green,blue")
HALF = ("-t", "onnx-fp16", "-O", "onnx-fp16.arithmetic=fp16")
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
    targets = ("--name", "dim", "-t", "onnx", *HALF, "--budget", "task_drop=0.01,size=1MB")
    return run(output / "dim", "export", MODEL, *FACTS, "--data", pictures, *targets, "-o", output)


@pytest.fixture(scope="module")
def accepted(rejected: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    build = Path(shutil.copytree(rejected.build, tmp_path_factory.mktemp("accepted") / "dim"))
    return run(build, "verify", build, "--trust-build", "-t", "onnx-fp16", "--limits", "task")


def test_an_artifact_that_fails_only_on_made_inputs_is_rejected_and_says_so(rejected: Run) -> None:
    assert rejected.code == 3
    assert "fails only on made inputs (drawn, photographs of edgekit, changed, levelled, in batches)" in rejected.text
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
    assert exit_code("export", MODEL, *FACTS, *HALF, "--limits", "task", "-o", tmp_path) == 2
    assert "Add --data FOLDER with labels and --metric" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "nothing is half-written"


def test_a_packs_result_is_judged_by_the_limits_that_the_build_was_exported_with(
    rejected: Run, pictures: Path, tmp_path: Path
) -> None:
    build = Path(shutil.copytree(rejected.build, tmp_path / "dim"))
    asked = ("--data", pictures, "--name", "dim", *HALF, "--limits", "task", "-o", tmp_path)
    assert run(build, "export", MODEL, *FACTS, *asked).code == 0
    command = ("pack", build, "--place", "ort-basic", "-t", "onnx-fp16", "-o", tmp_path / "pack.zip", "--trust-build")
    assert run(build, *command).code == 0
    with zipfile.ZipFile(tmp_path / "pack.zip") as pack:
        pack.extractall(tmp_path / "far")
    subprocess.run([sys.executable, "-m", "edgekit.evaluate"], cwd=tmp_path / "far", check=True, capture_output=True)
    imported = run(build, "import", tmp_path / "far" / "result.zip", build, "--trust-build")
    assert imported.code == 0, imported.text
    assert f"onnx-fp16 verified ({ACCEPTED})" in imported.text


def test_limits_task_accepts_no_artifact_that_is_wrong_on_the_users_own_inputs(rejected: Run, tmp_path: Path) -> None:
    build = Path(shutil.copytree(rejected.build, tmp_path / "dim"))
    spoilt(build / "onnx-fp16")
    wrong = run(build, "verify", build, "--trust-build", "-t", "onnx-fp16", "--limits", "task")
    assert wrong.code == 3
    assert "onnx-fp16 rejected" in wrong.text
    assert ACCEPTED not in wrong.text


def test_limits_task_accepts_no_artifact_whose_export_fails(rejected: Run, pictures: Path, tmp_path: Path) -> None:
    asked = ("--data", pictures, "--metric", "top_k:output", "-t", "onnx", "-t", "onnx-fp16", "--limits", "task")
    failed = run(tmp_path, "export", "tests.dim_classifier:without_translation", *FACTS, *asked, "-o", tmp_path)
    assert failed.code == 2, failed.text
    assert "onnx failed" in failed.text
    assert "verified" not in failed.text
    assert ACCEPTED not in failed.text
    assert not list(tmp_path.glob("*/onnx*")), "nothing is half-written"


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (("--limits", "Tasks"), "Tasks"),
        (("--limits", "TASK", "--minutes", "1"), "minutes"),
    ],
)
def test_other_limits_are_refused_with_a_sentence(
    arguments: tuple[str, ...], value: str, rejected: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("verify", rejected.build, *arguments) == 2
    assert value in capsys.readouterr().err


def page_of(run: Run) -> str:
    """The page without markup, each run of spaces as one."""
    page = (run.build / "report.html").read_text().partition("</style>")[2]
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", page)).split())


def test_the_report_names_what_a_classifier_has(rejected: Run) -> None:
    page = page_of(rejected)
    assert [word for word in ("patch", "index 0", "nrmse", "maps over pictures") if word in page] == []
    assert "classes of 'output' red, green, blue" in page
    assert "class 'red'" in page, "a channel of logits has the class's name"
    assert "the share of inputs whose true class is the likeliest" in page
    assert "one of 30 inputs is 0.0333 of the mean; one that turns wrong rejects" in page


def test_the_report_shows_the_budgets_that_were_asked_and_what_was_found(rejected: Run) -> None:
    page = page_of(rejected)
    assert "onnx-fp16 · cpu task_drop ≤ 0.01 0 yes" in page
    assert re.search(r"onnx · cpu size ≤ 1MB 0\.00\d+MB yes", page)
    assert "task_drop is 0, within the budget of 0.01" in (rejected.build / "report.md").read_text().replace("\\", "")


def test_a_budget_of_what_was_not_measured_is_said_in_the_report(rejected: Run, tmp_path: Path) -> None:
    build = Path(shutil.copytree(rejected.build, tmp_path / "dim"))
    found = run(build, "verify", build, "--trust-build", "-t", "onnx", "--budget", "onnx.visit=1MB")
    assert found.code == 3
    assert "visit was not measured, so the budget of 1MB is not met" in found.text
    assert "onnx · cpu visit ≤ 1MB not measured no" in page_of(found)


def test_reasons_of_one_cause_are_one_line_with_their_number_and_the_worst(rejected: Run) -> None:
    page = (rejected.build / "report.html").read_text()
    faults = re.findall('<li class="fault">(.*?)</li>', page)
    assert len(faults) == 2, faults
    number = re.search(r"the worst of (\d+) faults of this output, also on", faults[1])
    assert number, faults[1]
    assert int(number[1]) > 10
    assert f"the worst of {number[1]} faults" in rejected.text, "so on the console"
    assert re.search(r"relative of '\S+': \S+ of its peak", page_of(rejected)), "a number says what it is a share of"


def test_the_report_says_at_once_why_another_artifact_is_not_what_to_ship(rejected: Run) -> None:
    page = (rejected.build / "report.html").read_text()
    assert re.search("<details open><summary>why not the others</summary><ul[^>]*><li>onnx-fp16: rejected, fails", page)


def test_junit_has_no_speed_that_is_too_noisy_to_say(rejected: Run) -> None:
    assert exit_code("report", rejected.build, "--junit", rejected.build / "junit.xml") == 0
    junit = (rejected.build / "junit.xml").read_text()
    assert "too noisy to say as fast" not in junit
    assert junit.count("faults of this output") == 1
