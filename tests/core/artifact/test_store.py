from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from edgekit.artifact.manifest import BundleInfo, File, Manifest, VerdictSummary
from edgekit.artifact.store import (
    MANIFEST,
    amend,
    commit,
    own_files,
    read_artifact,
    read_file,
    require_build,
    write_manifest,
)
from edgekit.errors import ArtifactError, UsageError
from edgekit.storage.files import dump_json, staging, sweep
from tests import interrupted
from tests.manifests import manifest


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill cuts no power: nothing needs the disk itself."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def make(folder: Path, content: bytes = b"old") -> Manifest:
    with staging(folder, own_files) as staged:
        (staged / "model.bin").write_bytes(content)
        (staged / "inner").mkdir()
        (staged / "inner" / "more.bin").write_bytes(content * 2)
        return commit(staged, manifest(entry="model.bin"))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made = make(tmp_path / "a")
    assert read_artifact(tmp_path / "a") == made
    assert [f.path for f in made.files] == ["inner/more.bin", "model.bin"]
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_missing_and_replaced_files_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    make(folder)
    (folder / "model.bin").unlink()
    with pytest.raises(ArtifactError, match="missing"):
        read_artifact(folder)
    (folder / "model.bin").symlink_to("inner/more.bin")
    with pytest.raises(ArtifactError, match="not a regular file"):
        read_artifact(folder)


def test_damaged_manifest_is_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    make(folder)
    path = folder / MANIFEST
    whole = path.read_bytes()
    for damaged in (b"", b"{", b"[]", whole[:-20], whole.replace(b'"files"', b'"fires"'), b"\xff" + whole):
        path.write_bytes(damaged)
        with pytest.raises(ArtifactError, match="is damaged"):
            read_artifact(folder)
    with pytest.raises(ArtifactError, match="no artifact in"):
        read_artifact(tmp_path / "nothing")


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../b", "a\\b", "a\0b", "", ".", "./a", "a//b", "C:x"])
def test_a_manifest_names_only_files_inside(path: str) -> None:
    with pytest.raises(ValidationError):
        File(path=path, size=1, sha256="0" * 64)


def contents(folder: Path) -> tuple[bytes, tuple[str, ...], bytes]:
    """What an artifact holds: its model, its verdicts, and what they rest on."""
    found = read_artifact(folder)
    result = read_file(folder, found, "result.json") if found.results else b""
    return (folder / "model.bin").read_bytes(), tuple(v.status for v in found.verdicts), result


@pytest.mark.nightly(but=("verdict",))
@pytest.mark.parametrize(
    ("change", "after"),
    [
        (lambda folder: make(folder, b"new"), (b"new", (), b"")),
        (lambda folder: judge(folder, "verified"), (b"old", ("verified",), b"verified")),
    ],
    ids=["another artifact", "another verdict"],
)
def test_a_kill_at_any_call_leaves_the_old_artifact_the_new_one_or_none(
    tmp_path: Path, change: Callable[[Path], object], after: tuple[bytes, tuple[str, ...], bytes]
) -> None:
    """A verdict and the result that it rests on are always of one judgement."""
    before = (b"old", ("rejected",), b"rejected")
    seen: set[tuple[bytes, tuple[str, ...], bytes]] = set()
    stop = 0
    while True:
        folder = tmp_path / f"build-{stop}" / "a"
        make(folder)
        judge(folder, "rejected")
        end = interrupted.run(folder.parent, lambda folder=folder: change(folder), stop)  # type: ignore[misc]
        if folder.exists():
            seen.add(contents(folder))
        sweep(folder.parent)
        seen.add(contents(folder))
        assert [p.name for p in folder.parent.iterdir()] == ["a"]
        if end.how == interrupted.DONE:
            break
        assert end.how == interrupted.KILLED
        stop += 1
    assert stop > 30
    assert seen == {before, after}
    assert contents(folder) == after


@pytest.mark.nightly(but=("28",))
@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE])
def test_an_error_at_any_call_leaves_the_old_artifact_or_the_new_one(tmp_path: Path, fault: int) -> None:
    folder = tmp_path / "build" / "a"
    make(folder)
    calls = interrupted.run(folder.parent, lambda: judge(folder, "verified")).calls
    assert calls > 30
    for stop in interrupted.spread(calls, calls if os.environ.get("EDGEKIT_SLOW") else 12):
        judge(folder, "rejected")
        interrupted.run(folder.parent, lambda: judge(folder, "verified"), stop, fault)
        sweep(folder.parent)
        assert contents(folder) in {(b"old", (s,), s.encode()) for s in ("rejected", "verified")}
        assert [p.name for p in folder.parent.iterdir()] == ["a"]


