"""What the model itself says, recorded once: golden outputs, their noise floor, latency, and what made them.

The best reference is a GPU's, recorded with `edgekit reference --device cuda` in fp32 with TF32 off and deterministic
algorithms, and shipped with the model; without one, the CPU's own answer is recorded. Every report says which it was.

A reference folder holds reference.json, outputs.safetensors and, in a build, inputs.safetensors with the evaluation
inputs (`edgekit.reference.store`). Arrays are named `<batch>/<tensor>`. The batches, one row at a time: `evaluation`
(real inputs), `photographs` (for models that take pictures), `changed` (both darkened, brightened, greyed ..., one
input at its ends), `levelled` (both at many mean brightnesses), `stress` (random, constant and extreme inputs); and one
shape each, as one batch: `grid-NN` (random inputs at a shape of the grid), `real-NN` (real inputs there), `between-NN`
(real inputs, or random ones of a model that has none, at shapes between those of the grid).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edgekit.artifact.manifest import Manifest
from edgekit.judge.rows import SUFFIX
from edgekit.model.evaluation_set import (
    BATCH,
    FIRST,
    Shape,
    one_run,
    rows_in,
    run_of,
    runs_of,
    stack_runs,
    unusual_shapes,
    usual_sizes,
)
from edgekit.model.shapes import grid, shapes_between
from edgekit.model.spec import Array, EvaluationSet, Input, ModelSpec
from edgekit.reference.pictures import fit_picture, photographs, resize

EVALUATION, STRESS, GRID = "evaluation", "stress", "grid"
PHOTOGRAPHS, CHANGED, LEVELLED, RESIZED, BETWEEN = "photographs", "changed", "levelled", "real", "between"
REAL = (EVALUATION, PHOTOGRAPHS)
"""Batches of real inputs at default sizes."""
ROWS = (EVALUATION, PHOTOGRAPHS, CHANGED, LEVELLED, STRESS)
"""Batches whose rows are run one at a time, in the order in which they are asked."""
RANDOM_ROWS = 4
REAL_STEP = 37
"""Prime: shapes take real inputs from all over the set, photographs among them."""
SAMPLED_SHAPE = 1
"""Times the pixels of one image of default size: no larger shape is asked with FEW evaluation images, or fewer."""
FEW = 8  # evaluation images: so many are asked in a slow place by default, and were by the results that models bring
SAMPLED = {PHOTOGRAPHS: 2, CHANGED: 6, LEVELLED: 5, GRID: 100, RESIZED: 3, BETWEEN: 4}
"""Rows, or small shapes, of each kind that are asked with FEW evaluation images: the first ones, as ever."""
SPARSELY = {PHOTOGRAPHS: 1, CHANGED: 2, LEVELLED: 2, STRESS: 2, GRID: 2, RESIZED: 1, BETWEEN: 1}
"""With fewer, where a run takes seconds: rows spread over the kind (all brightnesses, each kind of change), and shapes
other than the usual one."""
AMPLY = {PHOTOGRAPHS: 8, CHANGED: 12, LEVELLED: 8, GRID: 100, RESIZED: 100, BETWEEN: 100}
"""With more: rows spread likewise, and all shapes of AMPLE_SHAPE."""
REPEATED, REPEATED_SLOW, REPEATED_SPARSELY = 32, 4, 1
"""Rows of each batch that are asked twice: everywhere, where a place is slow, and where a run takes seconds."""
SPARSE = (EVALUATION, STRESS)
"""The only batches of which rows are asked twice where a run takes seconds."""
AMPLE_SHAPE = {GRID: math.inf, RESIZED: 2, BETWEEN: 2}
"""Times the pixels of one image, with more: every shape of the grid is asked, since an artifact advertises it."""


@dataclass(frozen=True)
class Batch:
    """Inputs that belong together, and what the reference answered.

    Attributes:
        name: "evaluation", "stress" or "grid-NN".
        inputs: By name, [n, ...]; see `evaluation_set.py`: stacked where there are no sizes, else as one run.
        outputs: By name, rows first, [n, ...] or [1, ...] of what is one thing; of what is large the first rows, and by
            the name with `sketch.SUFFIX` sketches of all, by that with `sketch.PLACES` some places.
        sizes: For a grid batch the sizes of its axes; empty otherwise.
        names: One name a row.
        answered_by: What gave the answers, in words.
        apart: Whether the rows of a shape are run one at a time.
        shapes: Declared shapes of the inputs whose batch is not their first axis.
        kept: Whether its inputs are real ones of this shape, which are stored: nothing makes them again.
    """

    name: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    sizes: Mapping[str, int]
    names: tuple[str, ...]
    answered_by: str = ""
    apart: bool = False
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    kept: bool = False

    @property
    def single(self) -> bool:
        """Whether its rows are run one at a time, as an edge device would."""
        return not self.sizes or self.apart

    @property
    def rows_a_run(self) -> int:
        """Rows that one run answers."""
        return 1 if self.single else len(self.names)

    def first(self, rows: int) -> Batch:
        """The same with its first rows only."""
        inputs = self._inputs(range(min(rows, len(self.names))))
        outputs = {name: array[:rows] for name, array in self.outputs.items()}
        return replace(self, inputs=inputs, outputs=outputs, names=self.names[:rows])

    def select_rows(self, rows: Sequence[int], name: str) -> Batch:
        """Some of its rows, under another name; of what was kept of the first rows only the first ones that it has."""
        count, places = len(self.names), np.asarray(rows, int)

        outputs = {n: array[places] for n, array in self.outputs.items() if len(array) == count}
        large = {n: array for n, array in self.outputs.items() if n + SUFFIX in self.outputs and len(array) < count}

        def select(array: Array) -> Array:
            return array[list(itertools.takewhile(lambda row: row < len(array), rows))]

        whole = {n: select(array) for n, array in large.items()}
        names = tuple(self.names[row] for row in rows)
        return replace(self, name=name, inputs=self._inputs(rows), outputs=outputs | whole, names=names)

    def rows(self) -> Iterator[dict[str, Array]]:
        """The inputs of one run each."""
        if not self.single:
            yield dict(self.inputs)
            return
        for row in range(len(self.names)):
            yield {name: self._row(name, row) for name in self.inputs}

    def _row(self, name: str, row: int) -> Array:
        array, shape = self.inputs[name], self.shapes.get(name, FIRST)
        return rows_in(array, [row], shape) if self.sizes else run_of(array, row, len(self.names), shape)

    def _inputs(self, rows: Sequence[int]) -> dict[str, Array]:
        """The inputs of some rows, in the form that they have."""
        if self.sizes:
            return {n: rows_in(array, rows, self.shapes.get(n, FIRST)) for n, array in self.inputs.items()}
        return {n: runs_of(array, rows, len(self.names)) for n, array in self.inputs.items()}


def batches_for(spec: ModelSpec, evaluation: EvaluationSet | None) -> tuple[Batch, ...]:
    """The batches of inputs that a model is recorded and judged on, without outputs; the same for the same spec."""
    source = BatchSource(spec, evaluation)
    entries: list[tuple[str, Mapping[str, int]]] = [(name, {}) for name in ROWS]
    for number, sizes in enumerate(grid(spec.axes)):
        entries += [(f"{GRID}-{number:02d}", sizes), (f"{RESIZED}-{number:02d}", sizes)]
    entries += [(f"{BETWEEN}-{number:02d}", sizes) for number, sizes in enumerate(shapes_between(spec.axes))]
    batches = (source.batch(name, sizes) for name, sizes in entries)
    return tuple(batch for batch in batches if batch is not None)


class BatchSource:
    """Makes a model's batches by their names, from its evaluation set, the shipped photographs and seeds.

    Args:
        spec: The model; only its inputs and axes count.
        evaluation: Its evaluation set, or None.
    """

    def __init__(self, spec: ModelSpec, evaluation: EvaluationSet | None) -> None:
        self._spec, self._evaluation = spec, evaluation

    def batch(self, name: str, sizes: Mapping[str, int]) -> Batch | None:
        """The batch of a name at some sizes, without outputs; None where the model has none of its kind."""
        kind, _, number = name.partition("-")
        batch = self._shape(name, kind, int(number), sizes) if number else self._rows(name)
        return replace(batch, shapes=unusual_shapes(self._spec.inputs)) if batch is not None else None

    def _rows(self, name: str) -> Batch | None:
        if name == STRESS:
            return stress_batch(self._spec)
        if name == EVALUATION:
            real = self._evaluation
            return Batch(EVALUATION, real.inputs, {}, {}, real.names) if real is not None else None
        if name == PHOTOGRAPHS:
            rows: Mapping[str, Row] = self._pictures
        else:
            rows = {CHANGED: changed_rows, LEVELLED: levelled_rows}[name](self._spec, self._own, self._pictures)
        if not rows:
            return None
        inputs = {i: stack_runs(row[i] for row in rows.values()) for i in next(iter(rows.values()))}
        return Batch(name, inputs, {}, {}, tuple(rows))

    def _shape(self, name: str, kind: str, number: int, sizes: Mapping[str, int]) -> Batch | None:
        steps, seeds = {RESIZED: 8, BETWEEN: 5}, {GRID: 1000, BETWEEN: 2000}
        if kind in steps and (self._mixed_rows or self._at(sizes)):
            return self._resized_rows(name, sizes, steps[kind] * number)
        if kind in seeds:
            inputs = self._spec.random(seeds[kind] + number, sizes)
            return Batch(name, inputs, {}, sizes, tuple(f"row {row}" for row in range(sizes.get(BATCH, 1))))
        return None

    def _resized_rows(self, name: str, sizes: Mapping[str, int], first: int) -> Batch:
        own = self._at(sizes)
        rows = own or self._mixed_rows
        names = [list(rows)[(first + k) % len(rows)] for k in range(sizes.get(BATCH, 1))]
        whole = batch_of(self._spec, list(rows.values()), sizes, first)
        row_names = tuple(f"{number}: {row}" for number, row in enumerate(names))
        return Batch(name, whole, {}, sizes, row_names, kept=bool(own))

    def _at(self, sizes: Mapping[str, int]) -> Mapping[str, Row]:
        """The real rows that have these sizes themselves."""
        others = self._evaluation.others if self._evaluation is not None else ()
        shapes = {i.name: self._spec.shape(i.name, {**sizes, BATCH: 1}) for i in self._spec.inputs}
        fit = [row for row in others if all(row[name].shape == shape for name, shape in shapes.items())]
        return {f"real {number}": row for number, row in enumerate(fit)}

    def fresh(self, name: str, sizes: Mapping[str, int], draw: np.random.Generator) -> Batch:
        """Inputs by chance that nothing recorded holds: real rows varied, random ones of a model that has none."""
        rows = list(self._mixed_rows.values())
        count = sizes.get(BATCH, 1)
        if rows:
            inputs = batch_of(self._spec, [random_variation(self._spec, rows, draw) for _ in range(count)], sizes, 0)
        else:
            inputs = self._spec.random(int(draw.integers(1 << 31)), sizes)
        names = tuple(f"row {row}" for row in range(count))
        return Batch(name, inputs, {}, sizes, names, shapes=unusual_shapes(self._spec.inputs))

    @functools.cached_property
    def _own(self) -> Mapping[str, Row]:
        return real_rows(self._spec, self._evaluation) if self._evaluation is not None else {}

    @functools.cached_property
    def _pictures(self) -> Mapping[str, Row]:
        return photograph_rows(self._spec, list(self._own.values()))

    @functools.cached_property
    def _mixed_rows(self) -> Mapping[str, Row]:
        """Real rows from all over the set in turn; none where they cannot be put together."""
        real = {**self._own, **self._pictures}
        if not fits(self._spec, list(real.values())):
            return {}
        return {name: real[name] for name in (list(real)[k * REAL_STEP % len(real)] for k in range(len(real)))}


def stress_batch(spec: ModelSpec) -> Batch:
    """Random, constant and extreme inputs at default sizes: what a photograph never is and a runtime must survive."""
    rows: list[dict[str, Array]] = [spec.random(seed) for seed in range(RANDOM_ROWS)]
    names = [f"random {seed}" for seed in range(RANDOM_ROWS)]
    for name, share in (("all lowest", 0.0), ("all highest", 1.0), ("all middle", 0.5)):
        rows.append(spec.constant_inputs(share))
        names.append(name)
    for seed in range(2):
        arrays = spec.random(100 + seed)
        middles = {i.name: (i.low + i.high) / 2 for i in spec.inputs}
        rows.append(
            {i.name: np.where(arrays[i.name] > middles[i.name], i.high, i.low).astype(i.dtype) for i in spec.inputs}
        )
        names.append(f"lowest or highest {seed}")
    inputs = {i.name: stack_runs(row[i.name] for row in rows) for i in spec.inputs}
    return Batch(STRESS, inputs, {}, {}, tuple(names), shapes=unusual_shapes(spec.inputs))


def applicable_batches(batches: tuple[Batch, ...], manifest: Manifest, images: int | None = None) -> tuple[Batch, ...]:
    """The batches whose sizes an artifact takes: a fixed axis takes its default only.

    Where the batch is fixed and other sizes are not the usual ones, the rows of a shape are asked one at a time: single
    rows are recorded at the usual sizes only. Where only so many evaluation images are asked for, as many of other
    kinds as SAMPLED, SPARSELY or AMPLY says are asked for too, and no shapes larger than SAMPLED_SHAPE or AMPLE_SHAPE
    allows, but for those of the grid that an artifact lists.
    """
    axes = manifest.axes
    applicable = tuple(
        applicable_batch for batch in batches if (applicable_batch := _applicable(batch, manifest)) is not None
    )
    if images is None:
        return applicable
    one_image = math.prod(axis.default for axis in axes.values())
    most = SAMPLED if images == FEW else SPARSELY if images < FEW else AMPLY
    few: dict[str, int] = {}
    sample = []
    for batch in applicable:
        kind = batch.name.partition("-")[0]
        largest = AMPLE_SHAPE.get(kind, 0) if images > FEW else SAMPLED_SHAPE
        listed = manifest.sizes and kind == GRID  # each of its sizes may be a file of its own
        large = not listed and math.prod(batch.sizes.values()) > largest * one_image
        usual = images < FEW and all(axes[name].default == size for name, size in batch.sizes.items())
        if batch.sizes and (large or usual or few.get(kind, 0) >= most[kind]):
            continue
        few[kind] = few.get(kind, 0) + 1
        rows = images if kind == EVALUATION else most.get(kind, len(batch.names))
        spread_out = images != FEW and not batch.sizes and kind != EVALUATION  # whose truth is that of its first rows
        sample.append(_spread(batch, rows) if spread_out else batch.first(rows))
    return tuple(sample)


def repeats(batch: Batch, timed: bool, images: int | None) -> int:
    """How many rows of a batch are asked twice, in another order.

    Args:
        batch: As it is asked.
        timed: Whether the place is quick enough to be timed.
        images: How many evaluation inputs are asked; None for all.
    """
    if not batch.single or (images is not None and images < FEW and batch.name not in SPARSE):
        return 0
    if timed and images is None:
        return REPEATED
    return REPEATED_SPARSELY if images is not None and images < FEW else REPEATED_SLOW


def _spread(batch: Batch, rows: int) -> Batch:
    """So many rows of a batch at equal steps, the first and the last among them."""
    last = len(batch.names) - 1
    if last < rows:
        return batch
    return batch.select_rows([round(k * last / max(rows - 1, 1)) for k in range(rows)], batch.name)


def _applicable(batch: Batch, manifest: Manifest) -> Batch | None:
    """A batch as it is asked of an artifact; None where the artifact does not take its sizes."""
    sizes = batch.sizes or _sizes_of(batch, manifest)
    others = {name: size for name, size in sizes.items() if name != BATCH}
    if not all(manifest.axes[n].dynamic or manifest.axes[n].default == size for n, size in others.items()):
        return None
    if not manifest.takes(others):
        return None
    axis = manifest.axes.get(BATCH)
    if not batch.sizes or axis is None or axis.dynamic:
        return batch
    open_sizes = manifest.sizes or any(manifest.axes[name].dynamic for name in others)
    rows = bool(batch.outputs) and all(len(array) == len(batch.names) for array in batch.outputs.values())
    if open_sizes and axis.default == 1 and rows:
        return replace(batch, sizes={**batch.sizes, BATCH: 1}, apart=True)
    return batch if axis.default == sizes[BATCH] else None


def _sizes_of(batch: Batch, manifest: Manifest) -> dict[str, int]:
    """Sizes of the axes beside the batch in a batch of single rows."""
    sizes = usual_sizes(batch.inputs, {i.name: tuple(i.shape) for i in manifest.inputs}, len(batch.names))
    return {name: size for name, size in sizes.items() if name in manifest.axes}


def inputs_digest(batches: tuple[Batch, ...]) -> str:
    """sha256 of all inputs: a reference belongs to these bytes."""
    hashed = hashlib.sha256()
    for batch in batches:
        for name, array in sorted(batch.inputs.items()):
            hashed.update(f"{batch.name}/{name} {array.dtype} {array.shape}\n".encode())
            hashed.update(np.ascontiguousarray(array).data)
    return hashed.hexdigest()


def same_inputs(first: tuple[Batch, ...], other: tuple[Batch, ...]) -> bool:
    """Whether the batches ask the same (compared as they are, which is quicker than two hashes)."""

    def equal(a: Array, b: Array) -> bool:
        return a is b or np.array_equal(a, b)

    def describe_inputs(batches: tuple[Batch, ...]) -> list[tuple[object, ...]]:
        return [(b.name, dict(b.sizes), dict(b.shapes)) for b in batches]

    return describe_inputs(first) == describe_inputs(other) and all(
        a.inputs.keys() == b.inputs.keys() and all(equal(a.inputs[k], b.inputs[k]) for k in a.inputs)
        for a, b in zip(first, other, strict=True)
    )


def arrays_of(batch: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of one batch by their own names, out of a file's."""
    prefix = f"{batch}/"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


