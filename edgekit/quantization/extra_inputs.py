"""Inputs beside the real ones at default sizes on which quantized graphs are compared: what the gate asks as well."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from edgekit.model.input_rows import BATCH, stacked
from edgekit.model.shapes import grid
from edgekit.model.spec import ModelSpec
from edgekit.quantization.calibration import Samples
from edgekit.reference.batches import REAL_STEP, RESIZED, Batch, stress_batch
from edgekit.reference.variations import CONDITIONED, batch_of, changed_rows, fits, photograph_rows

AT_A_SHAPE = 4
"""Real inputs at each shape: a graph that holds at default sizes may lose the order of a small map."""


def extra_inputs(
    spec: ModelSpec, samples: Samples, dynamic: Collection[str], more: Sequence[Mapping[str, int]] = ()
) -> tuple[Batch, ...]:
    """Random, extreme and changed inputs, and real ones at the shapes of the grid.

    Args:
        spec: The model.
        samples: The first are changed (dark, bright, grey, flat ...), the last are resized.
        dynamic: The axes whose sizes the graph leaves open.
        more: Shapes beside those of the grid.
    """
    return (_extremes(spec, samples), *at_shapes(spec, samples, dynamic, (*grid(spec.axes), *more)))


def _extremes(spec: ModelSpec, samples: Samples) -> Batch:
    odd = stress_batch(spec)
    first = samples.part(0, CONDITIONED)
    own = dict(zip(first.names, first.batches(1), strict=True))
    changed = changed_rows(spec, own, photograph_rows(spec, list(own.values())))
    rows = [*odd.rows(), *changed.values()]
    inputs = {i.name: stacked(row[i.name] for row in rows) for i in spec.inputs}
    return replace(odd, inputs=inputs, names=(*odd.names, *changed))


def at_shapes(
    spec: ModelSpec,
    samples: Samples,
    dynamic: Collection[str],
    shapes: Sequence[Mapping[str, int]],
    rows_a_shape: int = AT_A_SHAPE,
) -> tuple[Batch, ...]:
    """Real inputs at shapes, each with its own; a batch of one, since batches do not change what a row is answered.

    Args:
        spec: The model.
        samples: What is resized, the last first.
        dynamic: The axes whose sizes the graph leaves open.
        shapes: Those with default sizes are left out.
        rows_a_shape: Real inputs at each.
    """
    rows = samples.batches(1)
    batches: list[Batch] = []
    if not fits(spec, rows):
        return ()
    for sizes in _open_sizes(spec, dynamic, shapes):
        for _ in range(rows_a_shape):
            number = len(batches)
            first = len(rows) - 1 - number * REAL_STEP % len(rows)
            names = (samples.names[first],)
            batches.append(Batch(f"{RESIZED}-{number:02d}", batch_of(spec, rows, sizes, first), {}, sizes, names))
    return tuple(batches)


def _open_sizes(
    spec: ModelSpec, dynamic: Collection[str], shapes: Sequence[Mapping[str, int]]
) -> list[Mapping[str, int]]:
    """The shapes with other than default sizes, without their batches."""
    default = {name: axis.default for name, axis in spec.axes.items()} | {BATCH: 1}
    unique: list[Mapping[str, int]] = []
    for shape in shapes:
        sizes = {name: shape[name] if name in dynamic and name != BATCH else default[name] for name in shape}
        if sizes not in unique and any(sizes[name] != default[name] for name in sizes):
            unique.append(sizes)
    return unique
