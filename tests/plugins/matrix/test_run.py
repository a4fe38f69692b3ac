"""Cells are run, killed, interrupted and run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from edgekit_matrix import run as running
from edgekit_matrix.crew import JobResult, LostError, Task
from edgekit_matrix.file import Cell, ModelEntry
from edgekit_matrix.report import Matrix, read_matrix
from edgekit_matrix.run import ATTEMPTS, Settings
from tests.command import exit_code
from tests.plugins.matrix.models import MARK
from tests.processes import heeding

ROOT = Path(__file__).parents[3]
SECONDS = 120.0


class Script:
    """A crew that does nothing: each cell ends as its script says, once a try, and without one with code 2."""

    def __init__(self, script: dict[str, list[JobResult | str]] | None = None) -> None:
        self.script, self.started, self.closed = script or {}, list[str](), False

    def start(self, task: Task, folder: Path, earlier: Path | None) -> Future[JobResult]:
        self.started.append(folder.name)
        future: Future[JobResult] = Future()
        ends = self.script.get(folder.name, [])
        end = ends.pop(0) if ends else JobResult(2, 1.0, "here")
        future.set_exception(LostError(end)) if isinstance(end, str) else future.set_result(end)
        return future

    def result(self, started: Future[JobResult], folder: Path) -> JobResult:
        return started.result()

    def close(self) -> None:
        self.closed = True


def cell(target: str, *sources: str) -> Cell:
    return Cell("small", ModelEntry(model="edgekit.testing:small_model"), target, {}, sources=sources)


CELLS = (cell("onnx"), cell("onnx-fp16", "onnx"), cell("torchscript"))


def ran(root: Path, crew: Script, **settings: bool) -> Matrix:
    return running.run(CELLS, root, lambda: crew, Settings(**settings))


def test_a_cell_whose_worker_is_lost_is_asked_again_so_often(tmp_path: Path) -> None:
    killed = JobResult(-9, 1.0, "here")
    crew = Script({"onnx": ["node 1 died", killed], "torchscript": [killed] * 9})
    found = {one.column: one for one in ran(tmp_path, crew).cells}
    assert (crew.started.count("onnx"), crew.started.count("torchscript"), crew.closed) == (3, ATTEMPTS, True)
    assert (found["onnx"].run.attempts, found["onnx"].run.code) == (3, 2)
    assert found["torchscript"].sentence == f"its process ended with SIGKILL, {ATTEMPTS} times"
    assert crew.started.index("onnx-fp16") > 2  # it waits for its source


def test_a_finished_cell_is_kept_unless_it_is_asked_again(tmp_path: Path) -> None:
    first = ran(tmp_path, Script())
    assert [one.status for one in first.cells] == ["failed"] * 3
    again, kept = Script(), Script()
    assert ran(tmp_path, kept) == first
    assert kept.started == []
    ran(tmp_path, again, again=True)
    assert sorted(again.started) == ["onnx", "onnx-fp16", "torchscript"]
    assert read_matrix(tmp_path) == first


def test_fresh_asks_all_cells_from_nothing(tmp_path: Path) -> None:
    ran(tmp_path, Script())
    left = tmp_path / CELLS[0].folder / "small"
    left.mkdir()
    crew = Script()
    ran(tmp_path, crew, fresh=True)
    assert len(crew.started) == 3
    assert not left.exists()


def test_a_cell_that_is_made_of_something_else_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(tmp_path, Script())
    monkeypatch.setattr(Cell, "key", property(lambda cell: f"other code for {cell.name}"))
    crew = Script()
    ran(tmp_path, crew)
    assert len(crew.started) == 3


def test_an_interrupted_run_keeps_what_is_finished(tmp_path: Path) -> None:
    class Interrupted(Script):
        def start(self, task: Task, folder: Path, earlier: Path | None) -> Future[JobResult]:
            if folder.name == "onnx-fp16":
                raise KeyboardInterrupt
            return super().start(task, folder, earlier)

    crew = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path, crew)
    assert crew.closed
    assert [one.column for one in read_matrix(tmp_path).cells] == ["onnx"]
    rest = Script()
    ran(tmp_path, rest)
    assert sorted(rest.started) == ["onnx-fp16", "torchscript"]


TOY = """targets = ["onnx", "torchscript"]
[models]
linear = "tests.plugins.matrix.models:linear"
dying = "tests.plugins.matrix.models:killed_once"
[[exclude]]
model = "dying"
target = "torchscript"
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setenv(MARK, str(tmp_path / "killed"))
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(tmp_path)
    Path("toy.toml").write_text(TOY)
    return ("matrix", "toy.toml", "--jobs", "2")


@pytest.mark.nightly
def test_a_run_that_is_killed_and_interrupted_goes_on(
    toy: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first run is killed when a cell is finished, the second interrupted at once; one cell's process is killed."""
    root = tmp_path / "build" / "toy"
    for how, finished in ((signal.SIGKILL, 1), (signal.SIGINT, 1)):
        run = subprocess.Popen(heeding(*toy), env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
        _until(lambda n=finished: len(_records(root)) >= n and _processes(root))  # type: ignore[misc]
        before = {path: path.stat().st_mtime_ns for path in _records(root)}
        run.send_signal(how)
        assert run.wait() in (-9, 130)
        _until(lambda: not _processes(root))
    assert exit_code(*toy, "--json") == 0
    found = Matrix.model_validate_json(capfd.readouterr().out)
    assert {one.name: one.status for one in found.cells} == dict.fromkeys(
        ("linear onnx", "linear torchscript", "dying onnx"), "verified"
    )
    assert (tmp_path / "killed").exists()
    assert {path: path.stat().st_mtime_ns for path in before} == before
    recorded = [root / one.folder / one.model / "reference" / "reference.json" for one in found.cells[:2]]
    assert recorded[0].read_bytes() == recorded[1].read_bytes()  # copied, not recorded again
    assert (root / found.cells[0].report).is_file()
    assert exit_code("diff", root, root) == 0
    assert "3 cells have the same bytes" in capfd.readouterr().out


def test_a_cell_may_take_so_long(toy: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("toy.toml").write_text(TOY.replace('"onnx", ', "").replace("killed_once", "killed"))
    assert exit_code(*toy, "--seconds", "1") == 2
    assert "it took more than 1 s (--seconds)" in capfd.readouterr().out
    (record,) = (json.loads(path.read_text()) for path in _records(tmp_path / "build" / "toy"))
    assert record["run"]["code"] is None
    assert not _processes(tmp_path)


def _records(root: Path) -> list[Path]:
    return sorted(root.glob("cells/*/*/cell.json"))


def _until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def _processes(root: Path) -> list[int]:
    """The exports that work below a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        ours = b"export" in words or b"edgekit_matrix.crew" in words
        if ours and str(root).encode() in words:
            found.append(int(path.parent.name))
    return found
