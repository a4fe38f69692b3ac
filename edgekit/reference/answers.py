"""Asking a runtime batches: its answers with their rows first, and what is kept of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edgekit.errors import RecordError
from edgekit.evaluate.rows import Axes, Run, rows_of
from edgekit.judge.detections import paired
from edgekit.judge.metrics import matched, reordered
from edgekit.judge.rows import PLACED, PLACES, PROJECTIONS, SUFFIX, placed, row_axes, sketch
from edgekit.model.capture_errors import FIXED_LENGTH
from edgekit.model.spec import Array, Output
from edgekit.reference.batches import BETWEEN, REAL, RESIZED, Batch
from edgekit.runtime.protocol import Runtime

KEPT_BYTES = 4 << 20
"""Of one output over one batch: what is larger is kept as sketches (`edgekit.judge.rows`)."""
WHOLE_ROWS = 4
"""Rows that are kept whole beside the sketches: what a role asks for (the largest, overlaps) is judged on these."""


@dataclass
class Asked:
    """What a runtime answered to some batches.

    Attributes:
        outputs: Of the model.
        runs: Of each batch by name, as the runtime gave them.
        axes: The batch axis of each output, where it is known already.
    """

    outputs: Sequence[Output]
    runs: dict[str, list[Run]] = field(default_factory=dict)
    axes: Axes | None = None

    def ask(self, runtime: Runtime, batch: Batch) -> None:
        """Run a batch."""
        self.runs[batch.name] = [(batch.rows_a_run, runtime.run(inputs)) for inputs in batch.rows()]

    @property
    def row_axes(self) -> Axes:
        """The batch axis of each output, declared or seen in all runs."""
        if self.axes is None:
            self.axes = row_axes(self.outputs, [run for runs in self.runs.values() for run in runs])
        return self.axes

    def of(self, batch: Batch) -> dict[str, Array]:
        """The answers to a batch, rows first.

        Raises:
            RecordError: If an output has another shape for each input.
        """
        try:
            return rows_of(self.runs[batch.name], self.row_axes)
        except ValueError as error:
            raise RecordError(
                f"{self._named_by_length(batch)} has another shape for each of the {batch.name} inputs, so that it "
                f"cannot be compared: {FIXED_LENGTH}"
            ) from error

    def _named_by_length(self, batch: Batch) -> str:
        """The output whose shape differs between runs of as many rows."""
        runs = self.runs[batch.name]
        for name in runs[0][1]:
            if len({(rows, answer[name].shape) for rows, answer in runs}) > len({rows for rows, _ in runs}):
                return f"the output '{name}'"
        return "an output"


def answered(
    runtime: Runtime, outputs: Sequence[Output], batches: Iterable[Batch], axes: Axes | None = None
) -> tuple[tuple[Batch, ...], Axes]:
    """Batches with a runtime's answers to them, and the batch axis of each output."""
    asked, batches = Asked(outputs, axes=axes), tuple(batches)
    for batch in batches:
        asked.ask(runtime, batch)
    whole = tuple(replace(batch, outputs=asked.of(batch), answered_by=runtime.device) for batch in batches)
    return whole, asked.row_axes


def answerable(batches: Sequence[Batch]) -> tuple[tuple[Batch, ...], dict[str, list[str]]]:
    """Batches less what the model itself answers with NaN or Inf, and the names of these rows by batch.

    Only of strange and random inputs, which nobody says the model was made for (an attention mask of zeros): of single
    rows these, of a shape the whole batch. What is real stays, and is refused by whoever records it.
    """
    lost: dict[str, list[str]] = {}
    resized = any(batch.name.partition("-")[0] == RESIZED for batch in batches)  # else what lies between is random too
    made_for = (*REAL, RESIZED, *((BETWEEN,) if resized else ()))
    for batch in batches:
        bad = [] if batch.name.partition("-")[0] in made_for else sorted(_not_finite(batch))
        if bad:
            lost[batch.name] = [batch.names[row] for row in (bad if batch.single else range(len(batch.names)))]
    return without(batches, lost), lost


def without(batches: Sequence[Batch], lost: Mapping[str, Collection[str]]) -> tuple[Batch, ...]:
    """Batches less some rows by name; one that would be empty is left out."""
    found = []
    for batch in batches:
        rows = [row for row, name in enumerate(batch.names) if name not in lost.get(batch.name, ())]
        if rows:
            found.append(batch if len(rows) == len(batch.names) else batch.chosen(rows, batch.name))
    return tuple(found)


def _not_finite(batch: Batch) -> set[int]:
    """The rows of a batch with an answer that is not finite; all rows where an output is one thing for them."""
    found: set[int] = set()
    for array in batch.outputs.values():
        bad = ~np.isfinite(array).reshape(len(array), -1).all(1) if array.dtype.kind == "f" else np.zeros(0, bool)
        rows = np.flatnonzero(bad) if len(array) == len(batch.names) else range(len(batch.names) if bad.any() else 0)
        found |= {int(row) for row in rows}
    return found


def kept(outputs: Sequence[Output], answers: Mapping[str, Array], sketched: Collection[str] = ()) -> dict[str, Array]:
    """What is kept of a batch's answers: all, or the first rows, and sketches and some places of every row.

    Args:
        outputs: Of the model.
        answers: Rows first, by output name.
        sketched: Outputs of which sketches are kept whatever their size.
    """
    found: dict[str, Array] = {}
    for name, array in answers.items():
        large = array.nbytes > KEPT_BYTES or name in sketched
        long = array.dtype.kind == "f" and array.ndim > 1 and array.shape[-1] > 1 + PROJECTIONS
        if large and long and len(array) > WHOLE_ROWS:
            found |= {name: array[:WHOLE_ROWS], name + SUFFIX: sketch(array)}
            output = next((o for o in outputs if o.name == name and o.role in PLACED), None)
            found |= {name + PLACES: placed(output, array)} if output is not None else {}
        else:
            found[name] = array
    return found


def aligned(outputs: Sequence[Output], one: Mapping[str, Array], other: Mapping[str, Array]) -> dict[str, Array]:
    """Another answer with the rows of its features in the order of the first one's ranking, and its detections.

    Where it chose other patches or boxes, the rows of these are NaN: there is nothing to set against them.
    """
    found = dict(other)
    for output in outputs:
        if output.role == "features" and output.of in one:
            rows = other[output.name]
            chosen = other[output.of]
            wanted = one[output.of]
            places, there = matched(wanted, chosen)
            found[output.name] = np.where(
                there.reshape(*there.shape, *[1] * (rows.ndim - 2)), reordered(rows, places), np.nan
            )
        if output.role == "detections":
            found[output.name] = paired(one[output.name], other[output.name])
    return found
