"""Many builds as one table: what a cell's record says, the page, and what changed between two matrices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgekit.artifact.result import EvaluationResult, Measure
from edgekit.artifact.run_record import RunRecord, TargetStatus, write_run
from edgekit.errors import EdgekitError, UsageError
from edgekit.report.change import AllowedChange
from edgekit_matrix.difference import compare_matrices
from edgekit_matrix.report import CellRecord, Matrix, read_cell, read_matrix, record_of, write_cell, write_matrix
from tests.core.report.conftest import ORT, Builder

EVIL = "<script>alert(1)</script>"


def cell(model: str, column: str, status: str = "verified", **more: object) -> CellRecord:
    target = column.partition(" ")[0]
    fields = {"model": model, "target": target, "column": column, "folder": f"cells/{model}/{column}", "status": status}
    return CellRecord.model_validate({**fields, "size": 1000, "sha256": "a", **more})


def test_a_record_says_what_the_build_says(tmp_path: Path) -> None:
    home = tmp_path / "cells" / "vit" / "onnx"
    builder = Builder(home / "vit")
    builder.reference()
    builder.artifact("onnx", "fp32")
    wrong = Measure(batch="evaluation", output="relevance", metric="max abs", value=2e-3, limit=1e-4, passed=False)
    found = [
        EvaluationResult(place="cpu", device=ORT, status="verified"),
        EvaluationResult(place="openvino", device="OpenVINO", status="rejected", measures=(wrong,)),
    ]
    builder.judge("onnx", found, 4096)
    write_run(home / "vit", RunRecord(), {"onnx": TargetStatus(status="rejected")})
    record = record_of("vit", "onnx", "onnx", tmp_path, "cells/vit/onnx")
    assert (record.status, record.size) == ("rejected", 4096)
    assert record.places == {"cpu": "verified", "openvino": "rejected"}
    assert record.decided == "openvino: max abs of 'relevance': 0.00200 (≤ 1e-4)"
    assert len(record.sha256) == 64
    write_cell(home, record)
    assert read_cell(home) == record


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ("model: writing\nedgekit: no model 'a': possible are b\n", "no model 'a': possible are b"),
        ("Traceback (most recent call last):\nKeyError: 'x'\n", "KeyError: 'x'"),
        ("", "it printed nothing"),
    ],
)
def test_without_a_build_the_record_says_what_the_log_says_last(tmp_path: Path, log: str, sentence: str) -> None:
    (tmp_path / "log.txt").write_text(log)
    record = record_of("vit", "onnx", "onnx", tmp_path, "")
    assert (record.status, record.sentence, record.size) == ("failed", sentence, None)


def test_the_page_has_each_cell_with_its_report_and_log_and_escapes(tmp_path: Path) -> None:
    cells = [
        cell("vit", "onnx", decided="max abs 2e-5 (≤ 1e-4)", speed="2.00× pytorch"),
        cell("vit", "onnx opset=17", "failed", sentence=EVIL, size=None, run={"attempts": 3}),
        cell("gru", "onnx", qualifier="no evaluation set"),
    ]
    assert write_matrix(tmp_path, cells) == read_matrix(tmp_path)
    page = (tmp_path / "matrix.html").read_text()
    assert EVIL not in page
    assert "3 cells: 2 verified, 1 failed." in page
    links = re.findall(r'href="([^"]+)"', page)
    assert links.count("cells/vit/onnx/vit/report.html") == links.count("cells/vit/onnx/log.txt") == 1
    assert "cells/vit/onnx%20opset%3D17/log.txt" in links
    assert [word in page for word in ("2.00× pytorch", "asked 3 times", "no evaluation set", "1 kB")] == [True] * 4


def test_what_changed_between_two_matrices(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    write_matrix(one, [cell("vit", "onnx"), cell("vit", "web"), cell("gru", "onnx", "failed"), cell("gru", "coreml")])
    now = [cell("vit", "onnx", size=1100, sha256="b"), cell("vit", "web", "rejected"), cell("gru", "onnx")]
    write_matrix(other, [*now, cell("gru", "web")])
    found = compare_matrices(one, other, AllowedChange())
    assert found is not None
    assert [change.sentence for change in found.worse] == [
        "gru coreml: verdict verified -> not in the build",
        "vit onnx: size 1 kB -> 1.1 kB (limit +1%)",
        "vit web: verdict verified -> rejected",
    ]
    assert [change.artifact for change in found.better] == ["gru onnx", "gru web"]
    assert found.notes == ("2 cells have the same bytes", "other bytes: vit onnx")
    same = compare_matrices(one, one, AllowedChange())
    assert same is not None
    assert same.changes == ()


def test_a_matrix_and_a_build_do_not_compare(tmp_path: Path) -> None:
    write_matrix(tmp_path, [cell("vit", "onnx")])
    with pytest.raises(UsageError, match="is a matrix and the other is not"):
        compare_matrices(tmp_path, tmp_path / "nowhere", AllowedChange())
    assert compare_matrices(tmp_path / "a", tmp_path / "b", AllowedChange()) is None
    (tmp_path / "matrix.json").write_text("{}")
    with pytest.raises(EdgekitError, match="is damaged"):
        read_matrix(tmp_path)
    with pytest.raises(EdgekitError, match="no matrix in"):
        read_matrix(tmp_path / "nowhere")


def test_a_matrix_of_nothing() -> None:
    assert Matrix(cells=()).summary == "0 cells: nothing ended"
