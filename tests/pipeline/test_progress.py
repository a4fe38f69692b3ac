"""Progress for people: live on a terminal or in a notebook, a line a target elsewhere, or nothing."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from edgekit.pipeline.listener import Silent
from edgekit.pipeline.live_view import Live
from edgekit.pipeline.outcome import TargetOutcome
from edgekit.pipeline.progress import Lines, Style, shown

VERIFIED = TargetOutcome("onnx", Path("onnx"), "verified")
FAILED = TargetOutcome("coreml", Path("coreml"), "failed", "the converter died")


def whole_run(listener: Silent) -> None:
    with listener:
        listener.progress("model", 0.5, "writing the model")
        listener.done("model")
        listener.started(("onnx", "coreml"), {})
        listener.progress("onnx", 0.25, "exporting")
        listener.progress("onnx", 0.75, "running")
        listener.finished(VERIFIED)
        listener.finished(FAILED)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)


@pytest.mark.parametrize(("style", "kind"), [("none", Silent), ("lines", Lines), ("live", Live)])
def test_a_style_by_name(style: Style, kind: type[Silent]) -> None:
    assert type(shown(style)) is kind


def test_auto_is_live_on_a_terminal_and_in_a_notebook_with_widgets_and_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(shown("auto")) is Lines
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    assert type(shown("auto")) is Lines, "Rich warns where ipywidgets is missing"
    (tmp_path / "ipywidgets.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(shown("auto")) is Live
    monkeypatch.delitem(sys.modules, "ipykernel")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert type(shown("auto")) is Live


def test_none_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(shown("none"))
    assert capsys.readouterr() == ("", "")


def test_lines_tell_where_a_step_begins_and_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(shown("lines"))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "model: writing the model",
        "[1/2] onnx: exporting",
        "[1/2] onnx: verified (0 s)",
        "[2/2] coreml: failed - the converter died",  # it never began, as where places alone are asked
    ]


def test_lines_tell_of_a_long_step_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = Lines(clock=lambda: now[0])
    lines.started(("onnx",), {})
    for now[0], text in ((0, "exporting"), (9.9, "checking"), (10, "running"), (15, "judging"), (75, "timing")):
        lines.progress("onnx", 0.5, text)
    lines.finished(VERIFIED)
    lines.finished(replace(VERIFIED, reused=True))
    assert capsys.readouterr().err.splitlines() == [
        "[1/1] onnx: exporting",
        "[1/1] onnx: running",
        "[1/1] onnx: timing",
        "[1/1] onnx: verified (1 min 15 s)",
        "[1/1] onnx: verified (unchanged)",
    ]
