"""Batches of a reference: the inputs on which the model is recorded and artifacts are judged.

The best reference comes from a GPU: recorded with `edgekit reference --device cuda` in fp32 with TF32 off and
deterministic algorithms, and shipped with the model. Without one, the CPU is recorded. Every report names the device.

A reference folder has reference.json, outputs.safetensors and, in a build, inputs.safetensors with the evaluation
inputs (`edgekit.reference.store`). Arrays are named `<batch>/<tensor>`. These batches run one row at a time:
`evaluation` (real inputs), `photographs` (for models that take pictures), `changed` (real inputs, else photographs,
darkened, brightened, greyed ..., one input at its ends), `levelled` (likewise at many mean brightnesses),
`shifted` (likewise towards their ends, of models without pictures), `words` (words of the model's vocabulary that no
real query has), `ids` (real rows with the ids that no real row has), `categories` (real rows with each id that some
real row of a table has), and `stress` (random, constant and extreme
inputs). These batches have one shape each: `grid-NN` (random inputs at a shape of the grid), `real-NN` (real inputs
there), and `between-NN` (real or random inputs at shapes between those of the grid).
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
from edgekit.judge.metrics import FEW_IN_CHANNELS
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
from edgekit.model.image_input import from_planes, set_in_planes, spec_in_planes
from edgekit.model.shapes import grid, shapes_between
from edgekit.model.spec import Array, EvaluationSet, Input, ModelSpec
from edgekit.reference.ids import RANDOM_ROWS, category_rows, id_rows, mask_axis, repeated_rows
from edgekit.reference.pictures import fit_picture, mosaic, photographs, resize
from edgekit.reference.variations import (
    LEAST_WAVE,
    Columns,
    are_waves,
    camera_rows,
    distinct,
    drifting_rows,
    of_zero,
    paced_rows,
    random_variation,
    rows_beyond,
)
from edgekit.reference.vocabulary import word_queries

EVALUATION, STRESS, GRID = "evaluation", "stress", "grid"
PHOTOGRAPHS, CHANGED, LEVELLED = "photographs", "changed", "levelled"
SHIFTED, WORDS, IDS, CATEGORIES = "shifted", "words", "ids", "categories"
RESIZED, BETWEEN = "real", "between"
# Batches of real inputs at default sizes.
REAL = (EVALUATION, PHOTOGRAPHS)
# Batches whose rows are run one at a time, in this order.
ROWS = (EVALUATION, PHOTOGRAPHS, CHANGED, LEVELLED, SHIFTED, WORDS, IDS, CATEGORIES, STRESS)
# Prime, so that shapes take real inputs from all over the set, photographs among them.
REAL_STEP = 37
# Times the pixels of one image of default size: the largest shape that runs with FEW evaluation images, or fewer.
SAMPLED_SHAPE = 1
# Evaluation images that run in a slow place by default, and in the results that ship with models.
FEW = 8
# Rows, or small shapes, of each kind that run with FEW evaluation images: the first ones.
SAMPLED = {
    PHOTOGRAPHS: 2,
    CHANGED: 6,
    LEVELLED: 5,
    SHIFTED: 5,
    WORDS: 4,
    IDS: 4,
    CATEGORIES: 4,
    GRID: 100,
    RESIZED: 3,
    BETWEEN: 4,
}
# With fewer, if a run takes seconds: rows spread over the kind (all brightnesses, each kind of change), and shapes
# other than the usual one.
SPARSELY = {
    PHOTOGRAPHS: 1,
    CHANGED: 2,
    LEVELLED: 2,
    SHIFTED: 2,
    WORDS: 1,
    IDS: 1,
    CATEGORIES: 1,
    STRESS: 2,
    GRID: 2,
    RESIZED: 1,
    BETWEEN: 1,
}
# With more than FEW: rows spread likewise, and all shapes of AMPLE_SHAPE.
AMPLY = {
    PHOTOGRAPHS: 8,
    CHANGED: 12,
    LEVELLED: 8,
    SHIFTED: 8,
    WORDS: 12,
    IDS: 12,
    CATEGORIES: 12,
    GRID: 100,
    RESIZED: 100,
    BETWEEN: 100,
}
# Rows of each batch that run twice: by default, in a slow place, and if a run takes seconds.
REPEATED, REPEATED_SLOW, REPEATED_SPARSELY = 32, 4, 1
# The only batches with rows that run twice if a run takes seconds.
SPARSE = (EVALUATION, STRESS)
# Times the pixels of one image, with more than FEW: every shape of the grid runs, since an artifact advertises it.
AMPLE_SHAPE = {GRID: math.inf, RESIZED: 2, BETWEEN: 2}


@dataclass(frozen=True)
class Batch:
    """Inputs that belong together, with the reference's outputs.

    Attributes:
        name: "evaluation", "stress" or "grid-NN".
        inputs: Inputs by name, [n, ...]: stacked if there are no sizes, else as one run (see `evaluation_set.py`).
        outputs: Outputs by name, rows first: [n, ...], or [1, ...] if an output is one thing. A large output has its
            first rows, sketches of all rows (name with `rows.SUFFIX`) and some places (name with `rows.PLACES`).
        sizes: The sizes of the axes of a batch of one shape; empty otherwise.
        names: One name per row.
        answered_by: Description of the device that ran it.
        apart: True if the rows of a shape are run one at a time.
        shapes: Declared shapes of the inputs whose batch is not their first axis.
        kept: True if its inputs are real ones of this shape, which are stored because they cannot be regenerated.
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
        """True if its rows are run one at a time, as on an edge device."""
        return not self.sizes or self.apart

    @property
    def rows_a_run(self) -> int:
        """Number of rows in one run."""
        return 1 if self.single else len(self.names)

    def first(self, rows: int) -> Batch:
        """Return the batch with its first rows only."""
        inputs = self._inputs(range(min(rows, len(self.names))))
        outputs = {name: array[:rows] for name, array in self.outputs.items()}
        return replace(self, inputs=inputs, outputs=outputs, names=self.names[:rows])

    def select_rows(self, rows: Sequence[int], name: str) -> Batch:
        """Return some of its rows, under another name; of large outputs only the stored rows."""
        count, places = len(self.names), np.asarray(rows, int)

        outputs = {n: array[places] for n, array in self.outputs.items() if len(array) == count}
        large = {n: array for n, array in self.outputs.items() if n + SUFFIX in self.outputs and len(array) < count}

        def select(array: Array) -> Array:
            return array[list(itertools.takewhile(lambda row: row < len(array), rows))]

        whole = {n: select(array) for n, array in large.items()}
        names = tuple(self.names[row] for row in rows)
        return replace(self, name=name, inputs=self._inputs(rows), outputs=outputs | whole, names=names)

    def rows(self) -> Iterator[dict[str, Array]]:
        """Yield the inputs of each run."""
        if not self.single:
            yield dict(self.inputs)
            return
        for row in range(len(self.names)):
            yield {name: self._row(name, row) for name in self.inputs}

    def _row(self, name: str, row: int) -> Array:
        array, shape = self.inputs[name], self.shapes.get(name, FIRST)
        return rows_in(array, [row], shape) if self.sizes else run_of(array, row, len(self.names), shape)

    def _inputs(self, rows: Sequence[int]) -> dict[str, Array]:
        """Return the inputs of some rows, in the batch's form."""
        if self.sizes:
            return {n: rows_in(array, rows, self.shapes.get(n, FIRST)) for n, array in self.inputs.items()}
        return {n: runs_of(array, rows, len(self.names)) for n, array in self.inputs.items()}


