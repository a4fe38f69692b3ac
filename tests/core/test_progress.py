"""Progress for people: live on a terminal or in a notebook, a line a target elsewhere, or nothing.

In the live view every target stays with its verdict, in terminals of 60 columns and more.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from edgekit.pipeline.context import Listener
from edgekit.pipeline.outcome import TargetOutcome
from edgekit.progress import Lines, Live, Style, listener_for

VERIFIED = TargetOutcome("onnx", Path("onnx"), "verified")
FAILED = TargetOutcome("coreml", Path("coreml"), "failed", "the converter died")


def whole_run(listener: Listener) -> None:
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


@pytest.mark.parametrize(("style", "kind"), [("none", Listener), ("lines", Lines), ("live", Live)])
def test_a_style_by_name(style: Style, kind: type[Listener]) -> None:
    assert type(listener_for(style)) is kind


def test_auto_is_live_on_a_terminal_and_in_a_notebook_with_widgets_and_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(listener_for("auto")) is Lines
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    assert type(listener_for("auto")) is Lines, "Rich warns where ipywidgets is missing"
    (tmp_path / "ipywidgets.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(listener_for("auto")) is Live
    monkeypatch.delitem(sys.modules, "ipykernel")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert type(listener_for("auto")) is Live


def test_none_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(listener_for("none"))
    assert capsys.readouterr() == ("", "")


def test_lines_tell_where_a_step_begins_and_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(Lines(clock=lambda: 0.0))
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


TARGETS = ("onnx", "onnx-int8-dynamic", "web", "coreml")
WHY = "cpu: relevance of image 31 differs by 0.123, and the limit is 0.0001, which is a long sentence"


@dataclass
class Run:
    """A view in the middle of a run, 75 seconds after its start."""

    now: float = 0.0

    def lines(self, width: int, *, known: bool = True) -> list[str]:
        live = Live(clock=lambda: self.now, width=width)
        live.progress("model", 0.5, "writing the model")
        live.done("model")
        live.started(TARGETS, dict.fromkeys(TARGETS, 40.0) if known else {"onnx": 40.0})
        live.progress("onnx", 0.1, "exporting")
        self.now = 12.0
        live.finished(TargetOutcome("onnx", Path("onnx"), "verified"))
        live.progress("onnx-int8-dynamic", 0.1, "exporting")
        self.now = 50.0
        live.finished(TargetOutcome("onnx-int8-dynamic", Path("d"), "failed", WHY))
        live.progress("web", 0.62, "running evaluation in ONNX Runtime Web, WebAssembly, fp32, 2 threads")
        self.now = 75.0
        console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        with console.capture() as said:
            console.print(live.view.get_renderable())
        return said.get().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_line_a_target_and_no_line_wider_than_the_terminal(width: int) -> None:
    lines = Run().lines(width)
    assert len(lines) == 1 + len(TARGETS)
    assert max(len(line) for line in lines) <= width
    assert lines[0].startswith("2 of 4 targets done, about 55 s left")
    assert lines[1].startswith("✓ onnx")
    assert lines[1].rstrip().endswith("12 s")
    assert "verified" in lines[1]
    assert lines[2].startswith("✗ onnx-int8-dynamic")
    assert "failed" in lines[2]
    assert lines[2].rstrip().endswith("38 s")
    assert "62%  running" in lines[3]
    assert lines[3].rstrip().endswith("25 s")
    assert "waiting" in lines[4]


def test_no_estimate_where_a_duration_is_unknown() -> None:
    assert Run().lines(80, known=False)[0].strip() == "2 of 4 targets done"


def test_the_view_is_taken_away_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Live() as live:
        live.progress("reference", 0.25, "recording on the CPU")
        live.view.refresh()
    assert "recording on the CPU" in terminal.getvalue()
    assert not live.view.live.is_started


def test_it_ends_when_the_run_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    live = Live()
    with pytest.raises(ZeroDivisionError), live:
        live.progress("onnx", 1 / 0, "exporting")
    assert not live.view.live.is_started


def test_outside_of_its_block_it_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    live = Live()
    live.progress("onnx", 0.5, "exporting")
    live.done("onnx")
    live.finished(TargetOutcome("onnx", Path("onnx"), "verified"))
    assert capsys.readouterr() == ("", "")
