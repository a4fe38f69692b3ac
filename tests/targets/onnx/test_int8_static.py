from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from PIL import Image

from edgekit.model.sources import resolve_model
from edgekit.pipeline import run
from edgekit.testing import TargetContract
from edgekit_targets.onnx.quantization.calibration import LEAST
from tests.targets.onnx.quantization.listening import Silent

NAME = "onnx-int8-static"
SMALL = "edgekit.testing:small_model"


class TestOnnxInt8Static(TargetContract):
    name = NAME
    options: Mapping[str, str] = MappingProxyType({"method": "percentile"})


@pytest.mark.nightly
def test_a_quick_search_is_kept_and_goes_on(tmp_path: Path) -> None:
    model, build = resolve_model("tests.networks:mlp"), tmp_path / "mlp"
    first = run.export(model, (NAME,), build, {}, Silent())
    assert first[NAME].status != "failed", first[NAME].error
    cache = build / "cache" / NAME
    table = json.loads((cache / "trials.json").read_text())
    assert sum(row["chosen"] for row in table) == 1
    chosen = next(row for row in table if row["chosen"])
    assert chosen["p50_ms"] > 0
    lines = (cache / "tried.jsonl").read_text().splitlines()
    (cache / "tried.jsonl").write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:40])  # as a kill leaves it
    again = Silent()
    second = run.export(model, (NAME,), build, {}, again, fresh=True)
    assert json.loads((cache / "trials.json").read_text())[0]["name"] == table[0]["name"]
    assert (second[NAME].path / "model.onnx").read_bytes() == (first[NAME].path / "model.onnx").read_bytes()
    assert len({text for text in again.texts if text.startswith("recipe ")}) == 1  # what was cut off
    third = Silent()
    shutil.rmtree(build / NAME)
    run.export(model, (NAME,), build, {}, third)
    assert not any(text.startswith("recipe ") for text in third.texts)  # the line that was cut off is whole again


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes 20 seconds: set EDGEKIT_SLOW=1")
def test_other_photographs_make_another_artifact(build: Path, tmp_path: Path) -> None:
    """The key holds what is in the folder, and the manifest does not hold where it lies."""
    photographs = tmp_path / "photographs"
    photographs.mkdir()
    draw = np.random.default_rng(1)
    for number in range(LEAST):
        pixels = draw.integers(0, 256, (96, 96, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(photographs / f"{number:03}.png")
    options = {NAME: {"search": "none", "calibration": str(photographs)}}
    first = run.export(resolve_model(SMALL), (NAME,), build, options, Silent())[NAME]
    assert str(tmp_path) not in (first.path / "manifest.json").read_text()
    assert run.export(resolve_model(SMALL), (NAME,), build, options, Silent())[NAME].reused
    Image.fromarray(pixels // 2).save(photographs / "000.png")
    assert not run.export(resolve_model(SMALL), (NAME,), build, options, Silent())[NAME].reused


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--calibration", "nowhere"), "the folder 'nowhere' does not exist"),
        (("--calibration", "empty"), "the folder 'empty' has no images"),
        (("--method", "guess"), "cannot be 'guess'. Possible values: auto, minmax, entropy, percentile"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_two(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    command = [sys.executable, "-m", "edgekit", "quantize", SMALL, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.returncode == 2
    assert said in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "build" / "small" / NAME).exists()
