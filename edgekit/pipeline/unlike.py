"""Rows that say little on INT8, since they are unlike the user's data: they hold the limits of random inputs.

INT8 saturates beyond what it was calibrated for. So edgekit's photographs do not decide beside the user's own inputs,
and neither does an input in other light, or a fainter one, on which the model itself loses the user's metric: there
both sides answer anything. What moves, shortens or exchanges inputs may change the truth, and always decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.artifact.fact import EVALUATION
from edgekit.evaluate.engine import AGAIN
from edgekit.judge.limits import CHANGED, INT8, LEVELLED, PHOTOGRAPHS, Tolerance
from edgekit.model.spec import Array, EvaluationSet
from edgekit.reference.batches import CROWDS, Batch
from edgekit.reference.store import Reference

# Share of the metric of the row itself below which the model is lost.
KEPT = 0.5
# Beginnings of conditions that may change the truth.
_OF_THE_TRUTH = ("'", "the first ", "a gap ", "out of focus ", *(f"{side * side} pictures " for side in CROWDS))


class UnlikeRows:
    """Finds such rows of a reference's batches.

    Args:
        reference: The reference.
        real: The model's evaluation set.
        tolerance: The limits; only INT8 has such rows.
    """

    def __init__(self, reference: Reference, real: EvaluationSet | None, tolerance: Tolerance) -> None:
        own = next((b for b in reference.batches if b.name == EVALUATION), None)
        self._is_asked = own is not None and tolerance.name == INT8.name
        self._names = {name: row for row, name in enumerate(own.names)} if own is not None else {}
        self._photographs = {n for b in reference.batches if b.name == PHOTOGRAPHS for n in b.names} - set(self._names)
        values = reference.info.evaluation.values
        measured = real is not None and real.metric is not None and real.truth is not None
        self._real = real if measured and len(values) == len(self._names) else None
        self._values = values
        self.lost: set[str] = set()  # names of rows that were found on which the model itself loses the metric

    def of(self, batch: Batch) -> list[int]:
        """Return the rows of a batch."""
        if not self._is_asked or batch.name == EVALUATION:
            return []
        bare = [name.partition(": ")[2] if batch.sizes else name for name in batch.names]
        rows = {row for row, name in enumerate(bare) if name in self._photographs}
        if batch.name.removesuffix(f" {AGAIN}") in (CHANGED, LEVELLED):
            rows |= self._lost(batch)
        return sorted(rows)

    def _lost(self, batch: Batch) -> set[int]:
        sources = {row: source for row, name in enumerate(batch.names) if (source := self._source(name)) is not None}
        whole = all(len(array) == len(batch.names) for array in batch.outputs.values())
        if self._real is None or self._real.metric is None or not sources or not whole:
            return set()
        rows, places = list(sources), list(sources.values())
        outputs = {name: array[rows] for name, array in batch.outputs.items()}
        values = np.asarray(self._real.metric(outputs, np.asarray(self._real.truth)[places]), np.float64)
        own = np.array([self._values[place] for place in places])
        lost = {row for row, is_lost in zip(rows, (own > 0) & (values < KEPT * own), strict=True) if is_lost}
        self.lost |= {batch.names[row] for row in lost}
        return lost

    def _source(self, name: str) -> int | None:
        """Return the evaluation row that a row was made from, if it has the same truth."""
        parts = name.split(", ")
        for end in range(len(parts) - 1, 0, -1):
            if (row := self._names.get(", ".join(parts[:end]))) is not None:
                return None if ", ".join(parts[end:]).startswith(_OF_THE_TRUTH) else row
        return None


def split(batch: Batch, answers: Mapping[str, Array], rows: Sequence[int]) -> list[tuple[Batch, Mapping[str, Array]]]:
    """Return some rows of a batch with the artifact's answers to them, and the others before them, if there are any."""
    count = len(batch.names)
    parts = ([row for row in range(count) if row not in set(rows)], list(rows))
    return [
        (
            batch.select_rows(part, batch.name),
            {name: array[part] if len(array) == count else array for name, array in answers.items()},
        )
        for part in parts
        if part
    ]
