"""Inputs without a batch axis, or with it elsewhere: right artifacts are verified, wrong ones rejected."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from safetensors.numpy import load_file

import edgekit
from edgekit import api, registry
from edgekit.model.sources import resolve_model
from tests.builds import unjudged, without_report
from tests.manifests import spoilt

TARGETS = ("onnx-fp16", "onnx-int8-dynamic", "torchscript", "openvino", "executorch", "coreml")
FACTORIES = ("shared", "time_first")


@pytest.mark.nightly
@pytest.mark.parametrize("factory", FACTORIES)
def test_a_right_artifact_is_verified_and_a_wrong_one_rejected(factory: str, tmp_path: Path) -> None:
    root = unjudged(resolve_model(f"tests.batch_modules:{factory}"), tmp_path, ("onnx",))
    with without_report():
        build = api.verify(root, trust_build=True, progress="none")
    assert build["onnx"].status == "verified", build["onnx"].sentences
    [place] = build["onnx"].places
    assert place.evidence is not None
    assert place.evidence.inputs["evaluation"] == 6
    errors = load_file(build["onnx"].path / "errors-cpu.safetensors")
    assert {name: len(error) for name, error in errors.items()} == dict.fromkeys(errors, 6)
    assert max(error.max() for error in errors.values()) < 1e-4
    spoilt(root / "onnx")
    with without_report():
        found = api.verify(root, trust_build=True, progress="none")["onnx"]
    assert found.status == "rejected", found.sentences


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes minutes: set EDGEKIT_SLOW=1")
@pytest.mark.parametrize("factory", [name + fixed for name in FACTORIES for fixed in ("", "_one")])
def test_every_target_takes_them(factory: str, tmp_path: Path) -> None:
    targets = ["onnx", *(name for name in TARGETS if not registry.missing(registry.find(name)))]
    build = edgekit.export(f"tests.batch_modules:{factory}", targets=targets, output=tmp_path, progress="none")
    places = {name: {place.status for place in found.places} for name, found in build.items()}
    # Core ML's interpreter judges here; it takes no input without axes.
    if factory.startswith("shared"):
        assert "has no axes, which Core ML needs" in str(build["coreml"].error)
        del places["coreml"]
    assert {name: status for name, status in places.items() if "verified" not in status or "rejected" in status} == {}
