"""Real inputs as users have them: photographs, darkened, brightened, greyed, of other sizes, with one input at an end.

Rows are a mapping of arrays [1, ...] by input, as one run takes them at default sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from edgekit.model.input_rows import BATCH, one_run, run_of
from edgekit.model.spec import Array, Evaluation, Input, ModelSpec
from edgekit.reference.pictures import fitted, photographs, resized

CONDITIONED = 2
"""Real inputs of each sort that are changed."""
STRENGTHS = (0.05, 0.25)
"""Of what a darkened, brightened or flattened input keeps of its own contrast."""
LEVELS = tuple(round((step + 0.5) / 26, 4) for step in range(26))
"""Mean brightnesses that are asked, as shares of an input's range: every band as wide as the step has one in it."""
Row = Mapping[str, Array]
Change = Callable[[Input, Array], Array]


def real_rows(spec: ModelSpec, evaluation: Evaluation) -> dict[str, Row]:
    """The rows of an evaluation set, by name: what one run takes of each input."""
    shapes, runs = {i.name: i.shape for i in spec.inputs}, len(evaluation.names)
    return {
        name: {i: run_of(array, row, runs, shapes[i]) for i, array in evaluation.inputs.items()}
        for row, name in enumerate(evaluation.names)
    }


def photograph_rows(spec: ModelSpec, real: Sequence[Row]) -> dict[str, Row]:
    """A row for each photograph that ships, where an input is a picture; other inputs are of real rows in turn."""
    pictures = [i for i in spec.inputs if i.kind == "image"]
    if not pictures or any(len(i.shape) != 4 or i.shape[1] != 3 for i in pictures):
        return {}
    one = {BATCH: 1} if BATCH in spec.axes else {}
    rows: dict[str, Row] = {}
    for number, (name, picture) in enumerate(photographs().items()):
        row = dict(real[number % len(real)]) if real else spec.random(number, one)
        for i in pictures:
            height, width = spec.shape(i.name)[2:]
            row[i.name] = _as_declared(i, i.low + (i.high - i.low) * fitted(picture, height, width, i.fit)[None])
        rows[f"photograph {name}"] = row
    return rows


def changed_rows(spec: ModelSpec, own: Mapping[str, Row], pictures: Mapping[str, Row]) -> dict[str, Row]:
    """The first real rows of each sort in other conditions, all floating inputs alike; then one input at its ends.

    Where there are no real rows a random one is changed.
    """
    some = dict([*list(own.items())[:CONDITIONED], *list(pictures.items())[:CONDITIONED]])
    rows = some or {"random": spec.random(0)}
    found: dict[str, Row] = {}
    for name, row in rows.items():
        for change, values in _conditions(spec, row):
            found[f"{name}, {change}"] = values
    for name, row in list(rows.items())[:1]:
        for i in spec.inputs:
            for value in dict.fromkeys((float(np.clip(0.0, i.low, i.high)), i.low, i.high)):
                constant = np.full_like(row[i.name], value)
                found[f"{name}, '{i.name}' all {value:g}"] = {**row, i.name: constant}
    return found


def levelled_rows(spec: ModelSpec, own: Mapping[str, Row], pictures: Mapping[str, Row]) -> dict[str, Row]:
    """Real rows in turn, moved towards their low or their high end so that their mean is each of LEVELS.

    Pictures are moved, or all floating inputs of a model that takes none; no rows for a model that takes no floats.
    """
    moved = [i for i in spec.inputs if i.kind == "image"] or [i for i in spec.inputs if np.dtype(i.dtype).kind == "f"]
    rows = list(({**own, **pictures} or {"random": spec.random(0)}).items())
    found: dict[str, Row] = {}
    for number, level in enumerate(LEVELS if moved else ()):
        name, row = rows[number % len(rows)]
        found[f"{name}, mean {level:g}"] = {**row, **{i.name: _of_mean(i, row[i.name], level) for i in moved}}
    return found