def batches_for(spec: ModelSpec, evaluation: EvaluationSet | None, first: Sequence[int] = ()) -> tuple[Batch, ...]:
    """Return the batches on which a model is recorded and judged, without outputs; the same for the same arguments."""
    return tuple(each_batch(spec, evaluation, first))


def each_batch(spec: ModelSpec, evaluation: EvaluationSet | None, first: Sequence[int] = ()) -> Iterator[Batch]:
    """Yield the batches of `batches_for`, each made when it is needed."""
    source = BatchSource(spec, evaluation, word_queries(spec, evaluation), first)
    entries: list[tuple[str, Mapping[str, int]]] = [(name, {}) for name in ROWS]
    for number, sizes in enumerate(grid(spec.axes)):
        entries += [(f"{GRID}-{number:02d}", sizes), (f"{RESIZED}-{number:02d}", sizes)]
    entries += [(f"{BETWEEN}-{number:02d}", sizes) for number, sizes in enumerate(shapes_between(spec.axes))]
    yield from filter(None, (source.batch(name, sizes) for name, sizes in entries))


class BatchSource:
    """Source of a model's batches by name, from its evaluation set, the shipped photographs and seeds.

    Args:
        spec: The model; only its inputs and axes count.
        evaluation: Its evaluation set, or None.
        queries: Queries [Q] by name, as `word_queries` gives them.
        first: Real rows from which changed inputs are made before all others, as `rows_by_labels` gives them.
    """

    def __init__(
        self,
        spec: ModelSpec,
        evaluation: EvaluationSet | None,
        queries: Mapping[str, Array] | None = None,
        first: Sequence[int] = (),
    ) -> None:
        # Pictures of bytes are drawn and changed as floats, and rounded once.
        self._declared, self._spec, self._queries = spec, spec_in_planes(spec), queries or {}
        self._evaluation = set_in_planes(spec, evaluation) if evaluation is not None else None
        self._first = first

    def batch(self, name: str, sizes: Mapping[str, int]) -> Batch | None:
        """Return the batch of a name at some sizes, without outputs; None if the model has none of its kind."""
        kind, _, number = name.partition("-")
        batch = self._shape(name, kind, int(number), sizes) if number else self._rows(name)
        return self._packed(batch) if batch is not None else None

    def _packed(self, batch: Batch) -> Batch:
        inputs = from_planes(self._declared, batch.inputs)
        return replace(batch, inputs=inputs, shapes=unusual_shapes(self._spec.inputs))

    def _rows(self, name: str) -> Batch | None:
        if name == STRESS:
            return replace(stress := stress_batch(self._spec), inputs=self._columns.narrow(stress.inputs))
        if name == EVALUATION:
            real = self._evaluation
            return Batch(EVALUATION, real.inputs, {}, {}, real.names) if real is not None else None
        if name == PHOTOGRAPHS:
            rows: Mapping[str, Row] = self._pictures
        elif name == WORDS:
            rows = _word_rows(self._spec, self._queries, [*(self._own or self._pictures).values()])
        elif name == IDS:
            rows = id_rows(self._spec, list(self._own.values()))
        elif name == CATEGORIES:
            rows = category_rows(self._spec, self._own)
        elif name == CHANGED:
            rows = changed_rows(self._spec, self._examples)
        elif name == SHIFTED:
            rows = shifted_rows(self._spec, self._examples, self._columns)
        else:
            levelled = levelled_rows(self._spec, self._examples) if _takes_pictures(self._spec) else {}
            rows = {**levelled, **camera_rows(self._spec, self._examples)}
        if not rows:
            return None
        rows = distinct({n: self._spec.conform(row) for n, row in rows.items()})
        inputs = {i: stack_runs(row[i] for row in rows.values()) for i in next(iter(rows.values()))}
        return Batch(name, inputs, {}, {}, tuple(rows))

    def _shape(self, name: str, kind: str, number: int, sizes: Mapping[str, int]) -> Batch | None:
        steps, seeds = {RESIZED: 8, BETWEEN: 5}, {GRID: 1000, BETWEEN: 2000}
        if kind in steps and (self._mixed_rows or self._at(sizes)):
            return self._resized_rows(name, sizes, steps[kind] * number)
        if kind in seeds:
            inputs = self._columns.narrow(self._spec.random(seeds[kind] + number, sizes))
            return Batch(name, inputs, {}, sizes, tuple(f"row {row}" for row in range(sizes.get(BATCH, 1))))
        return None

    def _resized_rows(self, name: str, sizes: Mapping[str, int], first: int) -> Batch:
        own = self._at(sizes)
        rows = own or self._mixed_rows
        places = _arrange(self._spec, list(rows.values()), sizes.get(BATCH, 1), first)
        whole = batch_of(self._spec, list(rows.values()), sizes, places)
        row_names = tuple(f"{number}: {list(rows)[place]}" for number, place in enumerate(places))
        return Batch(name, whole, {}, sizes, row_names, kept=bool(own))

    def _at(self, sizes: Mapping[str, int]) -> Mapping[str, Row]:
        """Return the real rows that have these sizes themselves."""
        others = self._evaluation.others if self._evaluation is not None else ()
        shapes = {i.name: self._spec.shape(i.name, {**sizes, BATCH: 1}) for i in self._spec.inputs}
        fit = [row for row in others if all(row[name].shape == shape for name, shape in shapes.items())]
        return {f"real {number}": row for number, row in enumerate(fit)}

    def fresh(self, name: str, sizes: Mapping[str, int], draw: np.random.Generator) -> Batch:
        """Return random inputs outside every reference: varied real rows, or random values without any."""
        rows = list(self._mixed_rows.values())
        count = sizes.get(BATCH, 1)
        if rows:
            drawn = [random_variation(self._spec, rows, draw) for _ in range(count)]
            inputs = batch_of(self._spec, drawn, sizes, range(count))
        else:
            inputs = self._spec.random(int(draw.integers(1 << 31)), sizes)
        names = tuple(f"row {row}" for row in range(count))
        return self._packed(Batch(name, inputs, {}, sizes, names))

    @functools.cached_property
    def _own(self) -> Mapping[str, Row]:
        return real_rows(self._spec, self._evaluation) if self._evaluation is not None else {}

    @functools.cached_property
    def _columns(self) -> Columns:
        return Columns(self._spec, self._own)

    @functools.cached_property
    def _pictures(self) -> Mapping[str, Row]:
        return photograph_rows(self._spec, list(self._own.values()))

    @functools.cached_property
    def _examples(self) -> Mapping[str, Row]:
        """The model's own real rows, or photographs if it has none, or else a random row: what is changed."""
        names = list(self._own)
        chosen = {names[place]: self._own[names[place]] for place in self._first if place < len(names)}
        return {**chosen, **self._own} or self._pictures or {"random": self._spec.random(0)}

    @functools.cached_property
    def _mixed_rows(self) -> Mapping[str, Row]:
        """Real rows from all over the set in turn; empty if they cannot be put together."""
        real = {**self._own, **self._pictures}
        if not fits(self._spec, list(real.values())):
            return {}
        return {name: real[name] for name in (list(real)[k * REAL_STEP % len(real)] for k in range(len(real)))}


