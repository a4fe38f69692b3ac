"""Real rows varied a little, as in use: pictures of a longer exposure, and numbers just beyond those of the data.

Random inputs reach all of a declared range, but no two of their values fit each other. A clamp at the largest value of
the data, or two classes exchanged in bright pictures, shows in real rows that are changed no more than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edgekit.judge.limits import CLASSES
from edgekit.model.spec import Array, Input, ModelSpec

# Rows of a longer exposure, and the factors of their brightness: the largest values are clipped, as by a camera.
EXPOSED, EXPOSURES = 40, (1.25, 1.5, 2.0)
# Values of the longest row of which each is moved alone, and the share of its range by which it leaves that.
MOVED, BEYOND = 32, 0.1
# Rows furthest from the mean of the data, and the factors of this distance.
FURTHEST, STRETCHED = 4, (1.1, 1.25)
Row = Mapping[str, Array]


def exposed_rows(spec: ModelSpec, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return real rows with pictures of a longer exposure, for a classifier of pictures: from all over the set."""
    pictures = [i for i in spec.inputs if i.kind == "image"]
    if not pictures or not any(output.role in CLASSES for output in spec.outputs):
        return {}
    items = list(rows.items())
    by_name: dict[str, Row] = {}
    count = min(EXPOSED, len(items))
    for number in range(count):
        name, row = items[number * len(items) // count]
        factor = EXPOSURES[number % len(EXPOSURES)]
        brighter = {i.name: _within(i, i.low + factor * (row[i.name].astype(np.float64) - i.low)) for i in pictures}
        by_name[f"{name}, exposed {factor:g} times"] = {**row, **brighter}
    return by_name


def rows_beyond(spec: ModelSpec, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return real rows with numbers just beyond those of all real rows, within the declared range.

    In short rows each value moves alone. In rows of any length all values move from the mean of the data.
    """
    names = list(rows)
    floats = [i for i in spec.inputs if i.kind == "tensor" and np.dtype(i.dtype).kind == "f"]
    by_name: dict[str, Row] = {}
    for i in floats if len(names) > 1 else ():
        shapes = {row[i.name].shape for row in rows.values()}
        if len(shapes) > 1:
            continue
        values = np.stack([row[i.name].ravel() for row in rows.values()]).astype(np.float64)
        for number, change, moved in (*_one_beyond(i, values), *_stretched(values)):
            array = _within(i, moved.reshape(next(iter(shapes))))
            if not np.array_equal(array, rows[names[number]][i.name]):
                by_name[f"{names[number]}, '{i.name}' {change}"] = {**rows[names[number]], i.name: array}
    return by_name


def random_variation(spec: ModelSpec, rows: Sequence[Row], draw: np.random.Generator) -> Row:
    """Return a random real row with pictures randomly mirrored, colours permuted, and another row's query."""
    row = dict(rows[int(draw.integers(len(rows)))])
    for i in spec.inputs:
        if i.kind == "image":
            row[i.name] = row[i.name][..., :: 1 - 2 * int(draw.integers(2))]
            row[i.name] = row[i.name][:, draw.permutation(row[i.name].shape[1])]
        elif i.kind == "query":
            row[i.name] = rows[int(draw.integers(len(rows)))][i.name]
    return row


def _one_beyond(i: Input, values: Array) -> Iterator[tuple[int, str, Array]]:
    """Yield the row with the largest and with the smallest of each value, and that value beyond it."""
    for column in range(values.shape[1] if values.shape[1] <= MOVED else 0):
        step = BEYOND * float(np.ptp(values[:, column]))
        for number, by in ((int(values[:, column].argmax()), step), (int(values[:, column].argmin()), -step)):
            moved = values[number].copy()
            moved[column] += by
            if by and i.low <= moved[column] <= i.high:
                yield number, f"beyond the data in value {column} ({moved[column]:.4g})", moved


def _stretched(values: Array) -> Iterator[tuple[int, str, Array]]:
    """Yield the rows furthest from the mean, further from it."""
    mean = values.mean(0)
    distances = np.square((values - mean) / np.maximum(values.std(0), np.finfo(np.float32).tiny)).sum(1)
    for number in np.argsort(-distances, kind="stable")[:FURTHEST]:
        for factor in STRETCHED:
            yield int(number), f"{factor:g} times as far from the mean", mean + factor * (values[number] - mean)


def _within(i: Input, values: Array) -> Array:
    """Return values within an input's declared range, in its dtype."""
    clipped = np.clip(values, i.low, i.high)
    return np.asarray(np.rint(clipped) if np.dtype(i.dtype).kind in "iu" else clipped).astype(i.dtype)
