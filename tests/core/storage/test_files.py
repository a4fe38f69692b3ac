from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from edgekit.errors import UsageError
from edgekit.storage import files
from tests import interrupted
from tests.command import exit_code


def dead_process() -> int:
    """The id of a process that has ended and was waited for."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def old(folder: Path) -> tuple[str, ...]:
    return ("old",)


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
    with files.staging(final, old) as staged:
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
        with files.staging(final, old) as staged:
            (staged / "half").write_text("half")
            raise RuntimeError("the converter died")

    with pytest.raises(RuntimeError, match="the converter died"):
        write()
    assert [p.name for p in tmp_path.iterdir()] == ["artifact"]
    assert (final / "old").read_text() == "old"


def test_written_bytes_replace_the_old_ones(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_bytes(path, b"one")
    files.write_text(path, "zwölf")
    assert path.read_bytes() == "zwölf".encode()
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_who_has_the_old_file_open_reads_it_whole(tmp_path: Path) -> None:
    """Bytes are written aside and renamed: a second name of the old file keeps what was in it."""
    path, old = tmp_path / "a", tmp_path / "old"
    files.write_bytes(path, b"before")
    old.hardlink_to(path)
    files.write_bytes(path, b"after")
    assert (old.read_bytes(), path.read_bytes()) == (b"before", b"after")


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


def left(parent: Path, name: str, process: int, kind: str, where: str = "") -> Path:
    """What a process left in a folder, so many hours ago: a folder with a file; `where` is this host's by default."""
    path = parent / f".{name}.{where or files._where()}.{process}.ab12cd34.{kind}"
    path.mkdir()
    (path / "file").write_text(kind)
    return path


