"""The example notebook runs, shows what it was saved with, and names no machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT

nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install -e '.[test]'")
nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install -e '.[test]'")
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
TIMES = re.compile(r"[\d.]+ ms|<caption>.*?</caption>")
"""What differs between two runs or two hosts: latencies, whose CPU was the reference."""


def outputs(notebook: Any) -> list[list[str]]:
    """What each cell shows, as text or HTML."""
    shown = []
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        data = [output.get("data", {}) for output in cell.outputs]
        texts = [output.get("text", "") for output in cell.outputs]
        shown.append([d.get("text/html", "") or t or d.get("text/plain", "") for d, t in zip(data, texts, strict=True)])
    return shown


@pytest.mark.nightly
def test_the_notebook_runs_and_shows_what_it_was_saved_with(tmp_path: Path) -> None:
    saved, run = (nbformat.read(NOTEBOOK, as_version=4) for _ in range(2))
    nbclient.NotebookClient(run, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert _settled(run) == _settled(saved)
    tables = [shown for cell in outputs(run) for shown in cell if "<table>" in shown]
    assert [table.count(">verified (no evaluation set)<") for table in tables] == [3]


def test_the_notebook_names_no_machine() -> None:
    text = NOTEBOOK.read_text()
    assert not re.findall(r"/(?:home|tmp|root|Users|work|opt)/", text)


def _settled(notebook: Any) -> list[list[str]]:
    notes = re.compile(r"^cpu: (run in|compared with|a fresh process|too noisy).*\n", re.MULTILINE)
    return [[notes.sub("", TIMES.sub("", shown)) for shown in cell] for cell in outputs(notebook)]
