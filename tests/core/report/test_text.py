from __future__ import annotations

import csv
import io
import json
from typing import Any

from edgekit import report
from edgekit.artifact.fact import Code, fact
from edgekit.artifact.result import EvaluationResult, Measure, Ratio, Timing
from edgekit.report import formats, text
from edgekit.report.rows import read_study


def judged(builder: Any, **facts: Any) -> None:
    measures = (
        Measure(batch="evaluation", output="relevance", metric="max abs", value=None, limit=1e-4, passed=False),
        Measure(batch="evaluation", output="relevance", metric="spearman", value=0.123456789012345, row="scene-001"),
    )
    builder.reference()
    builder.artifact("onnx", "fp32", notes=("stays in fp32",))
    place = EvaluationResult(**{"place": "cpu", "status": "rejected", "device": "ORT", "measures": measures, **facts})
    builder.judge("onnx", [place], 4096)


def test_json_keeps_every_digit_and_says_null_where_a_number_is_not_finite(builder: Any) -> None:
    judged(builder)
    found = json.loads(text.to_json(read_study(builder.folder)))
    (artifact,) = found["artifacts"]
    (row,) = artifact["rows"]
    assert (row["max_abs"], row["spearman"], row["agreement"]) == (None, 0.123456789012345, None)
    assert (row["target"], row["place"], row["status"], row["size"]) == ("onnx", "cpu", "rejected", 4096)
    assert found["counts"]["rejected"] == 1
    assert found["reference"]["device"] == "NVIDIA H200"
    assert {(n["output"], n["value"]) for n in found["reference"]["noise"]} >= {("tokens", 4.4e-6)}
    assert artifact["manifest"]["notes"] == ["stays in fp32"]
    (line,) = csv.DictReader(io.StringIO(text.to_csv(read_study(builder.folder))))
    assert (line["max_abs"], line["spearman"]) == ("not finite", "0.123456789012345")


def test_a_spreadsheet_has_one_line_a_row_with_all_columns(filled: Any) -> None:
    study = read_study(filled.folder)
    lines = list(csv.reader(io.StringIO(text.to_csv(study))))
    assert lines[0] == list(text.COLUMNS)
    assert {len(line) for line in lines} == {len(text.COLUMNS)}
    assert len(lines) == 1 + len(study.rows)
    table = list(csv.DictReader(io.StringIO(text.to_csv(study))))
    onnx = next(line for line in table if (line["target"], line["place"]) == ("onnx", "cpu"))
    row = next(row for row in study.rows if row.label == "onnx · cpu")
    assert row.error is not None
    assert row.error.value is not None
    assert float(onnx["max_abs"]) == row.error.value  # every digit
    assert onnx["baseline"] == "onnx"
    waiting = next(line for line in table if line["verdict"] == "not judged yet")
    assert (waiting["p50_ms"], waiting["ratio"], waiting["max_abs"]) == ("", "", "")


def test_markdown_has_a_table_and_escapes_what_is_markup(builder: Any) -> None:
    judged(builder, device="A|B")
    builder.artifact("onnx-x", "fp32")
    bad = tuple(fact(Code.TEXT, text=text) for text in ("on*nx|<b> one\ntwo & `three`", "more"))
    builder.judge("onnx-x", [EvaluationResult(place="cpu", status="rejected", reasons=bad)], 1)
    said = text.to_markdown(read_study(builder.folder))
    rows = [line for line in said.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1
    assert "on\\*nx\\|\\<b\\>" in said
    assert "one two &amp; \\`three\\`" in said
    assert "not finite" in said
    assert said.startswith("# arr-coc-tiny: edgekit report\n\nReference: **NVIDIA H200, fp32**.\n")


def test_markdown_is_sixty_lines_at_most_and_none_is_long(builder: Any) -> None:
    builder.reference()
    places = [
        EvaluationResult(
            place=f"place-{number}", status="rejected", reasons=(fact(Code.TEXT, text="a reason " * 200),) * 9
        )
        for number in range(5)
    ]
    for number in range(20):
        builder.artifact(f"target-{number}", "fp32", notes=("a note " * 100,) * 9)
        builder.judge(f"target-{number}", places, 1)
    lines = text.to_markdown(read_study(builder.folder)).splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 300
    assert "162 more lines are in report.html: other hosts, earlier runs, and reasons." in lines


def test_a_bundle_has_its_size_on_disk_and_that_of_a_first_visit(filled: Any) -> None:
    filled.judge("web", [EvaluationResult(place="wasm-fp32", status="verified")], 108_000_000, first_visit=5_500_000)
    study = report.write_report(filled.folder)
    [web] = (each for each in json.loads(text.to_json(study))["artifacts"] if each["target"] == "web")
    [row] = web["rows"]
    assert (row["size"], row["first_visit"]) == (108_000_000, 5_500_000)
    assert "| 108 MB, first visit 5.5 MB |" in text.to_markdown(study)
    assert "first visit 5.5 MB" in (filled.folder / "report.html").read_text()
    [line] = (line for line in csv.DictReader(io.StringIO(text.to_csv(study))) if line["target"] == "web")
    assert (line["size_bytes"], line["first_visit_bytes"]) == ("108000000", "5500000")


def test_a_ratio_that_is_too_noisy_is_not_told_as_a_number() -> None:
    assert formats.speed(Ratio(baseline="pytorch", value=789.0, low=79.0, high=1091.0)) == "speed too noisy to say"
    assert formats.speed(Ratio(baseline="pytorch", value=2.0, low=1.9, high=2.1)) == "2.00×"
    assert Ratio(baseline="pytorch", value=1.0, low=0.0, high=1.0).noisy
    timing = Timing(device="d", runs=100, p50=1, p90=2, p95=3, p99=4, mean=1, std=0, warm_ups=10, load=1.5)
    told = formats.protocol(timing, "Example CPU, 2 threads")
    assert told == (
        "p50 1.00 ms, p90 2.00 ms, p95 3.00 ms, p99 4.00 ms; 10 warm-ups, 100 runs on Example CPU, 2 threads, load of "
        "the host 1.5"
    )
