"""One model and one target: what edgekit said, and what an independent comparison found."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from edgekit.storage.files import write_text
from edgekit_matrix.report import CellRecord

VERIFIED, REJECTED, REFUSED = "verified", "rejected", "refused"
TRACEBACK, LATE = "traceback", "too long"
FALSE = "false verdict"
ELSEWHERE = "not verified here"
BUG = ("Traceback", "met a bug")
"""What a sentence says only where edgekit did not expect what happened."""
FOLDERS = re.compile(r"\S*/(?:site-packages/|(?=tools/zoo/))|/tmp/\S*/")
"""In front of a file's path in a sentence: they are of one machine."""
COMPARISON = "comparison.json"
"""Of a verified cell, in its folder beside the record."""


@dataclass(frozen=True)
class Comparison:
    """The largest error that the independent comparison found, in units of what it allows, and where.

    `key` is the record's: of another one nothing was compared.
    """

    ratio: float
    where: str
    key: str


@dataclass(frozen=True)
class Cell:
    """One cell of the table.

    Attributes:
        model: Its name in the catalogue.
        target: The target's name.
        status: What edgekit made of it, or that it took too long.
        sentence: The first reason, of one that is not verified.
        ratio: Of a verified one: the largest error that the independent comparison found, in units of what it allows.
    """

    model: str
    target: str
    status: str
    sentence: str = ""
    ratio: float | None = None

    @property
    def word(self) -> str:
        """The status, or that the verdict is false."""
        wrong = self.status == VERIFIED and (self.ratio is None or not self.ratio <= 1)
        return FALSE if wrong and self.target != "web" else self.status


def cell_of(record: CellRecord, folder: Path) -> Cell:
    """A cell of the matrix in a folder."""
    found = compared(record, folder)
    sentence = "" if status_of(record) == VERIFIED else FOLDERS.sub("", record.sentence)
    return Cell(record.model, record.target, status_of(record), sentence, found.ratio if found else None)


def status_of(record: CellRecord) -> str:
    """What edgekit said: a place that this machine has not (Core ML itself) leaves the verdict to those that it has."""
    here = {*record.places.values()} - {ELSEWHERE}
    if record.status in (VERIFIED, ELSEWHERE) and here == {VERIFIED}:
        return VERIFIED
    if record.run.code is None:
        return LATE
    if record.run.code == 1 or record.run.code < 0 or any(word in record.sentence for word in BUG):
        return TRACEBACK
    return {"failed": REFUSED, "skipped": REFUSED}.get(record.status, record.status)


def compared(record: CellRecord, folder: Path) -> Comparison | None:
    """What was found of a cell; None where it was not compared yet."""
    path = folder / record.folder / COMPARISON
    found = Comparison(**json.loads(path.read_text())) if path.is_file() else None
    return found if found is not None and found.key == record.run.key else None


def keep(found: Comparison, record: CellRecord, folder: Path) -> None:
    """Keep what was found of a cell."""
    write_text(folder / record.folder / COMPARISON, json.dumps(asdict(found), indent=1) + "\n")
