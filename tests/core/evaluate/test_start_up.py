"""A fresh process: its memory is its own, not that of the process that started it."""

from pathlib import Path

import numpy as np
import pytest

from edgekit.artifact.result import StartUp
from edgekit.hosts import process
from edgekit.model.sources import resolve_model
from edgekit.pipeline.worker import RunJob, start_artifact
from edgekit.testing import SMALL


@pytest.mark.nightly
def test_a_large_parent_does_not_make_a_large_artifact(small_build: Path, tmp_path: Path) -> None:
    spec = resolve_model(SMALL)
    np.savez(tmp_path / "row.npz", **spec.random(1))  # type: ignore[arg-type]  # names
    held = np.ones(100_000_000, np.float64)  # 800 MB in this process
    folder, reference = small_build / "onnx", small_build / "reference"
    asked = RunJob(target="onnx", folder=folder, place="cpu", reference=reference, out=tmp_path)
    found = StartUp.model_validate(process.call(start_artifact, {"request": asked.model_dump(mode="json")}))
    assert held[-1] == 1.0
    assert found.peak_memory is not None
    assert 20e6 < found.peak_memory < 400e6
    assert 0 < found.open_ms <= found.first_answer_ms
