"""Real rows varied a little, as in use: pictures of another camera, and numbers just beyond those of the data.

Random inputs reach all of a declared range, but no two of their values fit each other. A clamp at the largest value of
the data, or two classes exchanged in bright pictures, shows in real rows that are changed no more than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edgekit.judge.limits import CLASSES, LONGER_EXPOSURE
from edgekit.model.spec import Array, Input, ModelSpec

# Rows of a longer exposure, and the factors of their brightness: the largest values are clipped, as by a camera.
EXPOSED, EXPOSURES = 27, (1.25, 1.5, 2.0)
# Rows out of focus, and the share of a picture by which they are moved to a corner.
UNFOCUSED, MOVED_BY = 32, 0.25
# Roles of outputs that decide something in a picture.
DECISIONS = (*CLASSES, "labels", "boxes", "detections", "mask")
# Values of the longest row of which each is moved alone, and the share of its range by which it leaves that.
MOVED, BEYOND = 32, 0.1
# Rows furthest from the mean of the data, and the factors of this distance.
FURTHEST, STRETCHED = 4, (1.1, 1.25)
# Values of the shortest signal (zeros in a shorter row of numbers, as of a table, are no silence), and how many times
# as fast and as slow some are played.
SHORTEST_SIGNAL, PACED, PACES = 64, 8, {"faster": (1.2, 1.5, 1.8), "slower": (0.83, 0.67, 0.55)}
# Share of its spread that the mean of a wave is at most, and the least share of itself that a wave keeps beside a
# constant: fp16 has few steps for less of a sound near 1, which no microphone gives.
AROUND_ZERO, LEAST_WAVE = 0.1, 0.5
# Most channels of a signal, those of which each changes alone, the rows of each change, and the share of the range of a
# channel's means and values by which it does.
MOST_CHANNELS, CHANNELS, OF_A_CHANNEL, SHARE = 16, 8, 2, 1 / 3
# Rows among which those are found: of more, copies of all would fill the memory.
MOST_DRIFTING = 512
# Numbers of the longest row of a table, and the quotient of its columns' ranges from which they are of several units.
TABLE, UNITS = 63, 30.0
Row = Mapping[str, Array]


class Columns:
    """Ranges of a table's columns of several units. The input has one range for all of them.

    Over that range, random rows would be ages of 9,000 years beside amounts of 9,000 euros.

    Args:
        spec: The model.
        rows: Real rows.
    """

    def __init__(self, spec: ModelSpec, rows: Mapping[str, Row]) -> None:
        self._ranges: dict[str, tuple[Input, Array, Array]] = {}
        for i in spec.inputs if len(rows) > 1 else ():
            values = [row[i.name].astype(np.float64) for row in rows.values()]
            if i.kind == "tensor" and np.dtype(i.dtype).kind == "f" and all(v.shape == (1, v.size) for v in values):
                low, span = np.min(values, 0), np.ptp(values, 0)
                vary = span[span > 0]
                if len(vary) > 1 and values[0].size <= TABLE and vary.max() > UNITS * vary.min():
                    self._ranges[i.name] = (i, low, np.where(span > 0, span, np.maximum(np.abs(low), 1.0)))

    def spread(self, rows: Mapping[str, Row]) -> dict[str, Row]:
        """Return rows with each column's range as the input's."""
        return {
            name: {**row, **{n: i.low + (i.high - i.low) * (row[n] - low) / span for n, (i, low, span) in self}}
            for name, row in rows.items()
        }

    def narrow(self, row: Row) -> dict[str, Array]:
        """Return inputs of any rows with the input's range as each column's."""
        shares = {n: (row[n].astype(np.float64) - i.low) / (i.high - i.low) for n, (i, _, _) in self}
        return {**row, **{n: (low + span * shares[n]).astype(i.dtype) for n, (i, low, span) in self}}

    def __iter__(self) -> Iterator[tuple[str, tuple[Input, Array, Array]]]:
        return iter(self._ranges.items())

    def __bool__(self) -> bool:
        return bool(self._ranges)


def distinct(rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return rows without those that are the same as an earlier one: two texts cut to their first token, say."""
    first: dict[tuple[bytes, ...], str] = {}
    for name, row in rows.items():
        first.setdefault(tuple(array.tobytes() for array in row.values()), name)
    return {name: rows[name] for name in first.values()}


