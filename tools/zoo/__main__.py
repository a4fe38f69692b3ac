"""The zoo: `python -m tools.zoo --out docs/zoo.md`. An interrupted run goes on where it stopped.

`edgekit_matrix` exports the cells; then each verified one is compared with its module by a script of the zoo's own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from edgekit.storage.files import write_text
from edgekit_matrix.crew import Local
from edgekit_matrix.file import Addition, MatrixFile, cells_of
from edgekit_matrix.file import Cell as MatrixCell
from edgekit_matrix.report import CELL, CellRecord, read_cell
from edgekit_matrix.run import Settings, run
from tools.zoo.catalogue import MODELS, targets_of
from tools.zoo.cell import FALSE, TRACEBACK, VERIFIED, Cell, Comparison, cell_of, compared, keep, status_of
from tools.zoo.table import read, total, written

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "zoo"
SECONDS = 400
"""For one cell."""
VARIABLES = {"EDGEKIT_TIMED_SECONDS": "0.01", "EDGEKIT_THREADS": "1", "OMP_NUM_THREADS": "1"}


def main() -> int:
    """Export what was asked for and is not kept; 1 where anything ended in a traceback or a verdict is false."""
    parser = argparse.ArgumentParser(prog="python -m tools.zoo", description=__doc__)
    parser.add_argument("--out", type=Path, help="the table; cells that are not asked now stay as it has them")
    parser.add_argument("--cache", type=Path, default=FOLDER, help="folder of the matrix, which is kept")
    parser.add_argument("--only", choices=MODELS, action="append", help="one model; may be given more than once")
    parser.add_argument("--target", action="append", help="one target; may be given more than once")
    parser.add_argument("--again", action="store_true", help="whether to drop what is kept of cells not verified")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time that one cell may take")
    parser.add_argument("--jobs", type=int, default=1, help="cells at once")
    asked = parser.parse_args()
    os.environ |= VARIABLES
    models = asked.only or MODELS
    pairs = [(m, t) for m in models for t in targets_of(m) if not asked.target or t in asked.target]
    if asked.again:
        drop(asked.cache, pairs)
    crew, settings = partial(Local, asked.jobs), Settings(seconds=asked.seconds)
    fill(cells(pairs), asked.cache, crew, settings)
    kept = (read_cell(asked.cache / "cells" / model / target) for model in MODELS for target in targets_of(model))
    table = [cell_of(record, asked.cache) for record in kept if record is not None]
    if asked.out is not None and asked.out.is_file():
        table = merged(table, read(asked.out.read_text()))
    if asked.out is not None:
        write_text(asked.out, written(table))
        print(total(table))
    else:
        print(written(table))
    return int(any(one.word in (TRACEBACK, FALSE) for one in table))


def cells(pairs: Sequence[tuple[str, str]]) -> tuple[MatrixCell, ...]:
    """The cells of a matrix of models and targets by name."""
    models = {model: {"model": MODELS[model]} for model, _ in pairs}
    include = tuple(Addition(model=model, target=target) for model, target in pairs)
    return cells_of(MatrixFile.model_validate({"models": models, "include": include}))


def merged(now: list[Cell], before: list[Cell]) -> list[Cell]:
    """Cells in the catalogue's order: those of now, and of those before what was not asked now."""
    found = {(one.model, one.target): one for one in (*before, *now)}
    places = ((model, target) for model in MODELS for target in targets_of(model))
    return [found[place] for place in places if place in found]


def drop(folder: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Forget cells that are not verified."""
    for model, target in pairs:
        home = folder / "cells" / model / target
        if (record := read_cell(home)) is not None and cell_of(record, folder).word != VERIFIED:
            (home / CELL).unlink()


def fill(asked: Sequence[MatrixCell], folder: Path, crew: partial[Local], settings: Settings) -> None:
    """Export and judge what is not kept, and compare what is verified and was not compared."""
    found = run(asked, folder, crew, settings, lambda line: print(line, file=sys.stderr, flush=True))
    waiting = [one for one in found.cells if status_of(one) == VERIFIED and one.target != "web"]
    for model in found.models:
        while missing := [one for one in waiting if one.model == model and compared(one, folder) is None]:
            look(model, missing, folder)


def look(model: str, records: Sequence[CellRecord], folder: Path) -> None:
    """Compare a model's cells in a process of its own; where that dies, the cell that it died at is a false verdict."""
    targets = [record.target for record in records]
    done = subprocess.run([sys.executable, "-m", "tools.zoo.look", model, str(folder), *targets], cwd=ROOT)
    if done.returncode:
        at = next(record for record in records if compared(record, folder) is None)
        keep(Comparison(float("inf"), f"the comparison ended with {done.returncode}", at.run.key), at, folder)


if __name__ == "__main__":
    sys.exit(main())
