from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgekit.artifact.fact import Code, fact
from edgekit.artifact.result import Verdict
from edgekit.cli import build_commands
from edgekit.cli.console import print_table, show_build
from edgekit.pipeline.outcome import Build, TargetOutcome
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


@pytest.mark.parametrize("terminal", [True, False])
def test_what_was_asked_stands_in_a_pipe_and_in_the_report(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Verdict(
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
    show_build(build)
    said = capsys.readouterr().out
    assert "nothing was compared" in said
    assert "a note" in said
    assert ("asked: 6 evaluation inputs" in said) is not terminal
    assert "an H200" in said
