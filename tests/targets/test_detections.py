"""A detector with its non-maximum suppression is exported and verified; with EDGEKIT_SLOW=1 for three more targets."""

from __future__ import annotations

import os

import pytest

import edgekit
from tests.builds import without_report
from tests.detectors import detections

NIGHTLY = ("onnx-fp16", "onnx-int8-dynamic", "openvino") if os.environ.get("EDGEKIT_SLOW") else ()
TARGETS = ("onnx", "executorch", *NIGHTLY)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> edgekit.Build:
    with without_report():
        return edgekit.export(
            detections(), targets=TARGETS, output=tmp_path_factory.mktemp("detections"), progress="none"
        )


@pytest.mark.nightly
@pytest.mark.parametrize("target", TARGETS)
def test_it_is_verified(build: edgekit.Build, target: str) -> None:
    assert str(build[target].verdict) == "verified"
