"""The grid of shapes on which dynamic axes are proved: only proved axes are advertised."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.model.spec import Axis

BATCHES = (1, 2, 3, 8)
MOST_DIAGONAL, MOST_BATCHES = 32, 8
"""Number of shapes on the diagonal, and of batches at the default sizes. The 27 sizes of arr-coc's axes all occur."""
BANDS = 5
"""Bands per axis in the covering array; a prime, so that BANDS squared shapes cover all pairs."""


def grid(axes: Mapping[str, Axis]) -> tuple[Mapping[str, int], ...]:
    """Return the shapes at which dynamic axes are proved: batch 1, 2, 3, 8 with mixed sizes of the other axes.

    The other axes take their default, minimum, maximum and an uneven size. Every batch is combined with the default and
    every size with two batches, which limits the grid to about twelve shapes.
    """
    batches = sorted({_nearest(axes.get("batch", Axis(1, 1, 1)), batch) for batch in BATCHES})
    others = {name: _sizes(axis) for name, axis in axes.items() if name != "batch"}
    rows = [dict(zip(others, sizes, strict=True)) for sizes in _mixed_sizes(list(others.values()))] or [{}]
    shapes = [{"batch": b} | rows[0] for b in batches]
    shapes += [{"batch": b} | row for i, row in enumerate(rows[1:]) for b in {batches[i % len(batches)], batches[0]}]
    return tuple({k: v for k, v in shape.items() if k in axes} for shape in shapes)


def _nearest(axis: Axis, size: int) -> int:
    """Return the next smaller size of the axis, or its smallest."""
    return max(min(size, axis.maximum) // axis.multiple_of * axis.multiple_of, axis.minimum)


def _sizes(axis: Axis) -> tuple[int, ...]:
    largest = axis.sizes[-1]
    return (axis.default, axis.minimum, largest, min(axis.default + axis.multiple_of, largest))


def _mixed_sizes(sizes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Mix equal sizes with sizes shifted against each other, so that height and width differ in both directions."""
    if not sizes:
        return []
    straight = list(zip(*sizes, strict=True))
    shifted = [tuple(s[(i + k) % len(s)] for k, s in enumerate(sizes)) for i in range(len(sizes[0]))]
    return list(dict.fromkeys(straight + shifted))


def fixed_sizes(axes: Mapping[str, Axis]) -> tuple[Mapping[str, int], ...]:
    """Return sizes of the axes other than the batch in the grid's shapes with the default batch, the defaults first.

    An artifact may be fixed at one of these, since the reference has outputs there. Empty without other axes.
    """
    usual = axes["batch"].default if "batch" in axes else None
    shapes = [{name: size for name, size in shape.items() if name != "batch"} for shape in grid(axes)
              if shape.get("batch") == usual]  # fmt: skip
    return tuple(dict(row) for row in dict.fromkeys(tuple(shape.items()) for shape in shapes) if row)


def named_sizes(axes: Mapping[str, Axis]) -> dict[str, Mapping[str, int]]:
    """Return `fixed_sizes` by their names in options."""
    return {size_text(sizes): sizes for sizes in fixed_sizes(axes)}


def size_text(sizes: Mapping[str, int]) -> str:
    """Return sizes in an option's notation: height 320 and width 256 are "320x256"."""
    return "x".join(str(size) for size in sizes.values())


def example_sizes(axes: Mapping[str, Axis]) -> dict[str, int]:
    """Return sizes for capture, all different and none of them 1."""
    # torch.export specialises size 1, and could merge equal sizes into one symbol.
    return {
        name: min(max(axis.default, 2) + position * axis.multiple_of, axis.sizes[-1])
        for position, (name, axis) in enumerate(axes.items())
    }


def shapes_between(axes: Mapping[str, Axis]) -> tuple[Mapping[str, int], ...]:
    """Return shapes outside the grid, alternating between three kinds.

    - The diagonal: all axes but the batch at the same share of their range, so that equal axes make squares; every size
      of an axis with up to MOST_DIAGONAL sizes occurs.
    - The ends: the default sizes at each batch (at most MOST_BATCHES of them), the largest batch at the smallest and at
      the largest sizes, and each axis at its largest while the others are at their smallest.
    - A covering array: each axis has BANDS bands of sizes. For any two axes, including the batch, every pair of bands
      occurs (an orthogonal array of strength two, Bush's construction, for up to BANDS + 1 axes), alternating between
      the round size of a band and another one.
    """
    kinds = (_diagonal(axes), _ends(axes), _covering(axes))
    shapes = [shape for each in itertools.zip_longest(*kinds) for shape in each if shape is not None]
    grid_shapes = [tuple(sorted(shape.items())) for shape in grid(axes)]
    unique = {tuple(sorted(shape.items())): shape for shape in shapes}
    return tuple({name: shape[name] for name in axes} for key, shape in unique.items() if key not in grid_shapes)


def _diagonal(axes: Mapping[str, Axis]) -> list[dict[str, int]]:
    sizes = {name: axis.sizes for name, axis in axes.items() if name != "batch"}
    count = min(max(map(len, sizes.values()), default=0), MOST_DIAGONAL)
    batch = {"batch": axes["batch"].default} if "batch" in axes else {}

    def at(every: range, number: int) -> int:
        return every[round(number * (len(every) - 1) / max(count - 1, 1))]

    return [batch | {name: at(every, number) for name, every in sizes.items()} for number in range(count)]


def _ends(axes: Mapping[str, Axis]) -> list[dict[str, int]]:
    sizes = {name: axis.sizes for name, axis in axes.items()}
    others = [name for name in axes if name != "batch"]
    usual = {name: axes[name].default for name in axes}
    batches = _some(sizes.get("batch", range(0)), MOST_BATCHES)
    shapes = [usual | {"batch": batch} for batch in batches]
    if batches:
        shapes += [{"batch": batches[-1]} | {name: sizes[name][end] for name in others} for end in (0, -1)]
    for largest in others if len(others) > 1 else ():
        shapes.append(usual | {name: sizes[name][-1 if name == largest else 0] for name in others})
    return shapes


def _covering(axes: Mapping[str, Axis]) -> list[dict[str, int]]:
    rows = list(itertools.product(range(BANDS), repeat=2))
    columns = {}
    for number, (name, axis) in enumerate(axes.items()):
        bands = [list(map(int, band)) for band in np.array_split(axis.sizes, BANDS) if len(band)]
        cycles = [itertools.cycle(_round_first(band)) for band in bands]
        # The first column is one coordinate of a row, each other column a line through both.
        factor = number - 1
        levels = [i if number == 0 else (j + factor * i) % BANDS for i, j in rows]
        columns[name] = [next(cycles[level % len(cycles)]) for level in levels]
    return [{name: columns[name][row] for name in axes} for row in range(len(rows))] if axes else []


def _round_first(sizes: list[int]) -> list[int]:
    """Return the roundest size (most factors of two), as people choose sizes, alternating with each other size."""
    roundest, *others = sorted(sizes, key=lambda size: -(size & -size))
    return [size for other in others for size in (roundest, other)] or [roundest]


def _some(sizes: range, most: int) -> Sequence[int]:
    """Return at most so many sizes at equal steps, including the first and the last."""
    if len(sizes) <= most:
        return sizes
    return [sizes[round(k * (len(sizes) - 1) / (most - 1))] for k in range(most)]
