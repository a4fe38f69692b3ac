"""Files into an app, without a build: what is written, kept, removed, refused, and told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.errors import UsageError
from edgekit_apps import sync


def there(app: Path) -> set[str]:
    return {p.relative_to(app).as_posix() for p in app.rglob("*") if p.is_file()}


def test_what_is_new_changed_or_the_same_is_told(tmp_path: Path) -> None:
    app, source = tmp_path / "app", tmp_path / "model.onnx"
    source.write_bytes(b"model")
    first = sync.sync(app, "net", {"assets/model.onnx": source, "code.kt": b"v1"}, ("left out",))
    assert (first.written, first.removed, first.kept) == (("assets/model.onnx", "code.kt"), (), ())
    assert (first.size, first.notes) == (7, ("left out",))
    second = sync.sync(app, "net", {"assets/model.onnx": source, "code.kt": b"v2"})
    assert (second.written, second.kept) == (("code.kt",), ("assets/model.onnx",))
    third = sync.sync(app, "net", {"code.kt": b"v2"})
    assert (third.written, third.removed, third.kept) == ((), ("assets/model.onnx",), ("code.kt",))
    assert there(app) == {"code.kt", sync.list_path("net")}
    assert not (app / "assets").exists()  # a folder that this emptied goes too


def test_the_list_names_paths_and_hashes_and_a_second_run_leaves_it_alone(tmp_path: Path) -> None:
    sync.sync(tmp_path, "net", {"a": b"one"})
    path = tmp_path / sync.list_path("net")
    listed, before = json.loads(path.read_text()), path.stat().st_mtime_ns
    assert listed["files"] == {"a": "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"}
    sync.sync(tmp_path, "net", {"a": b"one"})
    assert path.stat().st_mtime_ns == before


def test_differences_are_what_apply_would_change(tmp_path: Path) -> None:
    wanted = {"new": b"1", "changed": b"2", "same": b"3"}
    sync.sync(tmp_path, "net", {"changed": b"old", "same": b"3", "gone": b"4"})
    assert sync.differences(tmp_path, "net", wanted) == (
        "'new' is missing",
        "'changed' is stale",
        "'gone' is no longer needed",
    )
    sync.sync(tmp_path, "net", wanted)
    assert sync.differences(tmp_path, "net", wanted) == ()
    (tmp_path / sync.list_path("net")).unlink()
    assert sync.differences(tmp_path, "net", wanted) == ("'edgekit/net.assets.json' does not match the files",)


def test_a_file_of_somebody_else_is_in_the_way_unless_it_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"'.*/a' exists and edgekit did not write it"):
        sync.sync(tmp_path, "net", {"b": b"new", "a": b"yours"})
    assert there(tmp_path) == {"a"}
    assert sync.sync(tmp_path, "net", {"a": b"mine"}).kept == ("a",)


def test_what_another_model_needs_stays(tmp_path: Path) -> None:
    sync.sync(tmp_path, "one", {"shared": b"s", "own": b"1"})
    sync.sync(tmp_path, "two", {"shared": b"s"})
    assert sync.sync(tmp_path, "one", {}).removed == ("own",)
    assert (tmp_path / "shared").read_bytes() == b"s"


def test_what_was_changed_by_hand_is_left_and_told(tmp_path: Path) -> None:
    sync.sync(tmp_path, "net", {"a": b"made"})
    (tmp_path / "a").write_bytes(b"changed")
    done = sync.sync(tmp_path, "net", {})
    assert done.removed == ()
    assert done.notes == ("'a' was changed by hand, so it was kept although no longer needed",)
    assert (tmp_path / "a").read_bytes() == b"changed"


@pytest.mark.parametrize("path", ["../outside", "/outside", "a/../../outside", "a//b", "./a"])
def test_a_path_that_is_not_plain_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which is not a plain path"):
        sync.sync(tmp_path / "app", "net", {path: b"x"})
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "assets").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a link"):
        sync.sync(tmp_path / "app", "net", {"assets/a": b"x"})
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("text", ["", "[]", '{"files": 3}', "{"])
def test_a_list_that_is_damaged_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / sync.list_path("net")
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(UsageError, match=r"is damaged \(\w+\). Restore it from version control"):
        sync.differences(tmp_path, "net", {})