CONDITIONED = 2
"""Real inputs of each sort that are changed."""
STRENGTHS = (0.05, 0.25)
"""Of what a darkened, brightened or flattened input keeps of its own contrast."""
LEVELS = tuple(round((step + 0.5) / 26, 4) for step in range(26))
"""Mean brightnesses that are asked, as shares of an input's range: every band as wide as the step has one in it."""
Row = Mapping[str, Array]
Change = Callable[[Input, Array], Array]


def real_rows(spec: ModelSpec, evaluation: EvaluationSet) -> dict[str, Row]:
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
    single = {BATCH: 1} if BATCH in spec.axes else {}
    rows: dict[str, Row] = {}
    for number, (name, picture) in enumerate(photographs().items()):
        row = dict(real[number % len(real)]) if real else spec.random(number, single)
        for i in pictures:
            height, width = spec.shape(i.name)[2:]
            row[i.name] = _cast_to_declared(
                i, i.low + (i.high - i.low) * fit_picture(picture, height, width, i.fit)[None]
            )
        rows[f"photograph {name}"] = row
    return rows


def changed_rows(spec: ModelSpec, own: Mapping[str, Row], pictures: Mapping[str, Row]) -> dict[str, Row]:
    """The first real rows of each sort in other conditions, all floating inputs alike; then one input at its ends.

    Where there are no real rows a random one is changed.
    """
    some = dict([*list(own.items())[:CONDITIONED], *list(pictures.items())[:CONDITIONED]])
    rows = some or {"random": spec.random(0)}
    by_name: dict[str, Row] = {}
    for name, row in rows.items():
        for change, values in _conditions(spec, row):
            by_name[f"{name}, {change}"] = values
    for name, row in list(rows.items())[:1]:
        for i in spec.inputs:
            for value in dict.fromkeys((float(np.clip(0.0, i.low, i.high)), i.low, i.high)):
                constant = np.full_like(row[i.name], value)
                by_name[f"{name}, '{i.name}' all {value:g}"] = {**row, i.name: constant}
    return by_name


