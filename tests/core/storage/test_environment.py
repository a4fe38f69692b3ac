"""Environments of their own: what is said where one is not there, and that a setup that fails leaves nothing."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from edgekit import registry
from edgekit.cli import target_commands
from edgekit.errors import DependencyError, UsageError
from edgekit.storage import environment
from edgekit.storage.environment import LITERT
from edgekit.storage.files import digest_file, dump_json

HERE = (sys.platform, platform.machine()) == environment.LOCKED[LITERT]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_LITERT", str(tmp_path / "cache" / LITERT))
    return tmp_path / "cache" / LITERT


def made(folder: Path, lock: str) -> None:
    """What an environment looks like from outside."""
    (folder / "bin").mkdir(parents=True)
    (folder / environment.PYTHON).symlink_to(sys.executable)
    record = {"name": LITERT, "lock": lock, "packages": {"litert-torch": "0.10.0"}}
    (folder / environment.RECORD).write_text(dump_json(record))


def test_one_that_is_not_there_is_named_with_its_command(folder: Path) -> None:
    with pytest.raises(DependencyError, match=rf"no environment 'litert' in '{folder}'\. Run: edgekit env add litert"):
        environment.python(LITERT)
    assert target_commands.environments()[LITERT] == "not installed: edgekit env add litert"
    with pytest.raises(DependencyError, match="target 'litert' needs litert_torch: edgekit env add litert"):
        registry.require("litert", registry.find("litert"))


def test_one_that_is_there_is_found_with_its_versions(folder: Path) -> None:
    made(folder, digest_file(environment.lock(LITERT)))
    assert environment.python(LITERT) == folder / environment.PYTHON
    assert environment.version_of(LITERT, "litert_torch") == {"litert-torch": "0.10.0"}
    assert environment.version_of(LITERT, "jax") == {}
    assert registry.missing(registry.find("litert")) == ()


@pytest.mark.parametrize("lock", ["of another edgekit", ""])
def test_one_of_another_lock_is_none(lock: str, folder: Path) -> None:
    made(folder, lock)
    assert not environment.ready(LITERT)
    assert environment.versions(LITERT) == {}


def test_a_setup_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not HERE:
        pytest.skip("the environment is for Linux on x86-64: install on such a host")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(UsageError, match="cannot make the environment 'litert': ERROR: Could not find a version"):
        environment.install(LITERT, lambda text: None)
    assert list(folder.parent.iterdir()) == []


def test_a_folder_of_somebody_else_is_left_alone(folder: Path) -> None:
    if not HERE:
        pytest.skip("the environment is for Linux on x86-64: install on such a host")
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"mine.txt' exists and edgekit did not write it"):
        environment.install(LITERT, lambda text: None)
    assert (folder / "mine.txt").read_text() == "mine"


def test_another_system_is_told_what_it_is_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(UsageError, match=f"'litert' is for linux on x86_64, and this is {sys.platform} on arm64"):
        environment.install(LITERT, lambda text: None)
    assert not folder.parent.exists()


def test_every_line_of_the_lock_has_a_version_and_a_hash() -> None:
    lines = [line for line in environment.lock(LITERT).read_text().splitlines() if not line.startswith("#")]
    assert len(lines) > 50
    for line in lines:
        name, *hashes = line.split()
        assert "==" in name
        assert hashes
        assert all(one.startswith("--hash=sha256:") for one in hashes)
    assert not any(line.startswith("torch==") for line in lines)
