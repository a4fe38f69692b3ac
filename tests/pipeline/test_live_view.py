"""The live view: every target stays with its verdict, in terminals of 60 columns and more."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from edgekit.pipeline.live_view import Live
from edgekit.pipeline.outcome import TargetOutcome

TARGETS = ("onnx", "onnx-int8-dynamic", "web", "coreml")
WHY = "cpu: relevance of image 31 differs by 0.123, and the limit is 0.0001, which is a long sentence"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@dataclass
class Run:
    """A view in the middle of a run, 75 seconds after its start."""

    now: float = 0.0

    def lines(self, width: int, *, known: bool = True) -> list[str]:
        live = Live(clock=lambda: self.now)
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
            console.print(live.view(console))
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
        assert live.shown is not None
        live.shown.refresh()
    assert "recording on the CPU" in terminal.getvalue()
    assert not live.shown.is_started


def test_it_ends_when_the_run_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    live = Live()
    with pytest.raises(ZeroDivisionError), live:
        live.progress("onnx", 1 / 0, "exporting")
    assert live.shown is not None
    assert not live.shown.is_started


def test_outside_of_its_block_it_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    live = Live()
    live.progress("onnx", 0.5, "exporting")
    live.done("onnx")
    live.finished(TargetOutcome("onnx", Path("onnx"), "verified"))
    assert capsys.readouterr() == ("", "")
