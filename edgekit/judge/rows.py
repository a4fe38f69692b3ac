"""Batch axis of each output, and outputs with their rows first.

All recorded and compared outputs have their rows first: row i of the batch is `array[i]`. An output without a batch
axis is one thing for all rows of a run, and becomes a single row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from edgekit.evaluate.rows import Run
from edgekit.judge.deviation import as_rows
from edgekit.model.spec import Array, Output

BATCH = "batch"


def row_axes(outputs: Iterable[Output], runs: Sequence[Run]) -> dict[str, int | None]:
    """Return the batch axis of each output: the declared one, or the only axis that always had the batch's size.

    If several axes fit (a table [batch, batch]), or none, the output is one thing. If only single rows were run, a
    first axis of size 1 is the batch.
    """
    return {
        o.name: (o.axes.index(BATCH) if BATCH in o.axes else None) if o.axes else _row_seen(o.name, runs)
        for o in outputs
    }


def row_names(names: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the names of an output's rows: the batch's, or a single one if the output is one thing."""
    return tuple(names) if count == len(names) else ("all rows",)


def shape_of(
    name: str, shapes: Sequence[tuple[Mapping[str, int], tuple[int, ...]]], axis: int | None
) -> tuple[int | str, ...]:
    """Return the shape that a runtime gives an output: numbers, names of axes, and NAME_1 for another varying size.

    Args:
        name: The output's name.
        shapes: Its recorded shapes, rows first, each with the sizes of the axes. The first is that at default sizes.
        axis: Its batch axis; None if it is one thing.
    """
    recorded = [(sizes, shape[1:]) for sizes, shape in shapes if len(shape) == len(shapes[0][1])]
    shape: list[int | str] = list(recorded[0][1])
    places = range(len(shape)) if axis is None else [at + (at >= axis) for at in range(len(shape))]
    for at, place in enumerate(places):
        if len({seen[at] for _, seen in recorded}) > 1:
            alike = (a for a in recorded[0][0] if all(sizes[a] == seen[at] for sizes, seen in recorded))
            shape[at] = next(alike, f"{name}_{place}")
    return tuple(shape if axis is None else [*shape[:axis], BATCH, *shape[axis:]])


def _row_seen(name: str, runs: Sequence[Run]) -> int | None:
    seen = [(rows, answers[name].shape) for rows, answers in runs if name in answers]
    fewest = min((len(shape) for _, shape in seen), default=0)
    fits = [axis for axis in range(fewest) if all(shape[axis] == rows for rows, shape in seen)]
    if any(rows > 1 for rows, _ in seen):
        return fits[0] if len(fits) == 1 else None
    return 0 if 0 in fits else None


# With the norm, 17 numbers replace a row of any length.
PROJECTIONS = 16
# Suffix of an array's name: it holds sketches of that output's rows.
SUFFIX = ".sketch"


# Suffix of an array's name: it holds some places of that output's rows.
PLACES = ".places"
# Roles in which each place has its own meaning.
PLACED = {"boxes", "logits", "probabilities", "mask", "image"}
# Least number of places stored of each row, and most bytes if there are more.
LEAST_PLACES, PLACE_BYTES = 256, 64 << 10


def sample_places(output: Output, rows: Array) -> Array:
    """Return seeded places of an output's rows [n, ...], the same in every row: [n, places, channels]."""
    values = as_rows(output, rows)
    count, channels = values.shape[1:]
    some = max(LEAST_PLACES, PLACE_BYTES // (4 * channels))
    places = np.random.Generator(np.random.PCG64(count)).permutation(count)[:some]
    return values[:, np.sort(places)].astype(rows.dtype)


def sketch(rows: Array) -> Array:
    """Return sketches of rows along the last axis: [..., D] of any dtype to float32 [..., 1 + PROJECTIONS].

    NaN and Inf are kept: the norm of such a row is not finite.
    """
    values = rows.astype(np.float64)
    length = values.shape[-1]
    signs = 2.0 * np.random.Generator(np.random.PCG64(length)).integers(0, 2, (length, PROJECTIONS)) - 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        norms = np.sqrt((values * values).mean(-1, keepdims=True))
        return np.concatenate([norms, values @ (signs / np.sqrt(length))], axis=-1).astype(np.float32)
