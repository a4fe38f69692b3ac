from __future__ import annotations

import sys

import pytest

from edgekit.cli.console import print_table

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
