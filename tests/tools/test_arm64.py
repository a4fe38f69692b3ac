"""The arm64 place: what is said without an emulator or a system, and the real thing where both are there."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from edgekit import api
from edgekit.errors import NotVerifiedHere, UsageError
from tools import arm64


def tool(folder: Path, name: str, says: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{says}\n")
    (folder / name).chmod(0o755)


def test_without_an_emulator_the_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotVerifiedHere, match="no qemu-aarch64 here: install qemu-user, version 10 or later"):
        arm64.command()


def test_an_old_emulator_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path / "bin", arm64.QEMU, "echo 'qemu-aarch64 version 7.2.22 (Debian)'")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(NotVerifiedHere, match="qemu-aarch64 is 7, which ONNX Runtime crashes"):
        arm64.command()


def test_without_a_system_the_sentence_says_how_to_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path / "bin", arm64.QEMU, "echo 'qemu-aarch64 version 10.0.2'")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("EDGEKIT_ARM64", str(tmp_path / "none"))
    with pytest.raises(NotVerifiedHere, match=r"make it with `python -m tools\.arm64`"):
        arm64.command()


def test_sources_without_arm64_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path / "bin", "apt-get", "echo 'E: no such architecture' >&2; exit 100")
    tool(tmp_path / "bin", "dpkg", "true")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("EDGEKIT_ARM64", str(tmp_path / "cache" / "arm64"))
    with pytest.raises(UsageError, match="the package sources here have no arm64: E: no such architecture"):
        arm64.install(lambda text: None)
    assert list((tmp_path / "cache").iterdir()) == []


def ready() -> bool:
    try:
        return subprocess.run([*arm64.command(), "-c", ""], check=False, timeout=120).returncode == 0
    except NotVerifiedHere:
        return False


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes minutes: set EDGEKIT_SLOW=1")
def test_an_emulated_arm64_processor_gives_a_verdict_and_no_times(build: Path) -> None:
    if not ready():
        pytest.skip("install qemu-user 10 and run `python -m tools.arm64`")
    name = f"ort@python:{shlex.join(arm64.command())}"
    found = api.verify(build, places=[name], images=2, targets=["onnx"], progress="none")["onnx"]
    assert found.status == "verified", found.reasons
    [place] = found.places
    assert place.place == "ort@python:qemu-aarch64"
    assert "(aarch64)" in place.device
    assert not place.timings
    assert place.start_up is None
