"""A cell's folder begins with parts of another build, and comes back from a worker as one archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.errors import UsageError
from edgekit.storage.environment import package_digest
from edgekit_matrix.crew import Task, begin, pack_folder, take, unpack, variables
from edgekit_matrix.ray_crew import work


def build(folder: Path) -> Path:
    for path in (
        "model/config.json",
        "reference/reference.json",
        "onnx/manifest.json",
        "web/manifest.json",
        "run.json",
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    return folder


def test_a_build_begins_with_the_parts_that_are_asked_for_and_there(tmp_path: Path) -> None:
    earlier = build(tmp_path / "earlier")
    begin(tmp_path / "cell", "vit", earlier, ("model", "program", "reference", "onnx"))
    assert sorted(path.name for path in (tmp_path / "cell" / "vit").iterdir()) == ["model", "onnx", "reference"]
    (tmp_path / "cell" / "vit" / "model" / "config.json").write_text("its own")
    begin(tmp_path / "cell", "vit", earlier, ("model", "web"))  # a build that is there is left as it is
    assert (tmp_path / "cell" / "vit" / "model" / "config.json").read_text() == "its own"
    begin(tmp_path / "alone", "vit", None, ("model",))
    assert list((tmp_path / "alone").iterdir()) == []


def test_what_comes_back_replaces_what_was_there_in_one_step(tmp_path: Path) -> None:
    archive = pack_folder(build(tmp_path / "build"), ("model", "onnx", "absent"))
    (tmp_path / "cell" / "old").mkdir(parents=True)
    take(archive, tmp_path / "cell")
    assert sorted(path.name for path in (tmp_path / "cell").iterdir()) == ["model", "onnx"]
    unpack(archive, tmp_path / "some", ("onnx", "reference"))
    assert [path.name for path in (tmp_path / "some").iterdir()] == ["onnx"]


def test_a_worker_sends_its_log_and_its_build_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    task = Task("vit", ("no-such-model", "-t", "onnx"), ("model",), str(tmp_path / "gone"), 60.0, variables(1))
    seed = pack_folder(build(tmp_path / "build"), ("model", "web"))
    ended = work(task, seed, package_digest("edgekit"))
    assert (ended.code, bool(ended.host)) == (2, True)
    unpack(ended.archive, tmp_path / "back")
    assert "edgekit: no model 'no-such-model'" in (tmp_path / "back" / "log.txt").read_text()
    assert [path.name for path in (tmp_path / "back" / "vit").iterdir()] == ["model"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "build"]


def test_a_worker_with_another_edgekit_is_refused() -> None:
    with pytest.raises(UsageError, match="has another edgekit than this machine"):
        work(Task("vit", (), (), "", 1.0, {}), b"", "another")
