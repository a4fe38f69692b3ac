"""One model and one target: what edgekit said, and what an independent comparison found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

VERIFIED, REJECTED, REFUSED = "verified", "rejected", "refused"
TRACEBACK, LATE = "traceback", "too long"
FALSE = "false verdict"


@dataclass(frozen=True)
class Cell:
    """One cell of the table.

    Attributes:
        model: Its name in the catalogue.
        target: The target's name.
        status: What edgekit made of it, or that it took too long.
        sentence: The first reason, of one that is not verified.
        ratio: Of a verified one: the largest error that the independent comparison found, in units of what it allows.
        where: Which output, on which inputs, that was.
        seconds: Of the export.
    """

    model: str
    target: str
    status: str
    sentence: str = ""
    ratio: float | None = None
    where: str = ""
    seconds: float = 0.0

    @property
    def word(self) -> str:
        """The status, or that the verdict is false."""
        wrong = self.status == VERIFIED and (self.ratio is None or not self.ratio <= 1)
        return FALSE if wrong and self.target != "web" else self.status


def write(cell: Cell, folder: Path) -> None:
    """Keep a cell."""
    folder.mkdir(parents=True, exist_ok=True)
    path(folder, cell.model, cell.target).write_text(json.dumps(asdict(cell), indent=1) + "\n")


def read(folder: Path, model: str, target: str) -> Cell | None:
    """A kept cell; None where there is none."""
    kept = path(folder, model, target)
    if not kept.is_file():
        return None
    found: Mapping[str, object] = json.loads(kept.read_text())
    return Cell(**found)  # type: ignore[arg-type]  # what `write` wrote


def path(folder: Path, model: str, target: str) -> Path:
    """Where a cell is kept."""
    return folder / f"{model}.{target}.json"