def judge(folder: Path, status: str) -> None:
    """Enter a verdict and a result that says the same."""
    verdict = VerdictSummary.model_validate({"place": "cpu", "status": status})
    amend(folder, [verdict], {"result.json": status.encode()})


def test_a_judgement_keeps_what_a_user_put_beside_the_artifact_and_an_export_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "a")
    (tmp_path / "a" / "inner" / "notes.txt").write_text("mine")
    judge(tmp_path / "a", "verified")
    assert (tmp_path / "a" / "inner" / "notes.txt").read_text() == "mine"
    with pytest.raises(UsageError, match=r"'.*notes.txt' exists and edgekit did not write it"):
        make(tmp_path / "a", b"new")
    assert contents(tmp_path / "a") == (b"old", ("verified",), b"verified")


def test_an_artifact_that_is_damaged_or_of_an_earlier_edgekit_is_replaced(tmp_path: Path) -> None:
    make(tmp_path / "a")
    told = json.loads((tmp_path / "a" / MANIFEST).read_text())
    old = {name: value for name, value in told.items() if name not in ("content_sha256", "results")}
    (tmp_path / "a" / MANIFEST).write_text(dump_json(old))
    (tmp_path / "a" / "result.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"lacks its own hash.* somebody changed it"):
        read_artifact(tmp_path / "a")
    make(tmp_path / "a", b"new")
    assert contents(tmp_path / "a") == (b"new", (), b"")


def test_a_build_in_the_place_of_an_artifact_is_told_from_nothing(tmp_path: Path) -> None:
    make(tmp_path / "onnx")
    with pytest.raises(ArtifactError, match=r"is a build.* '.*/onnx'"):
        read_artifact(tmp_path)
    require_build(tmp_path)
    with pytest.raises(ArtifactError, match="is an artifact"):
        require_build(tmp_path / "onnx")
    with pytest.raises(UsageError, match="is not a folder"):
        require_build(tmp_path / "nowhere")


def test_a_manifest_of_another_schema_is_refused_by_its_version(tmp_path: Path) -> None:
    make(tmp_path / "a")
    write_manifest(tmp_path / "a", read_artifact(tmp_path / "a").model_copy(update={"schema_version": 1}))
    with pytest.raises(ArtifactError, match="has schema version 1, and this edgekit reads version 2"):
        read_artifact(tmp_path / "a")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"files": ()}, "has no file 'model.bin'"),
        ({"entry": "../../etc/passwd"}, "has no file '../../etc/passwd'"),
        ({"entry": "/etc/passwd"}, "has no file '/etc/passwd'"),
        ({"entry": "model.bin\0"}, "has no file"),
        ({"entry": ""}, "has no entry"),
        ({"bundle": BundleInfo(golden="golden.json")}, "has no file 'golden.json'"),
    ],
)
def test_a_manifest_names_all_that_a_runtime_opens(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    make(tmp_path / "a")
    write_manifest(tmp_path / "a", read_artifact(tmp_path / "a").model_copy(update=changes))
    with pytest.raises(ArtifactError, match=re.escape(sentence)):
        read_artifact(tmp_path / "a")


@pytest.mark.parametrize("kind", ["hard link", "pipe", "folder", "link to a folder", "link"])
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    """Also where the bytes behind it are the right ones; opening a pipe would wait for ever."""
    folder = tmp_path / "a"
    make(folder)
    path = folder / "inner" / "more.bin"
    path.rename(tmp_path / "elsewhere")
    if kind == "hard link":
        path.hardlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        (folder / "inner").rmdir()
        (tmp_path / "other").mkdir()
        (tmp_path / "elsewhere").rename(tmp_path / "other" / "more.bin")
        (folder / "inner").symlink_to(tmp_path / "other")
    with pytest.raises(ArtifactError, match=r"hard link|not a regular file|behind a link"):
        read_artifact(folder)


def test_a_file_in_an_entrys_folder_that_is_not_named_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "a")
    write_manifest(tmp_path / "a", read_artifact(tmp_path / "a").model_copy(update={"entry": "inner"}))
    read_artifact(tmp_path / "a")
    (tmp_path / "a" / "inner" / "weights.bin").write_bytes(b"more")
    with pytest.raises(ArtifactError, match=r"weights.bin' is not in the manifest"):
        read_artifact(tmp_path / "a")


def test_a_file_that_the_manifest_does_not_name_is_not_given(tmp_path: Path) -> None:
    made = make(tmp_path / "a")
    (tmp_path / "a" / "secret").write_text("x")
    with pytest.raises(ArtifactError, match="is not in the manifest"):
        read_file(tmp_path / "a", made, "secret")
    (tmp_path / "a" / "model.bin").write_bytes(b"odd")
    with pytest.raises(ArtifactError, match="is damaged"):
        read_file(tmp_path / "a", made, "model.bin")
