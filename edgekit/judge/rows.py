"""Which axis of an output holds the rows of a batch, and the output with its rows first.

Everything that is recorded and compared has its rows first: row i of the batch is `array[i]`. An output that has no
batch axis is one thing for all rows of a run, and becomes a single row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgekit.evaluate.rows import Run
from edgekit.model.spec import Array, Output

BATCH = "batch"


def row_axes(outputs: Iterable[Output], runs: Sequence[Run]) -> dict[str, int | None]:
    """The batch axis of each output: the declared one, or else the one axis whose size was always that of the batch.

    Where several axes fit (a table [batch, batch]), or none, the output is one thing; where only single rows were
    asked, a first axis of size 1 is the batch.
    """
    return {
        o.name: (o.axes.index(BATCH) if BATCH in o.axes else None) if o.axes else _seen(o.name, runs) for o in outputs
    }


def row_names(names: Sequence[str], count: int) -> tuple[str, ...]:
    """The names of an output's rows: those of the batch, or one for all where it is one thing."""
    return tuple(names) if count == len(names) else ("all rows",)


def shape_of(rows: Array, axis: int | None) -> tuple[int | str, ...]:
    """The shape that a runtime gives an output, with the name of the batch axis in it."""
    shape: list[int | str] = list(rows.shape[1:])
    return tuple(shape if axis is None else [*shape[:axis], BATCH, *shape[axis:]])


def _seen(name: str, runs: Sequence[Run]) -> int | None:
    seen = [(rows, answers[name].shape) for rows, answers in runs if name in answers]
    fewest = min((len(shape) for _, shape in seen), default=0)
    fits = [axis for axis in range(fewest) if all(shape[axis] == rows for rows, shape in seen)]
    if any(rows > 1 for rows, _ in seen):
        return fits[0] if len(fits) == 1 else None
    return 0 if 0 in fits else None
