"""A detector with its non-maximum suppression is exported and verified in runtimes of every kind."""

from __future__ import annotations

import pytest

import edgekit
from tests.builds import without_report
from tests.detectors import detections

TARGETS = ("onnx", "onnx-fp16", "onnx-int8-dynamic", "openvino", "executorch")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> edgekit.Build:
    with without_report():
        return edgekit.export(
            detections(), targets=TARGETS, output=tmp_path_factory.mktemp("detections"), progress="none"
        )


@pytest.mark.parametrize("target", TARGETS)
def test_it_is_verified(build: edgekit.Build, target: str) -> None:
    assert str(build[target].verdict) == "verified"
