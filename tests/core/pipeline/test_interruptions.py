"""Killed, or met by an error of the operating system, at any file-system call: nothing is lost and nothing is half.

Some forty points; EDGEKIT_SLOW=1 asks all of them, of an export two hundred.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit import report
from edgekit.model.folder import load_model, save_model
from edgekit.pipeline.outcome import Build
from edgekit.reference.store import read_reference, write_reference
from edgekit.storage.files import sweep
from edgekit_apps import assets as apps
from tests import interrupted
from tests.core.pipeline.small_build import Kept, assert_whole, built, left_behind
from tests.plugins.apps import toy

SLOW = bool(os.environ.get("EDGEKIT_SLOW"))
FAULTS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    sync_to_disk = os.fsync
    os.fsync = lambda fd: None  # a kill cuts no power: nothing needs the disk itself
    yield built(tmp_path_factory.mktemp("interrupted"))
    os.fsync = sync_to_disk


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report takes as long as all the rest, and has a test of its own; the nightly mode writes it."""
    if not SLOW:
        monkeypatch.setattr(report, "write_report", lambda root: None)


def points(root: Path, work: Callable[[], object], fast: int, slow: int) -> list[int]:
    end = interrupted.run(root, work)
    assert end.how == interrupted.DONE, end.text
    return interrupted.spread(end.calls, slow if SLOW else fast)


def verified(build: Build) -> bool:
    return [outcome.status for outcome in build.outcomes] == ["verified", "verified"]


@pytest.mark.nightly
@pytest.mark.usefixtures("no_report")
def test_an_export_that_is_killed_leaves_whole_artifacts_and_the_next_run_finishes(kept: Kept) -> None:
    asked = points(kept.root, lambda: kept.export(fresh=True), 12, 200)
    for stop in asked:
        end = interrupted.run(kept.root, lambda: kept.export(fresh=True), stop)
        assert end.how in (interrupted.KILLED, interrupted.DONE), end.text
        assert_whole(kept.root)
        again = kept.export()
        assert verified(again), stop
        assert left_behind(kept.root) == []


@pytest.mark.nightly(but=("ENOSPC",))
@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("fault", FAULTS, ids=errno.errorcode.get)
def test_an_export_that_meets_an_error_says_so_in_a_sentence_and_the_next_run_finishes(kept: Kept, fault: int) -> None:
    asked = points(kept.root, lambda: kept.export(fresh=True), 3, 25)
    for stop in asked[1:]:
        end = interrupted.run(kept.root, lambda: kept.export(fresh=True), stop, fault, lasting=fault == errno.ENOSPC)
        assert end.how in (interrupted.TOLD, interrupted.DONE), end.text
        assert "\n" not in end.text
        assert_whole(kept.root)
        assert verified(kept.export()), stop
        assert left_behind(kept.root) == []


@pytest.mark.nightly
def test_a_report_that_is_killed_is_never_of_two_builds(kept: Kept) -> None:
    names = [f"report.{kind}" for kind in ("html", "json", "md", "csv")]

    def texts() -> dict[str, str]:
        return {name: (kept.root / name).read_text() for name in names if (kept.root / name).exists()}

    def write() -> None:
        report.write_report(kept.root)

    write()
    hidden = kept.root / "onnx-fp16"
    away = kept.root.parent / "onnx-fp16"
    both = texts()
    hidden.rename(away)
    asked = points(kept.root, write, 6, 1000)
    write()
    one = texts()
    assert one != both
    for stop in asked:
        away.rename(hidden)
        write()
        hidden.rename(away)
        interrupted.run(kept.root, write, stop)
        assert texts().items() <= both.items() or texts().items() <= one.items()
        write()
        assert texts() == one
        sweep(kept.root)
        assert left_behind(kept.root) == []
    away.rename(hidden)


@pytest.mark.nightly
def test_assets_that_are_killed_are_completed_by_the_next_run(kept: Kept, tmp_path: Path) -> None:
    build = toy.build(tmp_path / "toy")
    app = toy.android_app(tmp_path / "app")
    own = {path: path.read_bytes() for path in app.rglob("*") if path.is_file()}

    def write() -> None:
        apps.write_assets("android", build, app, trust_build=True)

    asked = points(app, write, 5, 1000)
    for stop in asked:
        shutil.rmtree(app)
        toy.android_app(app)
        interrupted.run(app, write, stop)
        write()
        assert apps.check_assets("android", build, app, trust_build=True) == ()
        assert {path: path.read_bytes() for path in own} == own
        assert left_behind(app) == []


@pytest.mark.nightly
@pytest.mark.parametrize("what", ["model", "reference"])
def test_a_model_or_a_reference_that_is_killed_is_the_old_one_the_new_one_or_none(
    kept: Kept, tmp_path: Path, what: str
) -> None:
    folder = tmp_path / what
    recorded = read_reference(kept.root / "reference")

    def write(author: str) -> None:
        if what == "model":
            save_model(replace(kept.spec, author=author), folder)
        else:
            write_reference(folder, recorded.batches, {**recorded.info.raw, "device": author}, with_inputs=True)

    def read() -> str:
        return load_model(folder).author if what == "model" else read_reference(folder).info.device

    write("old")
    asked = points(tmp_path, lambda: write("new"), 8, 1000)
    for stop in asked:
        write("old")
        interrupted.run(tmp_path, lambda: write("new"), stop)
        sweep(tmp_path)
        assert read() in ("old", "new")
        assert left_behind(tmp_path) == []