def levelled_rows(spec: ModelSpec, own: Mapping[str, Row], pictures: Mapping[str, Row]) -> dict[str, Row]:
    """Real rows in turn, moved towards their low or their high end so that their mean is each of LEVELS.

    Pictures are moved, or all floating inputs of a model that takes none; no rows for a model that takes no floats.
    """
    moved = [i for i in spec.inputs if i.kind == "image"] or [i for i in spec.inputs if np.dtype(i.dtype).kind == "f"]
    rows = list(({**own, **pictures} or {"random": spec.random(0)}).items())
    by_name: dict[str, Row] = {}
    for number, level in enumerate(LEVELS if moved else ()):
        name, row = rows[number % len(rows)]
        by_name[f"{name}, mean {level:g}"] = {**row, **{i.name: _of_mean(i, row[i.name], level) for i in moved}}
    return by_name


def random_variation(spec: ModelSpec, rows: Sequence[Row], draw: np.random.Generator) -> Row:
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
    return _cast_to_declared(i, i.low + (i.high - i.low) * moved)


def _cast_to_declared(i: Input, values: Array) -> Array:
    """Values in an input's dtype; integers are rounded."""
    return np.asarray(np.rint(values) if np.dtype(i.dtype).kind in "iu" else values).astype(i.dtype)


