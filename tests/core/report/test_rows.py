"""What a build folder says, row by row, also where it is incomplete, stale or damaged."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.artifact.fact import Code, fact
from edgekit.artifact.result import RESULT, EvaluationResult, Measure, result_text
from edgekit.errors import UsageError
from edgekit.reference.info import read_info
from edgekit.report.imports import write_imported
from edgekit.report.rows import read_study
from edgekit.report.study import ReportRow
from tests.manifests import read_result


def rows(folder: Path) -> dict[str, ReportRow]:
    return {row.label: row for row in read_study(folder).rows}


def test_every_kind_of_row(filled: Any) -> None:
    found = rows(filled.folder)
    assert {label: row.status for label, row in found.items()} == {
        "coreml · interpreter": "verified",
        "coreml · device": "not verified here",
        "onnx · cpu": "verified",
        "onnx · nnapi · pixel-8": "verified",
        "onnx-fp16 · cpu": "verified",
        "onnx-int8-dynamic · cpu": "verified",
        "onnx-int8-static · cpu": "rejected",
        "torch-mobile": "not judged yet",
        "web · wasm-fp32": "verified",
        "web · wasm-q8": "verified",
        "web · webgpu-fp32": "verified",
    }
    assert {label: found[label].precision for label in ("web · wasm-fp32", "web · wasm-q8", "onnx-fp16 · cpu")} == {
        "web · wasm-fp32": "fp32",
        "web · wasm-q8": "int8",
        "onnx-fp16 · cpu": "fp16",
    }
    assert found["onnx-int8-dynamic · cpu"].verdict.slower
    assert [measure.metric for measure in found["onnx-int8-static · cpu"].failed_measures] == ["spearman"]
    assert found["onnx · cpu"].scores["relevance"].shape == (filled.n, 196)
    assert found["torch-mobile"].reasons == (
        fact(Code.TEXT, text="it was exported but not judged: run `edgekit verify`"),
    )


def test_a_result_of_other_files_or_of_another_reference_is_no_verdict(filled: Any) -> None:
    for target, change in (("onnx", {"artifact_sha256": "f" * 64}), ("onnx-fp16", {"reference_sha256": "f" * 64})):
        found = read_result(filled.folder / target)
        filled.enter(target, {RESULT: result_text(found.model_copy(update=change)).encode()})
    found_rows = rows(filled.folder)
    assert found_rows["onnx"].status == "not judged yet"
    assert "other files" in str(found_rows["onnx"].reasons[0])
    assert "another reference" in str(found_rows["onnx-fp16"].reasons[0])


def test_an_imported_result_of_other_files_is_not_verified(filled: Any) -> None:
    home = filled.folder / "imported" / "pixel-8"
    found = read_result(home)
    other_files = found.model_copy(update={"artifact_sha256": "f" * 64})
    write_imported(home, {RESULT: result_text(other_files).encode()})
    row = rows(filled.folder)["onnx · nnapi · pixel-8"]
    assert (row.status, row.timing) == ("not verified here", None)
    never_exported = found.model_copy(update={"target": "never-exported"})
    write_imported(home, {RESULT: result_text(never_exported).encode()})
    assert rows(filled.folder)["never-exported · nnapi · pixel-8"].status == "not verified here"


def test_a_copy_of_an_artifact_is_a_row_of_its_own(filled: Any) -> None:
    shutil.copytree(filled.folder / "onnx", filled.folder / "onnx-copy")
    assert sum(row.label == "onnx · cpu" for row in read_study(filled.folder).rows) == 2


def test_damaged_files_have_no_verdict(filled: Any) -> None:
    (filled.folder / "onnx" / "model.onnx").write_bytes(b"another model")
    (filled.folder / "web" / "manifest.json").write_text("{")
    (filled.folder / "onnx-fp16" / "result.json").write_text("{")
    (filled.folder / "onnx-int8-dynamic" / "scores-cpu.safetensors").write_bytes(b"nothing")
    (filled.folder / "imported" / "pixel-8" / "result.json").write_text("[]")
    found = rows(filled.folder)
    assert found["onnx"].status == "unreadable"
    assert str(found["onnx"].reasons[0]).startswith("'onnx/model.onnx' is damaged")
    assert found["web"].status == "unreadable"
    assert found["onnx-fp16"].status == "unreadable"
    assert found["pixel-8 · pixel-8"].status == "unreadable"
    assert found["onnx-int8-dynamic"].status == "unreadable"


def test_no_build(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        read_study(tmp_path / "nothing")
    with pytest.raises(UsageError, match="no artifact"):
        read_study(tmp_path)


def measure(metric: str, value: float | None, output: str = "relevance", **facts: Any) -> Measure:
    return Measure(**{"batch": "evaluation", "output": output, "metric": metric, "value": value, **facts})


def test_the_worst_of_a_row() -> None:
    found = (
        measure("max abs", 1e-6),
        measure("max abs", 9.0, "tokens"),
        measure("max abs", 1.0, batch="stress"),
        measure("spearman", 0.98),
        measure("spearman", 0.95, "other"),
        measure("max abs", None, "other"),
        measure("coverage drop", 0.001, ""),
        measure("coverage drop, one image", 0.1, ""),
    )
    row = ReportRow(
        "onnx", "fp32", "cpu", "verified", verdict=EvaluationResult(place="cpu", status="verified", measures=found)
    )
    assert row.worst("max abs") == found[5]
    assert row.worst("spearman") == found[4]
    assert row.worst("nothing") is None
    assert row.drop == found[6]


def test_a_model_without_scores_is_measured_relative_to_its_peak() -> None:
    found = (measure("max abs", 3.0, "logits"), measure("relative", 1e-5, "logits", limit=1e-4))
    row = ReportRow(
        "onnx", "fp32", "cpu", "verified", verdict=EvaluationResult(place="cpu", status="verified", measures=found)
    )
    assert row.error == found[1]


def test_reading_a_reference_with_patience(builder: Any) -> None:
    builder.reference(
        names=None,
        batches=[{"name": "evaluation", "names": ["a", "b"]}, 3],
        metric={"name": "m", "mean": float("nan"), "images": [1, None, "x"]},
        noise={"relevance": 1e-6, "tokens": {"cuda cpu32": {"max abs": 2e-6}, "bad": None}},
        latency={"batch 32": {"eager": {"p50": 3.0, "p95": 4.0, "device": "H200"}}, "batch 1": {"eager": 2.0}, "x": 3},
    )
    found = read_info(builder.folder / "reference")
    assert found.evaluation.names == ("a", "b")
    assert found.evaluation.mean is None
    assert np.isnan(found.evaluation.values[1])
    assert [(n.output, n.between, n.value) for n in found.noise] == [
        ("relevance", "", 1e-6),
        ("tokens", "cuda cpu32 max abs", 2e-6),
    ]
    assert {(s.batch, s.p50, s.p95) for s in found.speeds} == {("batch 1", 2.0, None), ("batch 32", 3.0, 4.0)}
    assert found.host.facts["tf32"] == "off"


@pytest.mark.parametrize("content", ["", "[]", "{", "3", '{"noise": [], "latency": 3, "metric": "x", "names": {}}'])
def test_a_reference_that_is_damaged(tmp_path: Path, content: str) -> None:
    (tmp_path / "reference.json").write_text(content)
    found = read_info(tmp_path)
    assert ("was changed after it was recorded" if "noise" in content else "damaged") in found.missing
    assert found.outputs(["relevance"]) == {}
    assert found.image_input() == ""


def test_the_report_never_imports_torch(filled: Any) -> None:
    code = "import sys; from pathlib import Path; from edgekit import report; report.write_report(Path(sys.argv[1]))"
    code += "; print(sorted({'torch', 'onnx', 'matplotlib'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code, filled.folder], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout.replace("'", '"')) == []
