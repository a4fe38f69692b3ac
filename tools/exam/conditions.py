"""Faults that show only under a condition: a size, a batch, a brightness, a chance, a value of the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from edgekit.model.spec import ModelSpec
from tests.core.judge.seeded.graph import Change, Graph
from tools.exam.faults import Fault, When, backwards

Mask = Callable[[Graph, str], str]
"""Makes a boolean tensor that says where an output is wrong; takes the output."""
Break = Callable[[Graph, str], str]
BRIGHT = ((0.0, 0.15), (0.3, 0.34), (0.6, 0.64), (0.85, 1.0))
"""Ranges of the mean of the first input, as shares of its range."""
CHANCES = (0.02, 0.1, 0.5)
QUANTILES = (0.8, 0.95)
"""Of the largest value of the first output, over fresh inputs: above it the output is wrong."""
FACTORS = {"halved": 0.5, "reversed": None, "negated": -1.0, "NaN": np.nan, "zero": 0.0}
"""Wrong outputs: times a factor, or reversed along the last axis."""


def late_rows() -> Iterator[tuple[str, When]]:
    """Yield conditions on a row's number in its run."""
    for number in (1, 3, 6):
        yield f"from row {number} on", When(rows=8, first=number)


def in_light(spec: ModelSpec) -> Iterator[tuple[str, When]]:
    """Yield conditions on the mean of pictures alone: other inputs have no light that changes their mean."""
    for low, high in BRIGHT if spec.inputs[0].kind == "image" else ():
        yield f"at brightness {low:g} to {high:g}", When(brightness=(low, high))


def above(quantiles: Sequence[float]) -> Iterator[tuple[str, When]]:
    """Yield conditions on the largest value of the first output, for each of QUANTILES."""
    for share, value in zip(QUANTILES, quantiles, strict=True):
        yield f"above its quantile {share:g}", When(above=value)


def conditional(spec: ModelSpec, ranks: Sequence[int], quantiles: Sequence[float]) -> Iterator[Fault]:
    """Every condition with every kind of wrong answer, on the first output.

    Args:
        spec: The model.
        ranks: Axes of each output.
        quantiles: Of the largest value of the first output, for each of QUANTILES.
    """
    output, rank = spec.outputs[0].name, ranks[0]
    late, light, values = (
        [(word, _mask_of(spec, when, rank), when) for word, when in some]
        for some in (late_rows(), in_light(spec), above(quantiles))
    )
    conditions = (*_sizes(spec), *_rows(), *late, *light, *_chances(), *values)
    for word, mask, when in conditions:
        for how, wrong in _breaks(rank).items():
            yield Fault("conditions", f"{output} {how} {word}", masked(output, mask, wrong), when)


def masked(output: str, mask: Mask, wrong: Break) -> Change:
    """Where the mask says so, an output is another one, also for what is computed from it."""
    return lambda g: g.wrap(output, lambda x: g.add("Where", mask(g, x), wrong(g, x), x))


def _breaks(rank: int) -> dict[str, Break]:
    def times(factor: float) -> Break:
        return lambda g, x: g.add("Mul", x, np.float32(factor))

    return {word: backwards(rank - 1) if factor is None else times(factor) for word, factor in FACTORS.items()}


def _sizes(spec: ModelSpec) -> Iterator[tuple[str, Mask, When]]:
    for place, name in enumerate(spec.inputs[0].shape):
        if isinstance(name, str) and name != "batch":
            axis = spec.axes[name]
            for size in range(axis.minimum, axis.maximum + 1, axis.multiple_of):
                if size != axis.default:
                    yield f"at {name} {size}", _size_is(spec, place, size), When(sizes={name: size})


def _mask_of(spec: ModelSpec, when: When, rank: int) -> Mask:
    if when.brightness is not None:
        return _mean_in(spec, *when.brightness)
    return _row_from(when.first, rank) if when.above is None else _largest_above(when.above, rank)


def _rows() -> Iterator[tuple[str, Mask, When]]:
    for rows in range(2, 9):
        yield f"in batches of {rows}", _rows_are(rows), When(rows=rows)


def _chances() -> Iterator[tuple[str, Mask, When]]:
    for share in CHANCES:
        yield f"by chance {share:g}", _by_chance(share), When()


def _size_is(spec: ModelSpec, place: int, size: int) -> Mask:
    name = spec.inputs[0].name
    return lambda g, x: g.add("Equal", g.add("Shape", name, start=place, end=place + 1), np.array([size]))


def _rows_are(rows: int) -> Mask:
    return lambda g, x: g.add("Equal", g.add("Shape", x, start=0, end=1), np.array([rows]))


def _row_from(number: int, rank: int) -> Mask:
    def mask(g: Graph, x: str) -> str:
        count = g.add("Squeeze", g.add("Shape", x, start=0, end=1))
        late = g.add("GreaterOrEqual", g.add("Range", np.int64(0), count, np.int64(1)), np.int64(number))
        return g.add("Reshape", late, np.array([-1, *[1] * (rank - 1)]))

    return mask


def _mean_in(spec: ModelSpec, low: float, high: float) -> Mask:
    """By the mean of a whole run, so that the shape of the mask fits every output."""
    given = spec.inputs[0]
    least, most = (np.float32(given.low + share * (given.high - given.low)) for share in (low, high))

    def mask(g: Graph, x: str) -> str:
        mean = g.add("ReduceMean", given.name, keepdims=0)
        return g.add("And", g.add("GreaterOrEqual", mean, least), g.add("LessOrEqual", mean, most))

    return mask


def _by_chance(share: float) -> Mask:
    """A seeded draw each run: which of a session's calls are wrong depends on their number."""

    def mask(g: Graph, x: str) -> str:
        return g.add("Less", g.add("RandomUniform", shape=[1], seed=7.0), np.float32(share))

    return mask


def _largest_above(value: float, rank: int) -> Mask:
    def mask(g: Graph, x: str) -> str:
        return g.add("Greater", g.add("ReduceMax", x, np.arange(1, rank), keepdims=1), np.float32(value))

    return mask
