"""Comparison of two matrices, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgekit.errors import UsageError
from edgekit.report import formats
from edgekit.report.change import SUBJECTS, AllowedChange, Change
from edgekit.report.difference import ABSENT, Difference
from edgekit.report.study import STATUSES
from edgekit_matrix.report import RECORD, CellRecord, read_matrix


def _are_matrices(before: Path, after: Path) -> bool:
    """Return whether two folders hold matrices.

    Raises:
        UsageError: If only one of them does.
    """
    matrix_folders = [folder for folder in (before, after) if (folder / RECORD).is_file()]
    if len(matrix_folders) == 1:
        raise UsageError(f"'{matrix_folders[0]}' is a matrix and the other is not. Compare two matrices, or two builds")
    return bool(matrix_folders)


def compare_matrices(before: Path, after: Path, allowed: AllowedChange) -> Difference | None:
    """Compare two matrices cell by cell; sizes may change as `allowed` permits. Return None for two builds.

    Raises:
        EdgekitError: If one of them cannot be read.
    """
    if not _are_matrices(before, after):
        return None
    old, new = ({cell.name: cell for cell in read_matrix(folder).cells} for folder in (before, after))
    changes = [change for name, cell in old.items() for change in _cell_changes(cell, new.get(name), allowed)]
    for name in new.keys() - old.keys():
        good = STATUSES[new[name].status].rank == 0
        changes.append(Change(name, "verdict", good, "", ABSENT, new[name].status))
    changes.sort(key=lambda c: (c.better, c.artifact, SUBJECTS.index(c.subject)))
    other = sorted(n for n in old.keys() & new.keys() if old[n].sha256 != new[n].sha256)
    same = len(old.keys() & new.keys()) - len(other)
    notes = [f"{same} cells have the same bytes", *(f"other bytes: {name}" for name in other)]
    return Difference(before, after, tuple(changes), tuple(notes))


def _cell_changes(old: CellRecord, new: CellRecord | None, allowed: AllowedChange) -> Iterator[Change]:
    if new is None:
        yield Change(old.name, "verdict", False, "", old.status, ABSENT)
        return
    if old.status != new.status:
        better = STATUSES[new.status].rank < STATUSES[old.status].rank
        yield Change(new.name, "verdict", better, "", old.status, new.status)
    if old.size and new.size and abs(moved := new.size / old.size - 1) > allowed.size:
        words = formats.size(old.size), formats.size(new.size), f"{allowed.size:+.0%}"
        yield Change(new.name, "size", moved < 0, "", *words)
