"""The run of a matrix: the order of its cells, the loss of workers, and the kept results.

A cell's record, `cell.json`, is written last and by one rename: a cell with a record is finished, and an interrupted
run resumes with the others. Every cell has its own folder, so that cells of one model run at the same time without a
lock. The first cell of a model records its reference; the others wait for that cell, or for the cell of their source,
and begin with copies of its parts. So all cells of a model are judged by the same reference, which is recorded once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.artifact.run_record import MODEL, PROGRAM, REFERENCE
from edgekit.errors import UsageError
from edgekit.storage.files import lock
from edgekit.storage.host_errors import as_sentences
from edgekit.storage.limits import ending
from edgekit_matrix.crew import Executor, JobResult, LostError, Task, variables
from edgekit_matrix.file import Cell
from edgekit_matrix.report import (
    CELL,
    PAGE,
    RECORD,
    CellRecord,
    CellRun,
    Matrix,
    read_cell,
    record_of,
    write_cell,
    write_matrix,
)

ATTEMPTS = 3
"""Number of attempts for a cell whose process was killed or whose worker or node was lost."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Attributes:
        seconds: Time limit of one cell.
        threads: Threads of one cell; 0 for no limit.
        again: True to run cells again that did not end verified.
        fresh: True to run all cells again.
    """

    seconds: float = 3600.0
    threads: int = 0
    again: bool = False
    fresh: bool = False


@as_sentences()
def run(
    cells: Sequence[Cell], root: Path, crew: Callable[[], Executor], settings: Settings, tell: Tell = lambda _: None
) -> Matrix:
    """Fill a matrix and write its report.

    Args:
        cells: Its cells; a source before its derived targets.
        root: Its folder.
        crew: Makes the executor; called if there are cells to run.
        settings: The settings.
        tell: Called with a line for each cell that ended.

    Returns:
        All cells of the matrix.

    Raises:
        UsageError: If the folder holds something else.
    """
    own = {RECORD, PAGE, "cells"}
    if root.exists() and (other := next((p for p in root.iterdir() if p.name not in own and p.name[0] != "."), None)):
        raise UsageError(f"'{other}' does not belong to a matrix. Choose another folder with -o")
    with lock(root, lambda: tell(f"waiting for another run in '{root}'")):
        state = _State(root, cells, settings, tell)
        # Without workers, nothing is written.
        workers = crew() if state.waiting else None
        root.mkdir(parents=True, exist_ok=True)
        try:
            if workers is not None:
                state.fill(workers)
        finally:
            matrix = write_matrix(root, [state.records[cell.name] for cell in cells if cell.name in state.records])
    return matrix


@dataclass
class _State:
    """The state of each cell during a run."""

    root: Path
    cells: Sequence[Cell]
    settings: Settings
    tell: Tell
    records: dict[str, CellRecord] = field(default_factory=dict)
    waiting: dict[str, Cell] = field(default_factory=dict)
    running: dict[Future[JobResult], tuple[Cell, int]] = field(default_factory=dict)
    follows: Mapping[str, Cell | None] = field(init=False)

    def __post_init__(self) -> None:
        self.follows = {cell.name: cell.follows(self.cells[:number]) for number, cell in enumerate(self.cells)}
        for cell in self.cells:
            folder = self.root / cell.folder
            earlier = None if self.settings.fresh else read_cell(folder)
            if (
                earlier is not None
                and earlier.run.key == cell.key
                and (earlier.status == "verified" or not self.settings.again)
            ):
                self.records[cell.name] = earlier
            else:
                self.waiting[cell.name] = cell

    def fill(self, crew: Executor) -> None:
        """Run the waiting cells."""
        for cell in self.waiting.values():
            (self.root / cell.folder / CELL).unlink(missing_ok=True)
            if self.settings.fresh:
                shutil.rmtree(self.root / cell.folder, ignore_errors=True)
        try:
            while self.waiting or self.running:
                follows = {name: self.follows[name] for name in self.waiting}
                for name in [n for n, first in follows.items() if first is None or first.name in self.records]:
                    self._start(crew, self.waiting.pop(name), 1)
                for ended in wait(self.running, return_when=FIRST_COMPLETED).done:
                    self._settle(crew, ended, *self.running.pop(ended))
        finally:
            crew.close()

    def _start(self, crew: Executor, cell: Cell, attempt: int) -> None:
        first = self.follows[cell.name]
        earlier = self.root / first.folder / cell.model if first is not None else None
        task = Task(
            cell.model,
            cell.arguments,
            (MODEL, PROGRAM, REFERENCE, *cell.sources),
            str(Path.cwd()),
            self.settings.seconds,
            variables(self.settings.threads),
        )
        earlier_build = earlier if earlier is not None and earlier.is_dir() else None
        self.running[crew.start(task, self.root / cell.folder, earlier_build)] = cell, attempt

    def _settle(self, crew: Executor, started: Future[JobResult], cell: Cell, attempt: int) -> None:
        folder = self.root / cell.folder
        try:
            ended = crew.result(started, folder)
            lost = f"its process ended with {ending(ended.code)}" if ended.code is not None and ended.code < 0 else ""
        except LostError as error:
            ended, lost = JobResult(None, 0.0, ""), f"its worker was lost: {error}"
        if lost and attempt < ATTEMPTS:
            self.tell(f"{cell.name}: {lost}; trying again")
            self._start(crew, cell, attempt + 1)
            return
        why = f"{lost}, {ATTEMPTS} times" if lost else ""
        if ended.code is None and not lost:
            why = f"it took more than {self.settings.seconds:g} s (--seconds)"
        record = record_of(cell.model, cell.target, cell.column, self.root, cell.folder, why)
        last = CellRun(key=cell.key, code=ended.code, seconds=ended.seconds, attempts=attempt, host=ended.host)
        record = record.model_copy(update={"run": last})
        write_cell(folder, record)
        self.records[cell.name] = record
        status_text = (
            f"{record.status_text}{f': {record.sentence}' if record.status != 'verified' and record.sentence else ''}"
        )
        self.tell(f"[{len(self.records)}/{len(self.cells)}] {cell.name}: {status_text} ({record.run.seconds:g} s)")