def stress_batch(spec: ModelSpec) -> Batch:
    """Return random, constant and extreme inputs at default sizes, which a runtime must survive."""
    rows: list[dict[str, Array]] = [spec.random(seed) for seed in range(RANDOM_ROWS)]
    names = [f"random {seed}" for seed in range(RANDOM_ROWS)]
    for name, share in (("all lowest", 0.0), ("all highest", 1.0), ("all middle", 0.5)):
        rows.append(spec.constant_inputs(share))
        names.append(name)
    for seed in range(2):
        arrays = spec.random(100 + seed)
        middles = {i.name: (i.low + i.high) / 2 for i in spec.inputs}
        rows.append(
            spec.conform(
                {i.name: np.where(arrays[i.name] > middles[i.name], i.high, i.low).astype(i.dtype) for i in spec.inputs}
            )
        )
        names.append(f"lowest or highest {seed}")
    inputs = {i.name: stack_runs(row[i.name] for row in rows) for i in spec.inputs}
    return Batch(STRESS, inputs, {}, {}, tuple(names), shapes=unusual_shapes(spec.inputs))


def applicable_batches(batches: tuple[Batch, ...], manifest: Manifest, images: int | None = None) -> tuple[Batch, ...]:
    """Return the batches whose sizes an artifact takes: a fixed axis takes its default only.

    If the batch axis is fixed, the rows of an unusual shape are run one at a time: single rows are recorded at the
    usual sizes only. If `images` limits the evaluation images, SAMPLED, SPARSELY or AMPLY limits the other kinds, and
    SAMPLED_SHAPE or AMPLE_SHAPE the shapes, except shapes of the grid that an artifact lists.
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
        # Each of its sizes may be a separate file, so each must run.
        listed = manifest.sizes and kind == GRID
        large = not listed and math.prod(batch.sizes.values()) > largest * one_image
        usual = images < FEW and all(axes[name].default == size for name, size in batch.sizes.items())
        if batch.sizes and (large or usual or few.get(kind, 0) >= most[kind]):
            continue
        few[kind] = few.get(kind, 0) + 1
        rows = images if kind == EVALUATION else most.get(kind, len(batch.names))
        # The truth of the evaluation set belongs to its first rows.
        spread_out = images != FEW and not batch.sizes and kind != EVALUATION
        sample.append(_spread(batch, rows) if spread_out else batch.first(rows))
    return tuple(sample)


def repeats(batch: Batch, timed: bool, images: int | None) -> int:
    """Return how many rows of a batch run twice, in another order.

    Args:
        batch: The batch as it runs.
        timed: True if the place is fast enough to be timed.
        images: Number of evaluation inputs that run; None for all.
    """
    if not batch.single or (images is not None and images < FEW and batch.name not in SPARSE):
        return 0
    if timed and images is None:
        return REPEATED
    return REPEATED_SPARSELY if images is not None and images < FEW else REPEATED_SLOW


def _spread(batch: Batch, rows: int) -> Batch:
    """Return so many rows of a batch at equal steps, the first and the last among them."""
    last = len(batch.names) - 1
    if last < rows:
        return batch
    return batch.select_rows([round(k * last / max(rows - 1, 1)) for k in range(rows)], batch.name)


def _applicable(batch: Batch, manifest: Manifest) -> Batch | None:
    """Return a batch as it runs on an artifact; None if the artifact does not take its sizes."""
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
    """Return the sizes of the axes other than the batch, in a batch of single rows."""
    sizes = usual_sizes(batch.inputs, {i.name: tuple(i.shape) for i in manifest.inputs}, len(batch.names))
    return {name: size for name, size in sizes.items() if name in manifest.axes}


def inputs_digest(batches: tuple[Batch, ...]) -> str:
    """Return the sha256 of all inputs: a reference belongs to these bytes."""
    hashed = hashlib.sha256()
    for batch in batches:
        for name, array in sorted(batch.inputs.items()):
            hashed.update(f"{batch.name}/{name} {array.dtype} {array.shape}\n".encode())
            hashed.update(np.ascontiguousarray(array).data)
    return hashed.hexdigest()


def same_inputs(first: tuple[Batch, ...], other: tuple[Batch, ...]) -> bool:
    """Return whether two sequences of batches have the same inputs."""

    # Arrays are compared directly, which is faster than two hashes.
    def equal(a: Array, b: Array) -> bool:
        return a is b or np.array_equal(a, b)

    def describe_inputs(batches: tuple[Batch, ...]) -> list[tuple[object, ...]]:
        return [(b.name, dict(b.sizes), dict(b.shapes)) for b in batches]

    return describe_inputs(first) == describe_inputs(other) and all(
        a.inputs.keys() == b.inputs.keys() and all(equal(a.inputs[k], b.inputs[k]) for k in a.inputs)
        for a, b in zip(first, other, strict=True)
    )


# Number of real inputs in each condition.
CONDITIONED = 4
# Pictures on each side of a mosaic.
CROWDS = (2, 3)
# Shares of its own contrast that a darkened, brightened or flattened input keeps.
STRENGTHS = (0.05, 0.25)
# Mean brightnesses as shares of an input's range: every band as wide as the step contains one.
LEVELS = tuple(round((step + 0.5) / 26, 4) for step in range(26))
# Share that a copy of another input keeps.
FAINTER = 0.6
# Share of a signal that a quiet and a faint one keep, and the distance of the values that a sparse one keeps.
QUIET, FAINT, SPARSE_STEP = 1e-3, 0.25, 17
Row = Mapping[str, Array]
Change = Callable[[Input, Array], Array]


def real_rows(spec: ModelSpec, evaluation: EvaluationSet) -> dict[str, Row]:
    """Return the rows of an evaluation set by name: the inputs of one run each."""
    shapes, runs = {i.name: i.shape for i in spec.inputs}, len(evaluation.names)
    return {
        name: {i: run_of(array, row, runs, shapes[i]) for i, array in evaluation.inputs.items()}
        for row, name in enumerate(evaluation.names)
    }


def photograph_rows(spec: ModelSpec, real: Sequence[Row]) -> dict[str, Row]:
    """Return a row for each shipped photograph if an input is a picture; other inputs come from real rows in turn."""
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


def changed_rows(spec: ModelSpec, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return rows in other light and in other structure, and with one input at its ends."""
    by_name = (
        {**_in_conditions(spec, rows), **_at_ends(spec, rows), **_crowds(spec, rows)} if _takes_pictures(spec) else {}
    )
    for name, row in list(rows.items())[:CONDITIONED]:
        changes = (*_structures(spec, row), *_silences(spec, row, signals=True))
        by_name |= {f"{name}, {change}": values for change, values in changes}
    # So many that each channel is judged over these rows.
    for name, row in list(rows.items())[:FEW_IN_CHANNELS]:
        faint = {i.name: (row[i.name] * FAINT).astype(i.dtype) for i in of_zero(spec, row, signals=True)}
        by_name |= {f"{name}, faint": {**row, **faint}} if faint else {}
    return by_name


