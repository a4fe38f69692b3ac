"""The zoo: `python -m tools.zoo --out docs/zoo.md`. An interrupted run goes on where it stopped."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from edgekit.storage.files import write_text
from tools.zoo import cell
from tools.zoo.catalogue import MODELS, targets_of
from tools.zoo.cell import FALSE, LATE, TRACEBACK, Cell
from tools.zoo.table import read, total, written

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "zoo"
SECONDS = 400
"""For one cell."""
STEP = 0.2


def main() -> int:
    """Export what was asked for and is not kept; 1 where anything ended in a traceback or a verdict is false."""
    parser = argparse.ArgumentParser(prog="python -m tools.zoo", description=__doc__)
    parser.add_argument("--out", type=Path, help="the table; cells that are not asked now stay as it has them")
    parser.add_argument("--cache", type=Path, default=FOLDER, help="folder of builds and of cells, which are kept")
    parser.add_argument("--only", choices=MODELS, action="append", help="one model; may be given more than once")
    parser.add_argument("--target", action="append", help="one target; may be given more than once")
    parser.add_argument("--again", action="store_true", help="whether to drop what is kept of cells not verified")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time that one cell may take")
    asked = parser.parse_args()
    for model in asked.only or MODELS:
        wanted = [target for target in targets_of(model) if not asked.target or target in asked.target]
        if asked.again:
            drop(asked.cache, model, wanted)
        fill(asked.cache, model, wanted, asked.seconds)
    kept = (cell.read(asked.cache / "cells", model, target) for model in MODELS for target in targets_of(model))
    cells = [one for one in kept if one is not None]
    if asked.out is not None and asked.out.is_file():
        cells = merged(cells, read(asked.out.read_text()))
    if asked.out is not None:
        write_text(asked.out, written(cells))
        print(total(cells))
    else:
        print(written(cells))
    return int(any(one.word in (TRACEBACK, FALSE) for one in cells))


def merged(now: list[Cell], before: list[Cell]) -> list[Cell]:
    """Cells in the catalogue's order: those of now, and of those before what was not asked now."""
    found = {(one.model, one.target): one for one in (*before, *now)}
    places = ((model, target) for model in MODELS for target in targets_of(model))
    return [found[place] for place in places if place in found]


def drop(folder: Path, model: str, targets: list[str]) -> None:
    """Forget a model's cells that are not verified."""
    for target in targets:
        kept = cell.read(folder / "cells", model, target)
        if kept is not None and kept.word != cell.VERIFIED:
            cell.path(folder / "cells", model, target).unlink()


def fill(folder: Path, model: str, targets: list[str], seconds: float) -> None:
    """Fill a model's cells in one process; a cell that takes too long ends it, and another goes on."""
    while missing := [target for target in targets if cell.read(folder / "cells", model, target) is None]:
        command = [sys.executable, "-m", "tools.zoo.keeper", model, str(folder), *missing]
        settings = {**os.environ, "EDGEKIT_THREADS": "1", "EDGEKIT_TIMED_SECONDS": "0.01", "OMP_NUM_THREADS": "1"}
        log = folder / "logs" / f"{model}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as stream:
            child = subprocess.Popen(
                command, cwd=ROOT, env=settings, stdout=stream, stderr=stream, start_new_session=True
            )
            try:
                watched(child, folder, model, missing, seconds)
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def watched(child: subprocess.Popen[bytes], folder: Path, model: str, targets: list[str], seconds: float) -> None:
    """Wait for one cell after the other; write the cell of the one that does not come."""
    for target in targets:
        began = time.monotonic()
        while (found := cell.read(folder / "cells", model, target)) is None:
            time.sleep(STEP)
            spent = time.monotonic() - began
            ended = child.poll() is not None
            if cell.path(folder / "cells", model, target).is_file():
                continue
            if ended:
                said = f"its process ended with {child.returncode}"
                cell.write(Cell(model, target, TRACEBACK, said, seconds=round(spent, 1)), folder / "cells")
                return
            if spent > seconds:
                said = f"took more than {seconds:g} s"
                cell.write(Cell(model, target, LATE, said, seconds=round(spent, 1)), folder / "cells")
                return
        print(f"{found.seconds:6.1f} s {model} {target}: {found.word} {found.sentence[:300]}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
