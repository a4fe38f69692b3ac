"""Progress for people: live on a terminal or in a notebook, a line a target elsewhere, or nothing."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import ModuleType

import pytest

from edgekit.pipeline.outcome import TargetOutcome
from edgekit.pipeline.progress import Lines, Live, Silent, Style, shown

VERIFIED = TargetOutcome("onnx", Path("onnx"), "verified")
FAILED = TargetOutcome("coreml", Path("coreml"), "failed", "the converter died")


def whole_run(listener: Silent) -> None:
    with listener:
        listener.progress("model", 0.5, "writing the model")
        listener.done("model")
        listener.started(("onnx", "coreml"))
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


def test_auto_is_live_on_a_terminal_and_in_a_notebook_and_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(shown("auto")) is Lines
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    assert type(shown("auto")) is Live
    monkeypatch.delitem(sys.modules, "ipykernel")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert type(shown("auto")) is Live


def test_none_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(shown("none"))
    assert capsys.readouterr() == ("", "")


def test_lines_are_one_a_target_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(shown("lines"))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == ["onnx: verified", "coreml: failed - the converter died"]


def test_live_shows_what_runs_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    live = Live()
    with live:
        live.progress("onnx", 0.25, "exporting the graph")
        assert live._progress is not None
        live._progress.refresh()
        [task] = live._progress.tasks
        assert (task.completed, task.total, task.description) == (0.25, 1.0, "exporting the graph")
        live.progress("onnx", 0.75, "running")
        assert [task.completed for task in live._progress.tasks] == [0.75]
        live.finished(VERIFIED)
        live.done("never begun")
        assert not live._progress.tasks
    assert "exporting the graph" in terminal.getvalue()


def test_live_ends_when_the_run_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    live = Live()
    with pytest.raises(ZeroDivisionError), live:
        live.progress("onnx", 1 / 0, "exporting")
    assert live._progress is not None
    assert not live._progress.live.is_started


def test_live_outside_of_its_block_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    live = Live()
    live.progress("onnx", 0.5, "exporting")
    live.done("onnx")
    live.finished(VERIFIED)
    assert capsys.readouterr() == ("", "")
