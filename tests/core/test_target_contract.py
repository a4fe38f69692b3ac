"""The suite that a target inherits takes a model of one's own, and shows why an export failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

SUITE = """
from edgekit.testing import TargetContract


class TestFailedExport(TargetContract):
    name = "onnx"
    model = "tests.modules:without_translation"
"""


@pytest.mark.nightly
def test_the_suite_takes_a_model_of_ones_own_and_shows_the_error_of_a_failed_export(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(SUITE)
    words = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "advertises", tmp_path)
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert "9 deselected, 1 error" in run.stdout, run.stdout
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("the export of 'onnx' failed")]
    assert "linalg_svd" in line, line
    assert "manifest.json" not in run.stdout
    assert "DEBUG" not in run.stdout, "PyTorch's own log hides the error"