def shifted_rows(spec: ModelSpec, rows: Mapping[str, Row], columns: Columns) -> dict[str, Row]:
    """Return what other light is for pictures, of a model without any: rows moved towards their ends."""
    if _takes_pictures(spec):
        return {}
    spread = columns.spread(rows)
    by_name = {**_in_conditions(spec, spread), **_at_ends(spec, spread), **levelled_rows(spec, spread)}
    if columns:
        by_name = {f"{name} in each column": columns.narrow(row) for name, row in by_name.items()}
    for name, row in list(rows.items())[:CONDITIONED]:
        by_name |= {f"{name}, {change}": values for change, values in _silences(spec, row, signals=False)}
    by_name |= rows_beyond(spec, rows) | drifting_rows(spec, rows) | paced_rows(spec, rows)
    return by_name | repeated_rows(spec, rows)


def _takes_pictures(spec: ModelSpec) -> bool:
    return any(i.kind == "image" for i in spec.inputs)


def _in_conditions(spec: ModelSpec, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return rows in each condition, other ones in each. All floating inputs change alike."""
    by_name: dict[str, Row] = {}
    items = list(rows.items())
    for number, (change, change_row) in enumerate(_conditions(spec, are_waves(spec, items))):
        for place in range(number * CONDITIONED, number * CONDITIONED + min(CONDITIONED, len(items))):
            name, row = items[place % len(items)]
            by_name[f"{name}, {change}"] = change_row(row)
    return by_name


def _crowds(spec: ModelSpec, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return mosaics of real pictures for a detector, so that its list has more entries than in any one of them."""
    items = list(rows.items())
    by_name: dict[str, Row] = {}
    for side in CROWDS if any(o.role == "detections" for o in spec.outputs) else ():
        some = [items[number % len(items)] for number in range(side * side)]
        name, row = some[0]
        pictures = {i.name: mosaic([r[i.name][0] for _, r in some]) for i in spec.inputs if i.kind == "image"}
        by_name[f"{name}, {side * side} pictures in one"] = {**row, **{n: array[None] for n, array in pictures.items()}}
    return by_name


def _at_ends(spec: ModelSpec, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return the first row with one input at its low, at its high and at zero."""
    name, row = next(iter(rows.items()))
    return {
        f"{name}, '{i.name}' all {value:g}": {**row, i.name: np.full_like(row[i.name], value)}
        for i in spec.inputs
        for value in dict.fromkeys((float(np.clip(0.0, i.low, i.high)), i.low, i.high))
    }


def _word_rows(spec: ModelSpec, queries: Mapping[str, Array], rows: Sequence[Row]) -> dict[str, Row]:
    """Return a row for each query, with the other inputs of real rows in turn."""
    by_name: dict[str, Row] = {}
    for number, (name, query) in enumerate(queries.items()):
        row = rows[number % len(rows)] if rows else spec.random(number)
        texts = {i.name: query.reshape(row[i.name].shape) for i in spec.inputs if i.kind == "query"}
        by_name[name] = {**row, **texts}
    return by_name


def levelled_rows(spec: ModelSpec, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return real rows in turn, moved towards their low or high end to each mean of LEVELS.

    Pictures are moved, or all floating inputs of a model without pictures; a model without floats has no rows.
    """
    moved = [i for i in spec.inputs if i.kind == "image"] or [i for i in spec.inputs if np.dtype(i.dtype).kind == "f"]
    items = list(rows.items())
    by_name: dict[str, Row] = {}
    least = LEAST_WAVE / 2 if are_waves(spec, items) else 0.0
    levels = [level for level in LEVELS if least <= level <= 1 - least]
    for number, level in enumerate(levels if moved else ()):
        name, row = items[number % len(items)]
        by_name[f"{name}, mean {level:g}"] = {**row, **{i.name: _of_mean(i, row[i.name], level) for i in moved}}
    return by_name


def _of_mean(i: Input, x: Array, level: float) -> Array:
    share = np.clip((x.astype(np.float64) - i.low) / (i.high - i.low), 0.0, 1.0)
    mean = share.mean()
    moved = share * level / mean if mean > level else 1 - (1 - share) * (1 - level) / (1 - mean)
    return _cast_to_declared(i, i.low + (i.high - i.low) * moved)


def _cast_to_declared(i: Input, values: Array) -> Array:
    """Return values in an input's dtype; integers are rounded."""
    return np.asarray(np.rint(values) if np.dtype(i.dtype).kind in "iu" else values).astype(i.dtype)


def _conditions(spec: ModelSpec, waves: bool) -> Iterator[tuple[str, Callable[[Row], Row]]]:
    """Yield changes of a row by name: of all its floating inputs, then of its pictures."""
    pictures = tuple(i for i in spec.inputs if i.kind == "image")
    floats = tuple(i for i in spec.inputs if np.dtype(i.dtype).kind == "f" or i.kind == "image")

    def of(inputs: Sequence[Input], change: Change) -> Callable[[Row], Row]:
        return lambda row: {**row, **{i.name: _cast_to_declared(i, change(i, row[i.name])) for i in inputs}}

    light = ("darkened to {:g}", "brightened to {:g}", "contrast {:g}")
    # Numbers of a table have no light.
    parts = [f"at {{:.0%}} of its distance from the {end}" for end in ("lowest", "highest", "middle")]
    for share in STRENGTHS if floats else ():
        for name, place in zip(light if pictures else parts, (0.0, 1.0, 0.5), strict=True):
            if not waves or share >= LEAST_WAVE or place == 0.5:
                yield name.format(share), of(floats, _towards(place, share))
    if not pictures:
        return
    yield "grey", of(pictures, lambda i, x: np.broadcast_to(x.mean(1, keepdims=True), x.shape))
    # Reddish pictures become bluish.
    yield "colours exchanged", of(pictures, lambda i, x: np.flip(x, 1))
    yield "flat", of(pictures, lambda i, x: np.broadcast_to(x.mean((2, 3), keepdims=True), x.shape))
    yield "contrast 2", of(pictures, _towards(0.5, 2.0))
    for name, share in (("black bars", 0.0), ("grey bars", 0.5)):
        yield name, of(pictures, functools.partial(_between_bars, share=share))
    for name, ends in (("lit from the right", (0.3, 1.0)), ("lit from the left", (1.0, 0.3))):
        yield name, of(pictures, functools.partial(_shade, ends=ends))
    if all(i.shape[1] == 3 for i in pictures):
        for name, shifts in (("reddish", (0.25, 0, -0.25)), ("bluish", (-0.25, 0, 0.25))):
            yield name, of(pictures, functools.partial(_tint, shifts=shifts))


def _between_bars(i: Input, x: Array, share: float) -> Array:
    """Return a picture whose upper and lower sixth have one brightness, as after a letterbox fit."""
    bar = x.shape[-2] // 6
    barred = x.astype(np.float64)
    barred[..., :bar, :] = barred[..., x.shape[-2] - bar :, :] = i.low + share * (i.high - i.low)
    return barred


def _shade(i: Input, x: Array, ends: tuple[float, float]) -> Array:
    return np.asarray(i.low + (x - i.low) * np.linspace(*ends, x.shape[-1]))


def _tint(i: Input, x: Array, shifts: tuple[float, float, float]) -> Array:
    return np.asarray(np.clip(x + (i.high - i.low) * np.reshape(shifts, (1, 3, 1, 1)), i.low, i.high))


def _structures(spec: ModelSpec, row: Row) -> Iterator[tuple[str, Row]]:
    """Yield a row with shorter texts, padded behind, before and within; inputs alike or exchanged; sorted ids."""
    tensors = [i for i in spec.inputs if i.kind == "tensor"]
    plain = [i for i in tensors if mask_axis(i, row[i.name]) is None]
    for mask in tensors:
        if (axis := mask_axis(mask, row[mask.name])) is not None:
            length = int(row[mask.name].sum(axis).flat[0])
            for part in sorted({1, length // 2} - {0, length}):
                shorter = _shorten(spec, row, mask.shape[axis], part)
                yield f"the first {part} of {length}", {**row, **shorter}
                moved = {
                    i.name: np.roll(shorter[i.name], -part, i.shape.index(mask.shape[axis]))
                    for i in spec.inputs
                    if i.name in shorter
                }
                yield f"the first {part} of {length}, at the end", {**row, **moved}
            if length > 2:
                values = np.array(row[mask.name])
                values[(slice(None),) * axis + (slice(length // 3, 2 * length // 3),)] = 0
                yield f"a gap in {length}", {**row, mask.name: values}
    for i, other in itertools.combinations(plain, 2):
        if replace(i, name=other.name) == other:
            yield f"'{other.name}' as '{i.name}'", {**row, other.name: row[i.name]}
            for one, copy in ((i.name, other.name), (other.name, i.name)) if np.dtype(i.dtype).kind == "f" else ():
                fainter = np.clip(row[one] * FAINTER, i.low, i.high).astype(i.dtype)
                yield f"'{copy}' as '{one}', fainter", {**row, copy: fainter}
            swap = {i.name: row[other.name], other.name: row[i.name]}
            yield f"'{other.name}' and '{i.name}' exchanged", {**row, **swap}
    # Flags are a mask, whatever its declaration says: no text is padded in front of its words.
    flags = [row[i.name] for i in tensors if np.dtype(i.dtype).kind in "iub" and row[i.name].max(initial=0) <= 1]
    for i in plain:
        values = row[i.name].copy()
        if np.dtype(i.dtype).kind in "iu" and values.ndim > 1 and values.max(initial=0) > 1:
            lengths = [int(mask.sum(-1).max()) for mask in flags if mask.shape == values.shape] or [values.shape[-1]]
            values[..., : min(lengths)].sort(axis=-1)
            yield f"'{i.name}' sorted", {**row, i.name: values}


def _silences(spec: ModelSpec, row: Row, signals: bool) -> Iterator[tuple[str, Row]]:
    """Yield a row with one input quiet, sparse or silent in part: a signal, or a short vector of numbers."""
    for i in of_zero(spec, row, signals):
        x = row[i.name]
        places = np.arange(x.size).reshape(x.shape)
        for change, kept in (
            ("quiet", QUIET),
            ("sparse", places % SPARSE_STEP == 0),
            ("silent at its start", places >= x.size // 3),
            ("silent at its end", places < 2 * x.size // 3),
        ):
            yield f"'{i.name}' {change}", {**row, i.name: (x * kept).astype(x.dtype)}


def _shorten(spec: ModelSpec, row: Row, axis: int | str, length: int) -> Row:
    """Return the inputs along an axis of which only the first values are left: zeros follow, as padding does."""
    shorter: dict[str, Array] = {}
    for i in spec.inputs:
        if axis in i.shape:
            array = np.array(row[i.name])
            array[(slice(None),) * i.shape.index(axis) + (slice(length, None),)] = max(i.low, 0)
            shorter[i.name] = array
    return shorter


def _towards(place: float, share: float) -> Change:
    """Return a change that scales the distance to a place between an input's low and high, within them."""

    def change(i: Input, x: Array) -> Array:
        goal = i.low + place * (i.high - i.low)
        scaled = goal + share * (x - goal)
        return scaled if share <= 1 else np.clip(scaled, i.low, i.high)

    return change


def _arrange(spec: ModelSpec, rows: Sequence[Row], count: int, first: int) -> list[int]:
    """Return the places of a batch's rows. A graph that mixes rows may be right unless some are alike, or in order.

    Batches of 3 and 8 have equal rows, of 4 the fullest texts, of 6 rows in the order of their first number; others
    follow each other in the set.
    """
    places = [(first + k) % len(rows) for k in range(count)]
    if count in (3, 8):
        return [places[k // 2 * 2] for k in range(count)]
    masks = [i.name for i in spec.inputs if mask_axis(i, rows[0][i.name]) is not None]
    if count == 4 and masks:
        return sorted(range(len(rows)), key=lambda place: -int(rows[place][masks[0]].sum()))[:count]
    floats = [i.name for i in spec.inputs if np.dtype(i.dtype).kind == "f"] if count == 6 else []
    return sorted(places, key=lambda place: float(rows[place][floats[0]].flat[0])) if floats else places


def batch_of(spec: ModelSpec, rows: Sequence[Row], sizes: Mapping[str, int], places: Sequence[int]) -> dict[str, Array]:
    """Return the rows at some places as one batch of other sizes: pictures resized, other inputs cropped or repeated.

    In a batch of 5, all rows share their ids, or else an input that no other one resembles, as in requests of one user.
    """
    parts = [rows[place] for place in places]
    if len(parts) == 5 and len(spec.inputs) > 1:
        shapes = [i.shape for i in spec.inputs]
        ids = [i.name for i in spec.inputs if np.dtype(i.dtype).kind in "iu" and i.kind == "tensor"]
        alone = [i.name for i in spec.inputs if shapes.count(i.shape) == 1][-1:]
        shared = {name: parts[0][name] for name in (ids if 0 < len(ids) < len(shapes) else alone)}
        parts = [{**row, **shared} for row in parts]
    padding = [padded_lengths(spec, rows[place], longer=bool(place % 2)) for place in places]
    arrays: dict[str, Array] = {}
    for i in spec.inputs:
        shape, count = spec.shape(i.name, sizes), len(parts) if BATCH in i.shape else 1
        each = zip(parts[:count], padding, strict=False)
        arrays[i.name] = one_run([_fit(i, row[i.name], shape, lengths) for row, lengths in each], i.shape)
    return spec.conform(arrays)


def _fit(i: Input, array: Array, shape: tuple[int, ...], lengths: Mapping[int | str, int]) -> Array:
    if i.kind == "image" and len(shape) == 4:
        return _cast_to_declared(i, resize(array, *shape[2:]))
    for axis, size in enumerate(shape):
        if i.shape[axis] != BATCH and array.shape[axis] != size:
            places, last = np.arange(size), array.shape[axis]
            length = lengths.get(i.shape[axis], last)
            # Repeated as a whole, a row that ends in padding would have a gap: it gets more padding, or its text again.
            array = np.take(array, places % length if length else np.minimum(places, last - 1), axis)
    return array


def padded_lengths(spec: ModelSpec, row: Row, longer: bool) -> dict[int | str, int]:
    """Return the axes along which a row ends in padding, as its mask says.

    Each has the length of what stands before the padding if that is to be repeated in longer rows, else 0.
    """
    masks = ((i, row[i.name], mask_axis(i, row[i.name])) for i in spec.inputs)
    return {
        i.shape[axis]: int(values.sum(axis).flat[0]) if longer else 0
        for i, values, axis in masks
        if axis is not None and not np.take(values, -1, axis).any()
    }


def fits(spec: ModelSpec, rows: Sequence[Row]) -> bool:
    """Return whether real rows can be put together: there are some, and each input has its axes."""
    return bool(rows) and all(rows[0][i.name].ndim == len(i.shape) for i in spec.inputs)
