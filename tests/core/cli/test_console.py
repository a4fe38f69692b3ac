from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.artifact.fact import Code, fact
from edgekit.artifact.result import EvaluationResult, Measure, Ratio
from edgekit.cli import build_commands
from edgekit.cli.console import print_table, show_build
from edgekit.pipeline.outcome import Build, TargetOutcome
from edgekit.report.recommendation import next_commands, recommend
from edgekit.report.rows import read_study
from edgekit.testing import SMALL
from tests.command import exit_code
from tests.manifests import result

ROWS = (("onnx", "verified", "[red]a name that looks like markup[/red]"), ("web", "rejected", ""))


def test_a_pipe_gets_tabs_and_no_heads(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("target", "verdict", ""), ROWS)
    assert capsys.readouterr().out == "".join("\t".join(row) + "\n" for row in ROWS)


def test_a_terminal_gets_heads_colours_and_texts_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(("target", "verdict", "note"), ROWS)
    said = capsys.readouterr().out
    assert "\x1b[" in said
    assert "target" in said.splitlines()[0]
    assert "[red]a name that looks like markup[/red]" in said
    green, red = (next(line for line in said.splitlines() if word in line) for word in ("verified", "rejected"))
    assert "\x1b[32m" in green
    assert "\x1b[1;31m" in red


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_tells_of_what_is_not_verified_and_of_nothing_else(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    good = TargetOutcome("onnx", Path("b/onnx"), "verified")
    show_build(Build((good,), Path("b"), "an H200"), quiet=True)
    assert capsys.readouterr().out == ""
    bad = TargetOutcome("web", Path("b/web"), "failed", "no page")
    show_build(Build((good, bad), Path("b"), "an H200"), quiet=True)
    said = capsys.readouterr().out
    assert "web" in said
    assert "no page" in said
    assert "onnx" not in said
    assert "H200" not in said


@pytest.mark.parametrize(("part_of", "code"), [("", 2), ("web", 0)])
def test_a_part_of_a_bundle_that_failed_does_not_fail_the_command(part_of: str, code: int) -> None:
    part = TargetOutcome("onnx-fp16", Path("b/onnx-fp16"), "failed", "no", part_of=part_of)
    build = Build((part, TargetOutcome("web", Path("b/web"), "verified")), Path("b"), "an H200")
    left = 0
    try:
        build_commands.conclude(build, as_json=False, quiet=True)
    except SystemExit as error:
        left = int(error.code or 0)
    assert left == code


def test_what_nobody_named_says_why_it_was_made(capsys: pytest.CaptureFixture[str]) -> None:
    part = TargetOutcome("onnx-fp16", Path("b/onnx-fp16"), "verified", part_of="web")
    show_build(Build((part, TargetOutcome("web", Path("b/web"), "verified")), Path("b"), "an H200"))
    assert "onnx-fp16: exported as a part of 'web'" in capsys.readouterr().out


@pytest.mark.parametrize("verbose", [True, False])
@pytest.mark.parametrize("terminal", [True, False])
def test_notes_are_printed_where_they_are_asked_for(
    terminal: bool, verbose: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = EvaluationResult(
        place="cpu",
        device="CPU",
        status="rejected",
        reasons=(fact(Code.NOTHING_COMPARED),),
        notes=(fact(Code.ASKED, text="asked: 6 evaluation inputs"), fact(Code.TEXT, text="a note")),
    )
    outcome = TargetOutcome("onnx", Path("b/onnx"), "rejected", result=result(place))
    build = Build((outcome,), Path("b"), "an H200")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "60")
    show_build(build, verbose=verbose)
    said = capsys.readouterr().out
    assert "nothing was compared" in said
    assert ("a note" in said) == verbose
    assert ("asked: 6 evaluation inputs" in said) == verbose
    assert "an H200" in said


def test_a_row_tells_the_number_that_decided_and_lines_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    def measure(metric: str, value: float, limit: float, passed: bool = True) -> Measure:
        return Measure(batch="evaluation", output="y", metric=metric, value=value, limit=limit, passed=passed)

    reasons = tuple(fact(Code.TEXT, text=f"{number}. " + "a long sentence " * 20) for number in range(4))
    good = EvaluationResult(
        place="wasm", status="verified", measures=(measure("max abs", 5e-5, 1e-4), measure("snr", 60, 20))
    )
    fast = Ratio(baseline="onnx", value=1.5, low=1.4, high=1.6)
    bad = EvaluationResult(
        place="webgpu",
        status="rejected",
        reasons=reasons,
        measures=(measure("max abs", 2e-4, 1e-4, passed=False), measure("cosine", 0.5, 0.99, passed=False)),
        ratios=(fast,),
    )
    own = result(good, bad).model_copy(update={"size": 108_300_000, "first_visit": 5_500_000})
    show_build(Build((TargetOutcome("web", Path("b/web"), "rejected", result=own),), Path("b"), "an H200"))
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "web\trejected\t108 MB, first visit 5.5 MB\t1.50× onnx\twebgpu: cosine of 'y': 0.500 (≥ 0.99)"
    assert others[-3] == "web: 2 more reasons in the report, or with -v"
    assert max(map(len, others)) <= 120


def test_an_export_tells_what_to_ship_and_what_to_run_next(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("export", SMALL, "-t", "onnx", "-t", "onnx-fp16", "-o", build.parent)
    assert exit_code(*asked) == 0
    brief = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[:2] for line in brief[:2]] == [
        ["onnx", "verified, unchanged"],
        ["onnx-fp16", "verified, unchanged"],
    ]
    assert "max abs" in brief[1]
    assert "(≤ 0.01)" in brief[1]
    (advice,) = [number for number, line in enumerate(brief) if line.startswith("Server: Ship onnx")]
    assert brief[advice + 1 :] == [f"next: edgekit verify {build}  # on the host that will run it"]
    assert max(len(line.replace(str(build), "build/small")) for line in brief) <= 120
    assert exit_code(*asked, "-v") == 0
    said = capsys.readouterr().out
    assert "onnx: cpu: evidence: 6 evaluation inputs" in said
    assert max(len(line.replace(str(build), "build/small")) for line in said.splitlines()) <= 120


def test_a_signed_build_and_one_of_which_nothing_holds_are_not_to_be_verified_again(build: Path) -> None:
    study = read_study(build)
    advice = recommend(study)
    assert next_commands(build, study, advice) == (f"edgekit verify {build}  # on the host that will run it",)
    assert next_commands(build, replace(study, artifacts=()), ()) == ()
    (build / "signature").mkdir()
    assert next_commands(build, study, advice) == ()