def camera_rows(spec: ModelSpec, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return real rows from all over the set, as another camera sees them.

    For a classifier of pictures some have a longer exposure. For every decision on pictures some are out of focus,
    with their objects moved to a corner; every second one of a corner is mirrored.
    """
    pictures = [i for i in spec.inputs if i.kind == "image"]
    roles = {output.role for output in spec.outputs} if pictures else set()
    # Rows of another decision cost more, and are compared place by place.
    exposed, moved = (EXPOSED, UNFOCUSED) if roles & {*CLASSES} else (0, UNFOCUSED // 2 if roles & {*DECISIONS} else 0)
    items = list(rows.items())
    by_name: dict[str, Row] = {}
    for number, (name, row) in enumerate(_spread(items, exposed)):
        factor = EXPOSURES[number % len(EXPOSURES)]
        brighter = {i.name: _within(i, i.low + factor * (row[i.name].astype(np.float64) - i.low)) for i in pictures}
        by_name[f"{name}, {LONGER_EXPOSURE}{factor:g} times"] = {**row, **brighter}
    for number, (name, row) in enumerate(_spread(items, moved)):
        down, across = divmod(number % 4, 2)
        corner = f"{('upper', 'lower')[down]} {('left', 'right')[across]}"
        mirrored = 1 - 2 * (number // 4 % 2)
        blurred = {i.name: _unfocused(row[i.name][..., ::mirrored]) for i in pictures}
        images = {i.name: _within(i, _moved(blurred[i.name], down, across)) for i in pictures}
        by_name[f"{name}, out of focus in the {corner}"] = {**row, **images}
    return by_name


def are_waves(spec: ModelSpec, rows: Sequence[tuple[str, Row]]) -> bool:
    """Return whether all floating inputs are signals around zero, as of a microphone."""
    floats = [i.name for i in spec.inputs if np.dtype(i.dtype).kind == "f" and i.kind != "image"]
    arrays = [row[name] for _, row in rows for name in floats]
    return bool(arrays) and all(
        a.size >= SHORTEST_SIGNAL and abs(float(a.mean())) <= AROUND_ZERO * float(a.std()) for a in arrays
    )


def paced_rows(spec: ModelSpec, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return rows with faster and slower signals, each of which has one axis of time."""
    by_name: dict[str, Row] = {}
    for number, (name, row) in enumerate(list(rows.items())[:PACED]):
        for change, paces in PACES.items():
            paced = {i.name: _played(row[i.name], paces[number % len(paces)]) for i in of_zero(spec, row, signals=True)}
            by_name |= {f"{name}, {change}": {**row, **paced}} if paced else {}
    return by_name


def drifting_rows(spec: ModelSpec, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return rows with one channel of a signal beyond the data: its level, or its change in the second half.

    The rows that are nearest to that are moved further, within the declared range: a cold day becomes colder, a fall
    steeper.
    """
    by_name: dict[str, Row] = {}
    items = list(rows.items())[:MOST_DRIFTING]
    for i in of_zero(spec, items[0][1], signals=True) if items else ():
        shape = items[0][1][i.name].shape
        axis = int(np.argmax(shape))
        size, count = shape[axis], items[0][1][i.name].size // shape[axis]
        if count > MOST_CHANNELS or any(row[i.name].shape != shape for _, row in items):
            continue
        # [rows, channels, time]
        values = np.stack([np.moveaxis(row[i.name], axis, -1).reshape(count, size) for _, row in items])
        ramp = np.clip((np.arange(size) - size // 2 + 1) / (size // 2), 0, 1)
        for channel in range(min(count, CHANNELS)):
            signal = values[:, channel].astype(np.float64)
            level, drift = signal.mean(1), signal[:, size // 2 :].mean(1) - signal[:, : size // 2].mean(1)
            for change, by, step in (
                ("lower", -level, -SHARE * np.ptp(level)),
                ("higher", level, SHARE * np.ptp(level)),
                ("falling", -drift, -SHARE * np.ptp(signal) * ramp),
                ("rising", drift, SHARE * np.ptp(signal) * ramp),
            ):
                leaves = ((signal + step < i.low) | (signal + step > i.high)).any(1)
                for place in np.lexsort((-by, leaves))[:OF_A_CHANNEL]:
                    name, row = items[place]
                    moved = values[place].astype(np.float64)
                    moved[channel] += step
                    order = [*shape[:axis], *shape[axis + 1 :], size]
                    x = np.moveaxis(_within(i, moved.reshape(order)), -1, axis)
                    by_name[f"{name}, '{i.name}' {channel} {change}"] = {**row, i.name: np.ascontiguousarray(x)}
    return by_name


def of_zero(spec: ModelSpec, row: Row, signals: bool) -> list[Input]:
    """Return the floating inputs that zero is an input of: signals, or rows of few numbers."""
    floats = [i for i in spec.inputs if i.kind == "tensor" and np.dtype(i.dtype).kind == "f" and i.low <= 0 <= i.high]
    return [i for i in floats if signals == (row[i.name].size >= SHORTEST_SIGNAL)]


def _played(x: Array, pace: float) -> Array:
    """Return a signal at another pace along its longest axis; a faster one begins again."""
    axis = int(np.argmax(x.shape))
    size = x.shape[axis]
    places = np.arange(size) * pace % (size - 1)
    left = places.astype(int)
    share = np.expand_dims(places - left, [n for n in range(x.ndim) if n != axis])
    played = (1 - share) * np.take(x, left, axis) + share * np.take(x, left + 1, axis)
    return np.asarray(played.astype(x.dtype))


def _spread(items: Sequence[tuple[str, Row]], most: int) -> list[tuple[str, Row]]:
    """Return up to some items, from all over a list."""
    count = min(most, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def _unfocused(x: Array) -> Array:
    """Return pictures [..., H, W] under two box filters of a 40th of their edges, of three pixels at least."""
    x = x.astype(np.float64)
    for axis in (-2, -1):
        size = x.shape[axis]
        width = max(3, size // 40 | 1)
        for _ in range(2):
            pads = [(0, 0)] * x.ndim
            pads[axis] = (width // 2, width // 2)
            edged = np.pad(x, pads, mode="edge")
            x = np.asarray(sum(np.take(edged, range(k, k + size), axis) for k in range(width)) / width)
    return x


def _moved(x: Array, down: int, across: int) -> Array:
    """Return pictures [..., H, W] moved by MOVED_BY towards a corner; the edges that come into view are repeated."""
    for axis, end in ((-2, down), (-1, across)):
        size = x.shape[axis]
        step = round(MOVED_BY * size)
        x = np.take(x, np.clip(np.arange(size) + (-step if end else step), 0, size - 1), axis)
    return x


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
