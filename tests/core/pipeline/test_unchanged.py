"""A run in which nothing changed: no inputs are made, no report is written, and what was damaged is found."""

from pathlib import Path
from typing import Any

import pytest

from edgekit.model.sources import resolve_model
from edgekit.pipeline import run
from edgekit.pipeline.outcome import Build
from edgekit.reference import record
from edgekit.testing import SMALL, QuietListener

TARGETS = ("onnx", "onnx-fp16")
REPORTS = ("report.html", "report.json", "report.md", "report.csv", "run.json")


def export(build: Path) -> Build:
    return run.export(resolve_model(SMALL), TARGETS, build, {}, QuietListener())


def times(build: Path) -> dict[str, int]:
    return {name: (build / name).stat().st_mtime_ns for name in REPORTS}


@pytest.fixture
def exported(build: Path) -> Path:
    """A build whose last run is one of this module's."""
    export(build)
    return build


def no_batches(*_: Any) -> None:
    raise AssertionError("inputs were made")


def test_nothing_is_made_or_written(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = times(exported)
    monkeypatch.setattr(record, "batches_for", no_batches)
    assert all(outcome.reused for outcome in export(exported).values())
    assert times(exported) == before


def test_a_report_that_was_removed_or_edited_is_written_again(exported: Path) -> None:
    page = (exported / "report.html").read_bytes()
    (exported / "report.html").write_text("edited")
    (exported / "report.csv").unlink()
    export(exported)
    assert (exported / "report.html").read_bytes() == page
    assert (exported / "report.csv").is_file()


def test_a_damaged_reference_is_recorded_again(exported: Path) -> None:
    path = exported / "reference" / "outputs.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert {outcome.status for outcome in export(exported).values()} == {"verified"}
    assert path.read_bytes() == whole


def test_another_selection_is_another_run(exported: Path) -> None:
    before = times(exported)
    run.export(resolve_model(SMALL), TARGETS[:1], exported, {}, QuietListener(), command="edgekit export -t onnx")
    assert times(exported)["run.json"] > before["run.json"]
    assert times(exported)["report.json"] > before["report.json"]
