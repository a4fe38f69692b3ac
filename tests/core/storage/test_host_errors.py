"""Errors of the operating system are one sentence and exit code 2."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from edgekit.errors import UsageError
from edgekit.storage.host_errors import as_sentences
from tests.command import exit_code


@as_sentences()
def meets(error: OSError) -> None:
    raise error


@as_sentences()
def write(path: Path) -> None:
    path.write_bytes(b"x")


def test_a_full_disk_says_what_and_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"'/x/y' cannot be used \(No space left on device\): free some space"):
        meets(OSError(errno.ENOSPC, "No space left on device", "/x/y"))


def test_a_real_full_device_is_one_sentence() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full: the test needs Linux")
    with pytest.raises(UsageError, match="No space left"):
        write(Path("/dev/full"))


def test_what_no_user_can_change_stays_an_error() -> None:
    with pytest.raises(FileNotFoundError), as_sentences():
        Path("/nowhere/at/all").read_bytes()


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"'.*/link' is a link to nothing"), as_sentences():
        (tmp_path / "link").read_bytes()


@pytest.mark.parametrize("kind", ["long name", "link to nothing", "file"])
def test_a_build_folder_that_cannot_be_is_one_sentence(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / ("x" * 300 if kind == "long name" else "build")
    if kind == "link to nothing":
        folder.symlink_to(tmp_path / "nothing")
    elif kind == "file":
        folder.write_text("mine")
    assert exit_code("export", "edgekit.testing:small_model", "-t", "onnx", "-o", str(folder)) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert said[-1].startswith("edgekit: '") or said[-1].startswith("edgekit: cannot write to '")
    assert "Traceback" not in "".join(said)
