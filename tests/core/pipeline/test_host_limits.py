"""A limit of the host is no rejection: not verified here, with the reason, and asked again the next time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.artifact.fact import Code, Fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.store import read_artifact
from edgekit.errors import DependencyError, EdgekitError, HostError
from edgekit.evaluate.engine import InputBatch, evaluate
from edgekit.hosts import process
from edgekit.pipeline import evaluate_step
from edgekit.pipeline.context import RunContext
from edgekit.pipeline.evaluate_step import EvaluationOutcome
from edgekit.target import Place
from edgekit.testing import SMALL
from tests.command import exit_code

pytestmark = pytest.mark.usefixtures("no_report")


@pytest.mark.nightly(but=("SECONDS",))
@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("EDGEKIT_WORKER_SECONDS", "0.05", "stopped after 0.05 s, which EDGEKIT_WORKER_SECONDS sets"),
        ("EDGEKIT_WORKER_GIB", "0.05", "or than its 0.05 GiB"),
    ],
)
def test_a_limit_of_the_host_is_no_rejection(
    build: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    reason: str,
) -> None:
    before = read_artifact(build / "onnx")
    monkeypatch.setenv(variable, value)
    assert exit_code("verify", build, "-t", "onnx") == 4
    said = capsys.readouterr().out
    assert "not verified here" in said
    assert reason in " ".join(said.split())
    again = read_artifact(build / "onnx")  # the verdict that this host reached before stays
    assert again.verdicts == before.verdicts
    monkeypatch.delenv(variable)
    assert exit_code("verify", build, "-t", "onnx") == 0


def test_a_limit_of_the_host_lowers_no_verdict_of_an_earlier_edgekit(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in (build / "onnx").iterdir() if path.is_file()}
    code = evaluate_step._code
    with monkeypatch.context() as newer:
        newer.setattr(evaluate_step, "_code", lambda *of: code(*of)[::-1])
        newer.setenv("EDGEKIT_WORKER_SECONDS", "0.05")
        assert exit_code("verify", build, "-t", "onnx") == 4
    assert "not verified here" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in (build / "onnx").iterdir() if path.is_file()} == before
    assert exit_code("verify", build, "-t", "onnx") == 0


@pytest.mark.parametrize("command", ["verify", "export"])
@pytest.mark.parametrize("variable", ["EDGEKIT_WORKER_SECONDS", "EDGEKIT_WORKER_GIB", "EDGEKIT_TIMED_SECONDS"])
def test_a_setting_that_is_no_number_is_refused_before_anything_is_judged(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str, command: str
) -> None:
    before = (build / "onnx" / "manifest.json").read_bytes()
    for value in ("nan", "abc", "-1"):
        monkeypatch.setenv(variable, value)
        asked = ("verify", build) if command == "verify" else ("export", SMALL, "-t", "onnx", "-o", build.parent)
        assert exit_code(*asked) == 2
        assert f"edgekit: {variable} is '{value}'. Set a number" in capsys.readouterr().err
    assert (build / "onnx" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("error", [HostError("the disk is full"), DependencyError("there is no module 'x'")])
def test_a_full_disk_or_a_missing_library_is_no_rejection(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: EdgekitError
) -> None:
    def call(*_: object) -> dict[str, object]:
        raise error

    monkeypatch.setattr(process, "call", call)
    assert exit_code("verify", build, "-t", "onnx") == 4
    assert f"onnx: cpu: {error}" in capsys.readouterr().out
    [verdict] = read_artifact(build / "onnx").verdicts
    assert verdict.status == "verified"


def test_a_batch_that_finds_no_memory_is_no_wrong_answer() -> None:
    class Full:
        device = "here"

        def run(self, inputs: object) -> dict[str, object]:
            raise RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : std::bad_alloc")

        def close(self) -> None:
            """Nothing to free."""

    asked = InputBatch("evaluation", lambda: iter([{}]), 1, 0)
    with pytest.raises(HostError, match="too little memory"):
        evaluate(Full(), [asked], {}, None, lambda *_: None)  # type: ignore[arg-type]  # it answers nothing


def test_a_sample_that_does_not_tell_is_followed_by_all_inputs(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few rows more are beyond a limit than one knows to be chance; here that is said of the sample."""
    asked: list[int] = []
    judge, run = evaluate_step.finding_of, evaluate_step.evaluate_in_place

    def unsure(context: RunContext, manifest: Manifest, place: Place, answers: Any, measured: Any) -> EvaluationOutcome:
        asked.append(len(answers["evaluation/relevance"]))
        found = judge(context, manifest, place, answers, measured)
        reason = Fact(code=Code.TOO_FEW_ROWS, details={"allowed": 1, "rows": 40, "beyond": 2})
        told = {"status": "not verified here", "reasons": (reason,)}
        return replace(found, verdict=found.verdict.model_copy(update=told)) if place.sample else found

    monkeypatch.setattr(evaluate_step, "finding_of", unsure)
    monkeypatch.setattr(
        evaluate_step, "evaluate_in_place", lambda c, n, m, p: run(c, n, m, p if asked else replace(p, sample=2))
    )
    assert exit_code("verify", build, "-t", "onnx") == 0
    first, second = asked
    assert first == 2 < second
    assert {v.status for v in read_artifact(build / "onnx").verdicts} == {"verified"}
