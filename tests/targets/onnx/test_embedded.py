"""The embedded model's own files hold the judge's limits: a limit that refuses sound INT8 shows here first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import exit_code

TARGETS = ("onnx-fp16", "onnx-int8-dynamic", "onnx-int8-static")


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_every_precision_of_the_embedded_model_is_verified(tmp_path: Path) -> None:
    assert exit_code("export", *(word for target in TARGETS for word in ("-t", target)), "-o", tmp_path) == 0
