"""What INT8 destroys, and what it slows down, is refused with its reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.model.source import resolve_model
from edgekit.pipeline import run
from tests.quantization.listening import Silent

ROOT = Path(__file__).parents[2]


def test_int8_that_destroys_top_k_is_rejected(tmp_path: Path) -> None:
    build = run.export(resolve_model("tests.onnxgraph.outliers:spec"), ("onnx-int8-static",), tmp_path, {}, Silent())
    assert build["onnx"].status == "verified", build["onnx"].sentences
    made = build["onnx-int8-static"]
    assert made.status == "rejected"
    assert any("spearman of 'scores'" in s or "lost mass of 'indices'" in s for s in made.sentences), made.sentences
    notes = json.loads((made.path / "manifest.json").read_text())["notes"]
    assert any(note.startswith("no recipe passed the gate") for note in notes)
    table = json.loads((tmp_path / "outliers" / "cache" / "onnx-int8-static" / "trials.json").read_text())
    assert not any(found["passed"] for found in table)


@pytest.mark.parametrize("arguments", [("--search", "none")])
def test_quantize_refuses_what_is_slower(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """The small model's layers are too small for INT8: it takes twice the time, which no noise of a host hides."""
    command = [sys.executable, "-m", "edgekit", "quantize", "edgekit.testing:small_model", "-o", str(tmp_path)]
    environment = {**os.environ, "EDGEKIT_TIMED_SECONDS": "0.3"}
    ran = subprocess.run([*command, *arguments], capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert ran.returncode == 3, ran.stderr
    assert re.search(r"Warning: 0\.\d\dx the speed of onnx", ran.stdout), ran.stdout
