from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.errors import UsageError
from edgekit.storage import files


def dead_process() -> int:
    """The id of a process that has ended and was waited for."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_digests_are_sha256_of_the_bytes(tmp_path: Path) -> None:
    data = b"\xff\x00edgekit" * 400_000  # more than one chunk
    (tmp_path / "file").write_bytes(data)
    assert files.digest_file(tmp_path / "file") == hashlib.sha256(data).hexdigest()
    assert files.digest_text("Maß") == hashlib.sha256(b"Ma\xc3\x9f").hexdigest()


def test_json_is_the_same_for_the_same_value() -> None:
    assert files.dump_json({"b": [1, 2.5], "a": "ü"}) == '{\n  "a": "ü",\n  "b": [\n    1,\n    2.5\n  ]\n}\n'
    assert files.dump_json({"b": 1, "a": 2}) == files.dump_json({"a": 2, "b": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.dump_json(float("nan"))


def test_a_staged_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    final = tmp_path / "artifact"
    final.mkdir()
    (final / "old").write_text("old")
    with files.staging(final) as staged:
        (staged / "deep").mkdir()
        (staged / "deep" / "new").write_text("new")
        assert (final / "old").is_file()  # nothing is replaced before the end
    assert [p.relative_to(final).as_posix() for p in sorted(final.rglob("*"))] == ["deep", "deep/new"]
    assert [p.name for p in tmp_path.iterdir()] == ["artifact"]


def test_a_block_that_fails_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    final = tmp_path / "artifact"
    final.mkdir()
    (final / "old").write_text("old")

    def write() -> None:
        with files.staging(final) as staged:
            (staged / "half").write_text("half")
            raise RuntimeError("the converter died")

    with pytest.raises(RuntimeError, match="the converter died"):
        write()
    assert [p.name for p in tmp_path.iterdir()] == ["artifact"]
    assert (final / "old").read_text() == "old"


def test_a_folder_below_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UsageError, match=r"cannot write to '.*/file' \(.*\): choose another folder with -o"),
        files.staging(tmp_path / "file" / "artifact"),
    ):
        pass


def test_written_bytes_replace_the_old_ones(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_bytes(path, b"one")
    files.write_text(path, "zwölf")
    assert path.read_bytes() == "zwölf".encode()
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_old_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.write_bytes(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_what_dead_processes_left_is_swept_and_the_rest_stays(tmp_path: Path) -> None:
    dead, alive = dead_process(), os.getpid()
    for name in (f".onnx.{dead}.ab12.tmp", f".onnx.{alive}.ab12.tmp", f".web.{dead}.cd34.old", ".mine.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / f".manifest.json.{dead}.ef56.tmp").write_text("half")
    (tmp_path / "web").mkdir()  # the new one is in place: the old one may go
    files.sweep(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {f".onnx.{alive}.ab12.tmp", ".mine.tmp", "web"}


def test_an_artifact_that_had_stepped_aside_comes_back(tmp_path: Path) -> None:
    aside = tmp_path / f".onnx-int8.v2.{dead_process()}.ab12.old"
    aside.mkdir()
    (aside / "model.onnx").write_text("old")
    files.sweep(tmp_path)
    assert (tmp_path / "onnx-int8.v2" / "model.onnx").read_text() == "old"
    assert not aside.exists()


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_kill_between_the_renames_leaves_the_old_or_the_new_folder(tmp_path: Path, renames: int) -> None:
    """Killed right before the first rename of a folder, between the two, and after both."""
    final = tmp_path / "artifact"
    final.mkdir()
    (final / "content").write_text("old")
    code = f"""
import os, pathlib, signal
from edgekit.storage import files
real, done = pathlib.Path.replace, []
def replace(self, target):
    if len(done) == {renames}:
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(target)
    return real(self, target)
def remove(path):
    os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.replace, files._remove = replace, remove
with files.staging(pathlib.Path({str(final)!r})) as staged:
    (staged / "content").write_text("new")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert final.exists() == (renames != 1)
    files.sweep(tmp_path)
    assert (final / "content").read_text() == ("new" if renames == 2 else "old")
    assert [p.name for p in tmp_path.iterdir()] == ["artifact"]