def _conditions(spec: ModelSpec, row: Row) -> Iterator[tuple[str, Row]]:
    pictures = tuple(i for i in spec.inputs if i.kind == "image")
    floats = tuple(i for i in spec.inputs if np.dtype(i.dtype).kind == "f" or i.kind == "image")

    def change_row(change: Change, inputs: Sequence[Input]) -> Row:
        return {**row, **{i.name: _cast_to_declared(i, change(i, row[i.name])) for i in inputs}}

    for share in STRENGTHS if floats else ():
        yield f"darkened to {share:g}", change_row(_towards(0.0, share), floats)
        yield f"brightened to {share:g}", change_row(_towards(1.0, share), floats)
        yield f"contrast {share:g}", change_row(_towards(0.5, share), floats)
    if pictures:
        yield "grey", change_row(lambda i, x: np.broadcast_to(x.mean(1, keepdims=True), x.shape), pictures)
        yield "colours exchanged", change_row(lambda i, x: np.flip(x, 1), pictures)  # of reddish pictures bluish ones
        yield "flat", change_row(lambda i, x: np.broadcast_to(x.mean((2, 3), keepdims=True), x.shape), pictures)


def _towards(place: float, share: float) -> Change:
    """Keeps a share of the distance to a place between an input's low and high."""

    def change(i: Input, x: Array) -> Array:
        goal = i.low + place * (i.high - i.low)
        return goal + share * (x - goal)

    return change


def batch_of(spec: ModelSpec, rows: Sequence[Row], sizes: Mapping[str, int], first: int) -> dict[str, Array]:
    """Real rows from a place on as one batch of other sizes: pictures resized, all else cropped or repeated."""
    count = sizes.get(BATCH, 1)
    arrays: dict[str, Array] = {}
    for i in spec.inputs:
        shape = spec.shape(i.name, sizes)
        parts = [rows[(first + k) % len(rows)][i.name] for k in range(count if BATCH in i.shape else 1)]
        arrays[i.name] = one_run([_fit(i, array, shape) for array in parts], i.shape)
    return arrays


def _fit(i: Input, array: Array, shape: tuple[int, ...]) -> Array:
    if i.kind == "image" and len(shape) == 4:
        return _cast_to_declared(i, resize(array, *shape[2:]))
    for axis, size in enumerate(shape):
        if i.shape[axis] != BATCH and array.shape[axis] != size:
            array = np.take(array, np.arange(size) % array.shape[axis], axis)
    return array


def fits(spec: ModelSpec, rows: Sequence[Row]) -> bool:
    """Whether real rows can be put together: there are some, and each input has its axes."""
    return bool(rows) and all(rows[0][i.name].ndim == len(i.shape) for i in spec.inputs)
