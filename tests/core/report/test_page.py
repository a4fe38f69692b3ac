"""The four files: whole, escaped, self-contained, the same every time."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from safetensors.numpy import save

from edgekit import report
from edgekit.artifact.fact import Code, Fact, fact
from edgekit.artifact.result import RESULT, EvaluationResult, Measure, Ratio, Timing, result_text
from edgekit.artifact.run_record import RunRecord, TargetStatus, write_run
from edgekit.errors import ArtifactError, UsageError
from edgekit.report.page import script_hash
from tests.manifests import EXPORT, read_result
from tests.tables import Tables

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> =HYPERLINK() | `x` {{ 7*7 }}"
VOID = {"meta", "br", "img", "link", "input", "hr"}
ALONE = {"circle", "rect", "line", "image", "use", "stop"}  # SVG elements that close themselves


class Page(Tables):
    """Checks that elements nest, and collects what the tests ask for."""

    def __init__(self, text: str) -> None:
        self.open: list[str] = []
        self.text: list[str] = []
        super().__init__(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALONE
        super().handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def told(sentence: str) -> Fact:
    return fact(Code.TEXT, text=sentence)


def write(builder: Any) -> tuple[str, Page]:
    report.write_report(builder.folder)
    written = (builder.folder / "report.html").read_text()
    return written, Page(written)


def test_every_target_that_was_asked_has_its_state(filled: Any) -> None:
    asked = {
        "onnx-fp16": TargetStatus(status="failed", error="target 'onnx-fp16' failed: out of memory"),
        "litert": TargetStatus(status="not installed", error="needs litert: pip install 'edgekit-export[litert]'"),
        "onnx": TargetStatus(status="verified"),
    }
    record = RunRecord(command="edgekit export net.onnx", edgekit="0.1.0", began="2026-02-03T04:05:06+00:00")
    write_run(filled.folder, record, asked)
    _, page = write(filled)
    said = " ".join(" ".join(page.text).split())
    assert "7 of 12 verdicts are verified; 1 is rejected" in said
    assert "1 is failed, 1 is not installed" in said
    assert "out of memory" in said
    assert "needs litert: pip install 'edgekit-export[litert]'" in said
    assert "Made by edgekit 0.1.0 on 2026-02-03 04:05 UTC with edgekit export net.onnx" in said
    found = json.loads((filled.folder / "report.json").read_text())
    assert found["run"]["command"] == "edgekit export net.onnx"
    assert "| ❌ failed | onnx-fp16 |" in (filled.folder / "report.md").read_text()
    rows = {
        (row["target"], row["verdict"])
        for row in csv.DictReader((filled.folder / "report.csv").read_text().splitlines())
    }
    assert {("onnx-fp16", "failed"), ("litert", "not installed"), ("onnx", "verified")} <= rows
    write_run(filled.folder, record, {"onnx-fp16": TargetStatus(status="verified")})
    assert "8 of 11 verdicts are verified" in " ".join(write(filled)[1].text)


def test_a_build_in_which_nothing_could_be_made_has_a_report(tmp_path: Path) -> None:
    failed = {"onnx": TargetStatus(status="failed", error="no capture")}
    write_run(tmp_path, RunRecord(), failed)
    report.write_report(tmp_path)
    assert "no capture" in (tmp_path / "report.html").read_text()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ArtifactError, match=r"run\.json' is damaged"):
        report.write_report(tmp_path)


def test_the_page_is_whole_and_small(filled: Any) -> None:
    text, page = write(filled)
    said = " ".join(" ".join(page.text).split())
    assert len(text.encode()) < 3_000_000
    assert "8 of 11 verdicts are verified; 1 is rejected, 1 is not verified here, 1 is not judged yet." in said
    assert "NVIDIA H200" in said
    assert "Warning: 0.86x the speed of onnx" in said
    assert "spearman" in said
    assert filled.names[4] in said
    assert "cpu · ONNX Runtime 1.31.1" in said
    assert "nnapi · Pixel 8 · pixel-8" in said
    assert re.search(r"\d\.\d+e-6 ≤ 1e-4", said), "limits stand beside values"
    assert " (≤ 1e-4) |" in (filled.folder / "report.md").read_text()
    for section in ("verdicts", "artifacts", "choice", "accuracy", "pictures", "judged"):
        assert any(attributes.get("id") == section for _, attributes in page.elements)


def test_nothing_is_fetched_and_only_what_sorts_runs(filled: Any) -> None:
    text, page = write(filled)
    prose = re.sub(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/=]+", "", text)
    assert not re.search(r"https?:|//[a-z]|url\(['\"]?(?!#)|@import|javascript:", prose)
    assert len(page.all("script")) == 1
    script = re.findall(r"<script>(.*?)</script>", text, re.S)[0]
    policy = next(meta["content"] for meta in page.all("meta") if "content" in meta and "-src" in meta["content"])
    assert f"script-src '{script_hash(script)}';" in policy  # a script of another text does not run
    assert not page.all("link")
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert any("default-src 'none'" in meta.get("content", "") for meta in page.all("meta"))
    pictures = [image["href"] for image in page.all("image")]
    assert pictures
    assert all(source.startswith(("data:image/png;base64,", "data:image/jpeg;base64,")) for source in pictures)


def test_accessible(filled: Any) -> None:
    _, page = write(filled)
    ids = [attributes["id"] for _, attributes in page.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    targets = [a["href"] for a in page.all("a")] + [use["href"] for use in page.all("use")]
    assert {target.removeprefix("#") for target in targets if target.startswith("#")} <= set(ids)
    files = {target for target in targets if not target.startswith("#")}
    assert {"onnx/model.onnx", "report.json"} <= files
    assert all((filled.folder / unquote(target)).is_file() for target in files)
    assert all(header.get("scope") for header in page.all("th"))
    drawings = [svg for svg in page.all("svg") if svg.get("aria-hidden") != "true" and not svg.get("overflow")]
    assert drawings
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in drawings)
    assert page.all("html")[0]["lang"] == "en"


@pytest.mark.parametrize("scheme", [0, 1])
def test_contrast(scheme: int) -> None:
    style = (Path(report.__file__).parent / "style.css").read_text()
    block = re.findall(r":root \{(.*?)\}", style, re.S)[scheme]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))
    pairs = [(ink, ground) for ink in ("ink", "soft", "accent") for ground in ("page", "card", "sunk")]
    pairs += [(name, f"{name}-soft") for name in ("good", "bad", "wait", "warn")] + [("bad", "card"), ("ink", "base")]
    for ink, ground in pairs:
        assert ratio(colours[ink], colours[ground]) >= 4.5, (ink, ground)


def ratio(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_same_build_gives_the_same_bytes_wherever_it_lies(filled: Any, tmp_path: Path) -> None:
    report.write_report(filled.folder)
    again = tmp_path / "elsewhere" / filled.folder.name
    shutil.copytree(filled.folder, again, ignore=shutil.ignore_patterns("report.*"))
    report.write_report(again)
    for suffix in ("html", "json", "md", "csv"):
        one, other = ((folder / f"report.{suffix}").read_bytes() for folder in (filled.folder, again))
        assert one == other
        assert str(tmp_path).encode() not in one


def hostile(builder: Any) -> None:
    builder.reference(captions=[EVIL] * builder.n, names=[EVIL] * builder.n, device=EVIL, driver=EVIL)
    builder.names = [EVIL] * builder.n
    builder.artifact(
        "onnx", "fp32", notes=(EVIL,), export=EXPORT.model_copy(update={"options": {EVIL: EVIL}, "tools": {EVIL: EVIL}})
    )
    builder.scores("onnx", "cpu", 1e-6, 1)
    timed = Timing(device=EVIL, runs=1, p50=1, p90=1, p95=1, p99=1, mean=1, std=0)
    bad = Measure(batch=EVIL, output=EVIL, metric=EVIL, value=2.0, limit=1.0, table=1.0, passed=False, row=EVIL)
    facts: dict[str, Any] = {"device": EVIL, "reasons": (told(EVIL),), "notes": (told(EVIL),), "measures": (bad,)}
    facts |= {"timings": {"candidate": timed, EVIL: timed}, "ratios": (Ratio(baseline=EVIL, value=1, low=1, high=1),)}
    places = [EvaluationResult(place=name, status="rejected", **facts) for name in ("cpu", EVIL, "../../cpu", "a\0b")]
    builder.judge("onnx", places, 1, host={EVIL: EVIL}, precision=EVIL)
    found = read_result(builder.folder / "onnx")
    builder.enter("onnx", {RESULT: result_text(found.model_copy(update={"target": EVIL})).encode()})
    table = builder.folder / "cache" / "onnx" / "trials.json"
    table.parent.mkdir(parents=True)
    table.write_text(json.dumps([{"name": EVIL, "measures": {EVIL: 1}, EVIL: EVIL}]))


def test_hostile_names_are_text(builder: Any) -> None:
    hostile(builder)
    text, page = write(builder)
    assert text.count("<script") == 1  # the one that sorts
    assert "49" not in re.findall(r"onerror=alert\(2\).*?\{\{ 7\*7 \}\}", text)[0]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    markdown = (builder.folder / "report.md").read_text()
    assert not re.search(r"(?<!\\)<(script|img)", markdown)
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {8}


def test_a_spreadsheet_gets_no_formula(builder: Any) -> None:
    builder.reference()
    builder.artifact("onnx", "fp32")
    builder.judge(
        "onnx",
        [EvaluationResult(place="cpu", status="rejected", device="@SUM(A1)", reasons=(told("=cmd|' /C calc'!A0"),))],
        1,
    )
    report.write_report(builder.folder)
    [row] = csv.DictReader(io.StringIO((builder.folder / "report.csv").read_text()))
    assert row["reason"] == "'=cmd|' /C calc'!A0"
    assert row["device"] == "'@SUM(A1)"
    assert row["verdict"] == "rejected"


def test_nan_and_missing_values(builder: Any) -> None:
    builder.reference()
    builder.artifact("onnx", "fp32")
    maps = builder.scores("onnx", "cpu", 1e-6, 1)
    maps[2, 7] = np.nan
    maps[5] = np.inf
    builder.enter("onnx", {"scores-cpu.safetensors": save({"relevance": maps})})
    lost = Measure(batch="evaluation", output="relevance", metric="max abs", value=None, limit=1e-4, passed=False)
    builder.judge(
        "onnx",
        [EvaluationResult(place="cpu", status="rejected", reasons=(told("it is not finite"),), measures=(lost,))],
        1,
    )
    text, page = write(builder)
    said = " ".join(page.text)
    assert "not finite" in said
    assert f"2 of {builder.n} images are not finite" in said
    assert "patches are not finite" in said
    assert not re.search(r"\bnan\b|\binf\b", text.split("</style>")[1])
    assert json.loads((builder.folder / "report.json").read_text())["counts"]["rejected"] == 1


def test_all_maps_lost_or_of_another_shape(builder: Any) -> None:
    builder.reference()
    for target, maps in (("a", np.full((builder.n, 196), np.nan, np.float32)), ("b", np.zeros((3, 9), np.float32))):
        builder.artifact(target, "fp32")
        builder.enter(target, {"scores-cpu.safetensors": save({"relevance": maps})})
        builder.judge(target, [EvaluationResult(place="cpu", status="rejected", reasons=(told("wrong"),))], 1)
    write(builder)


@pytest.mark.parametrize("gone", ["reference", "reference/inputs.safetensors", "reference/outputs.safetensors"])
def test_missing_pieces(filled: Any, gone: str) -> None:
    path = filled.folder / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    _, page = write(filled)
    said = " ".join(" ".join(page.text).split())
    assert "There is nothing to draw" in said
    assert ("No reference." in said) == (gone == "reference")


def test_nothing_was_judged_yet(builder: Any) -> None:
    builder.artifact("onnx", "fp32")
    _, page = write(builder)
    said = " ".join(" ".join(page.text).split())
    assert "0 of 1 verdict is verified; 1 is not judged yet." in said
    assert "edgekit verify" in said


def test_a_cpu_reference_is_said_loudly(builder: Any) -> None:
    builder.reference(device="CPU (Example)", device_kind="cpu")
    builder.artifact("onnx", "fp32")
    _, page = write(builder)
    assert "The reference was made on a CPU." in " ".join(page.text)
    assert any("alarm" in attributes.get("class", "") for attributes in page.all("div"))
    assert "made on a **CPU**" in (builder.folder / "report.md").read_text()


def test_json_and_csv_have_every_row(filled: Any) -> None:
    study = report.write_report(filled.folder)
    found = json.loads((filled.folder / "report.json").read_text())
    rows = [row for each in found["artifacts"] for row in each["rows"]]
    table = list(csv.DictReader((filled.folder / "report.csv").read_text().splitlines()))
    assert [(row["target"], row["place"], row["status"]) for row in rows] == [
        (row["target"], row["place"], row["verdict"]) for row in table
    ]
    assert found["counts"] == {
        "verified": 8, "rejected": 1, "over budget": 0, "not verified here": 1, "not judged yet": 1,
        "unreadable": 0, "failed": 0, "skipped": 0, "not installed": 0,
    }  # fmt: skip
    onnx = next(row for row in table if row["target"] == "onnx-int8-dynamic")
    assert float(onnx["p50_ms"]) == 4.4
    assert onnx["slower"] == "yes"
    assert study.count("rejected") == 1


def test_a_folder_that_cannot_be_written(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("edgekit.report.write_together", full)
    with pytest.raises(UsageError, match="No space left"):
        report.write_report(filled.folder)
    assert not list(filled.folder.glob("report.*"))
