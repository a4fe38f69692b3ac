from __future__ import annotations

import json
from pathlib import Path

from edgekit import pipeline
from edgekit.testing import TargetContract
from tests.quantization.listening import Silent

NAME = "onnx-int8-static"
SMALL = "edgekit.testing:small_model"


class TestOnnxInt8Static(TargetContract):
    name = NAME


def test_a_quick_search_is_kept_and_goes_on(tmp_path: Path) -> None:
    first = pipeline.export(SMALL, (NAME,), tmp_path, {}, Silent())
    assert first.rows[-1].status == "verified", first.rows[-1].sentences
    cache = tmp_path / "small" / "cache" / NAME
    table = json.loads((cache / "recipes.json").read_text())
    assert sum(row["chosen"] for row in table) == 1
    chosen = next(row for row in table if row["chosen"])
    assert chosen["p50_ms"] > 0
    lines = (cache / "tried.jsonl").read_text().splitlines()
    (cache / "tried.jsonl").write_text("\n".join(lines[:4]) + "\n" + lines[4][:40])  # as a kill leaves it
    again = Silent()
    second = pipeline.export(SMALL, (NAME,), tmp_path, {}, again, fresh=True)
    assert json.loads((cache / "recipes.json").read_text())[0]["name"] == table[0]["name"]
    assert (second.rows[-1].folder / "model.onnx").read_bytes() == (first.rows[-1].folder / "model.onnx").read_bytes()
    assert not any(text.startswith(("recipe 1:", "recipe 4:")) for text in again.texts)
    assert any(text.startswith("recipe 5:") for text in again.texts)
    report = first.report.read_text()
    assert "Quantization recipes" in report
