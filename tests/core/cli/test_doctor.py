from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import onnxruntime
import pytest

from edgekit import registry
from edgekit.cli import target_commands
from edgekit.errors import install_command
from edgekit.target import Need


def test_versions_are_those_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_commands, "LIBRARIES", ("numpy", "a-library-that-nobody-has"))
    versions = target_commands.examine()["versions"]
    assert versions == {
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "a-library-that-nobody-has": "not installed",
    }


def test_the_host_says_what_results_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_THREADS", "3")
    found = target_commands.examine()["host"]
    assert found["threads"] == "3"
    assert {"processor", "instruction sets", "system", "cuda device", "int8 arithmetic"} <= set(found)
    assert all(found.values())
    if Path("/proc/cpuinfo").exists():
        told = Path("/proc/cpuinfo").read_text()
        assert found["processor"] in told
        assert found["instruction sets"] == "not told" or set(found["instruction sets"].split(", ")) <= set(
            told.split()
        )


def test_each_target_is_installed_or_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    real = registry.missing
    need = next(iter(registry.find("coreml").needs), Need("coremltools", "coreml"))
    monkeypatch.setattr(
        registry, "missing", lambda target: (need,) if target is registry.find("coreml") else real(target)
    )
    found = target_commands.examine()["targets"]
    assert list(found) == sorted(registry.available())
    assert install_command("coreml") in found["coreml"]
    assert found["onnx"] == "installed"


def test_a_provider_that_is_there_and_cannot_start_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    assert target_commands.examine()["places"]["ort"] == "ready"
    real = onnxruntime.get_available_providers()
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [*real, "TensorrtExecutionProvider"])
    said = target_commands.examine()["places"]["ort-tensorrt"]
    assert "TensorrtExecutionProvider" in said
    assert "TensorRT's libraries, or name a host" in said


def test_the_phone_on_the_cable_is_not_verified_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = target_commands.examine()["places"]["adb"]
    assert said.startswith("needs adb: apt-get install adb")
    assert said.endswith("not verified here: no phone has run it")
