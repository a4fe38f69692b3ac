"""Several builds in the order of their dates: what stands in the page and the record, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from edgekit.artifact.result import Measure, Timing, Verdict
from edgekit.artifact.run_record import RUN
from edgekit.cli.main import app
from edgekit.errors import UsageError
from edgekit.report import write_history
from edgekit.report.history import read_history
from edgekit.storage.door import sealed
from tests.core.report.conftest import ORT, Builder
from tests.tables import Tables

EVIL = "2026-01-03<script>"


def made(folder: Path, began: str, error: float, p50: float, *targets: str) -> None:
    """A build of some targets that began at a time."""
    builder = Builder(folder)
    builder.reference()
    passed = error <= 1e-4
    measure = Measure(batch="evaluation", output="relevance", metric="max abs", value=error, limit=1e-4, passed=passed)
    timing = Timing(device=ORT, runs=100, p50=p50, p90=p50, p95=p50, p99=p50, mean=p50, std=0.1)
    for target in targets:
        builder.artifact(target, "fp32")
        status: Literal["verified", "rejected"] = "verified" if passed else "rejected"
        found = Verdict(place="cpu", device=ORT, status=status, measures=(measure,), timings={"candidate": timing})
        builder.judge(target, [found], 4096)
    (folder / RUN).write_text(
        sealed({"schema_version": 1, "began": began, "command": "edgekit export", "edgekit": "0.1.0"})
    )


@pytest.fixture
def builds(tmp_path: Path) -> Path:
    made(tmp_path / "late" / "small", EVIL, 5e-4, 9.0, "onnx", "torchscript")
    made(tmp_path / "early" / "small", "2026-01-01T00:00:00+00:00", 2e-5, 3.0, "onnx")
    return tmp_path


def test_builds_stand_in_the_order_of_their_dates_with_what_became_of_each_artifact(builds: Path) -> None:
    found, page = write_history(builds)
    assert [build.folder for build in found.builds] == ["early/small", "late/small"]
    onnx, torchscript = found.lines
    assert [p and (p.status, p.p50, p.used and round(p.used, 6)) for p in onnx.points] == [
        ("verified", 3.0, 0.2),
        ("rejected", 9.0, 5.0),
    ]
    assert torchscript.points[0] is None
    shown = Tables(page.read_text())
    assert "script" not in {tag for tag, _ in shown.elements}
    drawn = [attributes["points"] for tag, attributes in shown.elements if tag == "polyline"]
    head, first, second = shown.rows
    assert "2026-01-01" in head[2]
    assert "<scrip" in head[3], "escaped, so that it is text"
    assert ("verified" in first[2], "3.00 ms" in first[2], "rejected" in first[3]) == (True, True, True)
    assert second[2].strip() == "–"
    assert [points.count(",") for points in drawn] == [2, 2, 2, 1, 1, 1]
    p50 = drawn[1].split()
    assert float(p50[0].split(",")[1]) > float(p50[1].split(",")[1]), "slower stands higher"


def test_the_record_is_json_without_what_is_no_number(builds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app(["report", "--history", str(builds), "--json"], standalone_mode=False)
    said = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert said["schema_version"] == 1
    assert [a["artifact"] for a in said["artifacts"]] == ["onnx · cpu", "torchscript · cpu"]
    assert said["artifacts"][1]["points"][0] is None


def test_one_build_is_no_history(builds: Path, tmp_path: Path) -> None:
    for folder, told in ((builds / "early", "holds one build"), (builds / "nowhere", "holds no builds")):
        with pytest.raises(UsageError, match=told):
            read_history(folder)
    assert not list(tmp_path.rglob("history.html"))
