"""The place `ort-webgpu`: the real provider on Chromium's software GPU, else what is said of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import NotVerifiedHere
from edgekit.testing import small_model
from edgekit_targets.onnx import webgpu
from edgekit_targets.web import browser
from tests.builds import unjudged
from tests.manifests import spoilt

TIMEOUT = 600


def software() -> dict[str, str]:
    """Variables with which Vulkan has Chromium's software GPU alone; empty if Chromium brings none."""
    files = browser.find_chromium()
    folder = Path(files).resolve().parent if files else Path()
    drivers = [path / "vk_swiftshader_icd.json" for path in (folder, Path("/usr/lib/chromium"))]
    driver = next((path for path in drivers if path.is_file()), None)
    if driver is None or not (driver.parent / "libvulkan.so.1").is_file():
        return {}
    return {"LD_LIBRARY_PATH": str(driver.parent), "VK_DRIVER_FILES": str(driver), webgpu.SOFTWARE: "1"}


@pytest.fixture
def gpu() -> dict[str, str]:
    if util.find_spec(webgpu.PACKAGE) is None:
        pytest.skip(webgpu.INSTALL)
    variables = software()
    if not variables:
        pytest.skip("Chromium's libvk_swiftshader.so is missing: apt install chromium")
    return variables


def run(words: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgekit", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **variables}, timeout=TIMEOUT, check=False
    )


def asked(build: Path, variables: dict[str, str]) -> dict[str, Any]:
    words = ["verify", str(build), "--place", "ort-webgpu", "--images", "2", "--trust-build", "--json"]
    done = run(words, variables)
    artifact: dict[str, Any] = json.loads(done.stdout)["artifacts"][0]
    return artifact


@pytest.mark.nightly
def test_an_artifact_is_judged_on_webgpu_and_a_wrong_one_is_rejected(tmp_path: Path, gpu: dict[str, str]) -> None:
    build = unjudged(small_model(), tmp_path, ("onnx",))
    artifact = asked(build, gpu)
    assert artifact["status"] == "verified", artifact["reasons"]
    [place] = artifact["places"]
    assert "WebGPU 0." in place["device"]
    assert "SwiftShader" in place["device"]
    assert place["timings"] == {}
    said = json.dumps(artifact["notes"])
    assert "is software, so WebGPU is not timed here" in said
    assert "nodes on the CPU: " in said
    spoilt(build / "onnx")
    assert asked(build, gpu)["status"] == "rejected"


def test_doctor_says_what_is_there_and_what_is_missing(gpu: dict[str, str]) -> None:
    def line(variables: dict[str, str]) -> str:
        return next(text for text in run(["doctor"], variables).stdout.splitlines() if text.startswith("ort-webgpu"))

    assert "ready: SwiftShader" in line(gpu)
    assert "in software, not timed" in line(gpu)
    if not Path("/sys/class/drm").exists():
        assert f"set {webgpu.SOFTWARE}=1" in line({**gpu, webgpu.SOFTWARE: "0"})
    assert "VK_DRIVER_FILES names a driver's file" in line({**gpu, "VK_DRIVER_FILES": "/nowhere.json"})


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webgpu, "PACKAGE", "no_such_package")
    with pytest.raises(NotVerifiedHere, match="onnxruntime-ep-webgpu is not installed"):
        webgpu.webgpu_devices(None)
    assert webgpu.status() == "needs no_such_package: pip install onnxruntime-ep-webgpu"