def varied(spec: ModelSpec, rows: Sequence[Row], draw: np.random.Generator) -> Row:
    """A real row by chance; its pictures mirrored and their colours exchanged by chance, asked another row's query."""
    row = dict(rows[int(draw.integers(len(rows)))])
    for i in spec.inputs:
        if i.kind == "image":
            row[i.name] = row[i.name][..., :: 1 - 2 * int(draw.integers(2))]
            row[i.name] = row[i.name][:, draw.permutation(row[i.name].shape[1])]
        elif i.kind == "query":
            row[i.name] = rows[int(draw.integers(len(rows)))][i.name]
    return row


def _of_mean(i: Input, x: Array, level: float) -> Array:
    share = np.clip((x.astype(np.float64) - i.low) / (i.high - i.low), 0.0, 1.0)
    mean = share.mean()
    moved = share * level / mean if mean > level else 1 - (1 - share) * (1 - level) / (1 - mean)
    return _as_declared(i, i.low + (i.high - i.low) * moved)


def _as_declared(i: Input, values: Array) -> Array:
    """Values in an input's dtype; integers are rounded."""
    return np.asarray(np.rint(values) if np.dtype(i.dtype).kind in "iu" else values).astype(i.dtype)


def _conditions(spec: ModelSpec, row: Row) -> Iterator[tuple[str, Row]]:
    pictures = tuple(i for i in spec.inputs if i.kind == "image")
    floats = tuple(i for i in spec.inputs if np.dtype(i.dtype).kind == "f" or i.kind == "image")

    def made(change: Change, inputs: Sequence[Input]) -> Row:
        return {**row, **{i.name: _as_declared(i, change(i, row[i.name])) for i in inputs}}

    for share in STRENGTHS if floats else ():
        yield f"darkened to {share:g}", made(_towards(0.0, share), floats)
        yield f"brightened to {share:g}", made(_towards(1.0, share), floats)
        yield f"contrast {share:g}", made(_towards(0.5, share), floats)
    if pictures:
        yield "grey", made(lambda i, x: np.broadcast_to(x.mean(1, keepdims=True), x.shape), pictures)
        yield "colours exchanged", made(lambda i, x: np.flip(x, 1), pictures)  # of reddish pictures bluish ones
        yield "flat", made(lambda i, x: np.broadcast_to(x.mean((2, 3), keepdims=True), x.shape), pictures)


def _towards(place: float, share: float) -> Change:
    """Keeps a share of the distance to a place between an input's low and high."""

    def change(i: Input, x: Array) -> Array:
        goal = i.low + place * (i.high - i.low)
        return goal + share * (x - goal)

    return change


def batch_of(spec: ModelSpec, rows: Sequence[Row], sizes: Mapping[str, int], first: int) -> dict[str, Array]:
    """Real rows from a place on as one batch of other sizes: pictures resized, all else cropped or repeated."""
    count = sizes.get(BATCH, 1)
    made: dict[str, Array] = {}
    for i in spec.inputs:
        shape = spec.shape(i.name, sizes)
        taken = [rows[(first + k) % len(rows)][i.name] for k in range(count if BATCH in i.shape else 1)]
        made[i.name] = one_run([_fitted(i, array, shape) for array in taken], i.shape)
    return made


def _fitted(i: Input, array: Array, shape: tuple[int, ...]) -> Array:
    if i.kind == "image" and len(shape) == 4:
        return _as_declared(i, resized(array, *shape[2:]))
    for axis, size in enumerate(shape):
        if i.shape[axis] != BATCH and array.shape[axis] != size:
            array = np.take(array, np.arange(size) % array.shape[axis], axis)
    return array


def fits(spec: ModelSpec, rows: Sequence[Row]) -> bool:
    """Whether real rows can be put together: there are some, and each input has its axes."""
    return bool(rows) and all(rows[0][i.name].ndim == len(i.shape) for i in spec.inputs)