def aged(monkeypatch: pytest.MonkeyPatch, hours: float) -> None:
    """Let so many hours pass."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600 * hours)


def test_what_dead_processes_left_is_swept_and_the_rest_stays(tmp_path: Path) -> None:
    dead, alive = dead_process(), os.getpid()
    left(tmp_path, "onnx", dead, "tmp")
    left(tmp_path, "web", dead, "old")
    writing = left(tmp_path, "onnx", alive, "tmp")
    (tmp_path / ".mine.tmp").mkdir()
    (tmp_path / f".manifest.json.{files._where()}.{dead}.ef56ef56.tmp").write_text("half")
    (tmp_path / "web").mkdir()  # the new one is in place: the old one may go
    files.sweep(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {writing.name, ".mine.tmp", "web"}


def test_a_writer_in_another_container_is_not_swept_before_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process has a number that means another process here, or none."""
    dead = dead_process()
    there = [left(tmp_path, "onnx", dead, "tmp", "0123abcd"), left(tmp_path, "web", os.getpid(), "tmp", "0123abcd")]
    of_an_earlier_version = tmp_path / f".onnx.{dead}.ab12.tmp"
    of_an_earlier_version.mkdir()
    files.sweep(tmp_path)
    assert {*tmp_path.iterdir()} == {*there, of_an_earlier_version}
    aged(monkeypatch, 25)
    files.sweep(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_process_with_a_dead_ones_number_keeps_what_was_left_for_a_day_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tmp_path, "onnx", os.getpid(), "tmp")
    files.sweep(tmp_path)
    assert list(tmp_path.iterdir())
    aged(monkeypatch, 25)
    files.sweep(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_artifact_that_had_stepped_aside_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (files._where(), "0123abcd"):
        aside = left(tmp_path, "onnx-int8.v2", dead_process(), "old", where)
        if where == "0123abcd":
            files.sweep(tmp_path)
            assert aside.exists()  # its writer may be between its two renames
            aged(monkeypatch, 0.1)
        files.sweep(tmp_path)
        assert (tmp_path / "onnx-int8.v2" / "file").read_text() == "old"
        assert not aside.exists()
        shutil.rmtree(tmp_path / "onnx-int8.v2")


@pytest.mark.parametrize("kind", ["file", "link", "folder", "inside"])
def test_what_edgekit_did_not_write_is_refused_and_stays(tmp_path: Path, kind: str) -> None:
    final, mine = tmp_path / "artifact", tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    if kind == "file":
        final.write_text("mine")
    elif kind == "link":
        final.symlink_to(mine)
    else:
        final.mkdir()
        (final / ("notes.txt" if kind == "folder" else "old")).write_text("mine")
        if kind == "inside":
            (final / "deep").mkdir()
            (final / "deep" / "notes.txt").write_text("mine")
    before = {p: p.read_text() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(UsageError, match="exists and edgekit did not write it"), files.staging(final, old):
        pass
    assert {p: p.read_text() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_what_came_while_a_folder_was_made_is_refused_too(tmp_path: Path) -> None:
    final = tmp_path / "artifact"

    def write() -> None:
        with files.staging(final, old) as staged:
            (staged / "new").write_text("new")
            final.mkdir()
            (final / "notes.txt").write_text("mine")

    with pytest.raises(UsageError, match=r"'.*/artifact/notes.txt' exists"):
        write()
    assert [p.relative_to(tmp_path).as_posix() for p in sorted(tmp_path.rglob("*"))] == [
        "artifact",
        "artifact/notes.txt",
    ]


def test_four_writers_at_once_leave_one_whole_folder(tmp_path: Path) -> None:
    code = f"""
import pathlib, sys
from edgekit.storage import files
from tests import interrupted
for number in range(60):
    with files.staging(pathlib.Path({str(tmp_path / "artifact")!r}), lambda folder: ["one", "two"]) as staged:
        for name in ("one", "two"):
            (staged / name).write_text(f"{{sys.argv[1]}} {{number}}")
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(n)], stderr=subprocess.PIPE, text=True) for n in range(4)
    ]
    said = [writer.communicate()[1] for writer in writers]
    assert said == [""] * 4
    assert (tmp_path / "artifact" / "one").read_text() == (tmp_path / "artifact" / "two").read_text()
    files.sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["artifact"]


def test_files_that_belong_together_are_never_half_old_and_half_new(tmp_path: Path) -> None:
    """Killed before each operation; a run after that leaves the new ones and nothing else."""
    texts = {tmp_path / name: f"old {name}" for name in ("html", "json", "md")}
    fresh = {path: text.replace("old", "new") for path, text in texts.items()}
    all_seen, stop = set(), 0
    while True:
        files.write_together(texts)
        end = interrupted.run(tmp_path, lambda: files.write_together(fresh), stop)
        seen = frozenset(path.read_text()[:3] for path in texts if path.exists())
        assert seen in ({"old"}, {"new"}, frozenset())
        all_seen.add(seen)
        files.sweep(tmp_path)
        files.write_together(fresh)
        assert {path: path.read_text() for path in tmp_path.iterdir()} == fresh
        if end.how == interrupted.DONE:
            break
        stop += 1
    assert stop > 12
    assert all_seen == {frozenset(["old"]), frozenset(["new"]), frozenset()}


def test_scratch_folders_of_a_stopped_process_go_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "gettempdir", lambda: str(tmp_path))
    code = f"import os, tempfile; tempfile.tempdir = {str(tmp_path)!r}; from edgekit.storage import files; " + (
        "scratch = files.scratch(); (scratch.__enter__() / 'big').write_text('x'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    (left,) = tmp_path.iterdir()
    with files.scratch() as other:
        assert list(tmp_path.iterdir()) == [other]
        with files.scratch() as place:
            assert other.exists()
            assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert not place.exists()
    assert list(tmp_path.iterdir()) == []
    assert left.name.startswith(".edgekit-scratch.")


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_that_cannot_take_its_place_leaves_the_old_one(
    exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / "onnx"
    with files.staging(final) as staged:
        (staged / "model.onnx").write_text("old")
    renames: list[str] = []
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        renames.append(self.name.rpartition(".")[2])
        if renames[-1] == "tmp" and renames.count("tmp") == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    if not exchange:
        monkeypatch.setattr(files, "exchange_names", lambda *_: False)
        with pytest.raises(OSError, match="No space"), files.staging(final, lambda _: ["model.onnx"]) as staged:
            (staged / "model.onnx").write_text("new")
        assert renames == ["tmp", "onnx", "tmp", "old"]
    else:
        with files.staging(final, lambda _: ["model.onnx"]) as staged:
            (staged / "model.onnx").write_text("new")
        assert renames == ["tmp"]
    assert [path.name for path in tmp_path.iterdir()] == ["onnx"]
    assert (final / "model.onnx").read_text() == ("new" if exchange else "old")


def test_a_report_removes_what_a_killed_one_left(build: Path) -> None:
    half = build / f".report.html.{files._where()}.{dead_process()}.0a0a0a0a.tmp"
    half.write_text("half")
    assert exit_code("report", build) == 0
    assert not half.exists()


def test_an_unchanged_file_is_hashed_once_and_a_changed_one_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reads = tmp_path / "weights", Mock(wraps=hashlib.file_digest)
    path.write_bytes(b"a" * 10)
    before = path.stat()
    monkeypatch.setattr(hashlib, "file_digest", reads)
    for _ in range(2):
        files.digest_file(path)
    # It was written just now: another change could have the same stamp.
    assert reads.call_count == 2
    time.sleep(0.15)
    for _ in range(2):
        assert files.digest_file(path) == hashlib.sha256(b"a" * 10).hexdigest()
    assert reads.call_count == 3
    # The same size and time of modification.
    path.write_bytes(b"b" * 10)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files.digest_file(path) == hashlib.sha256(b"b" * 10).hexdigest()


def test_a_worker_takes_over_the_hashes_of_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"a")
    time.sleep(0.15)
    digest, rows = files.digest_file(path), json.loads(json.dumps(files.hashed_files()))
    monkeypatch.setattr(files, "_digests", {})
    monkeypatch.setattr(hashlib, "file_digest", None)
    files.trust_hashes(rows)
    assert files.digest_file(path) == digest
