"""The grid of shapes on which dynamic axes are proved: an axis that is not proved is never advertised."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgekit.model.spec import Axis

BATCHES = (1, 2, 3, 8)
LEAST_BETWEEN, MOST_BETWEEN = 12, 32
"""Shapes between those of the grid. The axes of arr-coc have 27 sizes: each is met."""
SEED = 2026


def grid(axes: Mapping[str, Axis]) -> tuple[Mapping[str, int], ...]:
    """Shapes at which dynamic axes are proved: batch 1, 2, 3, 8 with several sizes of the other axes, mixed.

    The other axes take their default, minimum, maximum and an uneven size; every batch meets the default and every
    size meets two batches, which keeps the grid near twelve shapes.
    """
    batches = sorted({_nearest(axes.get("batch", Axis(1, 1, 1)), batch) for batch in BATCHES})
    others = {name: _sizes(axis) for name, axis in axes.items() if name != "batch"}
    rows = [dict(zip(others, sizes, strict=True)) for sizes in _mixed(list(others.values()))] or [{}]
    shapes = [{"batch": b} | rows[0] for b in batches]
    shapes += [{"batch": b} | row for i, row in enumerate(rows[1:]) for b in {batches[i % len(batches)], batches[0]}]
    return tuple({k: v for k, v in shape.items() if k in axes} for shape in shapes)


def _nearest(axis: Axis, size: int) -> int:
    """A size of the axis: the next below, or its smallest."""
    return max(min(size, axis.maximum) // axis.multiple_of * axis.multiple_of, axis.minimum)


def _sizes(axis: Axis) -> tuple[int, ...]:
    step = axis.multiple_of
    largest = axis.maximum // step * step
    uneven = min(axis.default + step, largest)
    return (axis.default, axis.minimum, largest, uneven)


def _mixed(sizes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Equal sizes, then sizes shifted against each other, so that height and width differ in both directions."""
    if not sizes:
        return []
    straight = list(zip(*sizes, strict=True))
    shifted = [tuple(s[(i + k) % len(s)] for k, s in enumerate(sizes)) for i in range(len(sizes[0]))]
    return list(dict.fromkeys(straight + shifted))


def fixed_sizes(axes: Mapping[str, Axis]) -> tuple[Mapping[str, int], ...]:
    """Sizes of the axes beside the batch that the grid asks at the batch's default, that of the defaults first.

    An artifact may be fixed at one of these, since the reference holds answers there. Empty where there is no such
    axis.
    """
    usual = axes["batch"].default if "batch" in axes else None
    shapes = [{name: size for name, size in shape.items() if name != "batch"} for shape in grid(axes)
              if shape.get("batch") == usual]  # fmt: skip
    return tuple(dict(row) for row in dict.fromkeys(tuple(shape.items()) for shape in shapes) if row)


def named_sizes(axes: Mapping[str, Axis]) -> dict[str, Mapping[str, int]]:
    """`fixed_sizes` by the names that options have for them."""
    return {size_text(sizes): sizes for sizes in fixed_sizes(axes)}


def size_text(sizes: Mapping[str, int]) -> str:
    """Sizes as an option names them: height 320 and width 256 are "320x256"."""
    return "x".join(str(size) for size in sizes.values())


def example_sizes(axes: Mapping[str, Axis]) -> dict[str, int]:
    """Sizes to capture with: 1 is special to torch.export, and equal sizes could be taken for one symbol."""
    return {name: _example(axis, position) for position, (name, axis) in enumerate(axes.items())}


def _example(axis: Axis, position: int) -> int:
    step = axis.multiple_of
    target = max(axis.default, 2) + position * step
    return min(target, axis.maximum // step * step)


def between(axes: Mapping[str, Axis]) -> tuple[Mapping[str, int], ...]:
    """Seeded shapes that the grid leaves out: every size of an axis of up to MOST_BETWEEN sizes is met by one.

    A Latin hypercube: as many shapes as the longest axis has sizes (at least LEAST_BETWEEN, at most MOST_BETWEEN), and
    along each axis every size as often as any other. Large batches go with small sizes of the other axes, so that no
    shape is much larger than those of the grid. An axis with few sizes gives fewer shapes than LEAST_BETWEEN.
    """
    sizes = {name: _all_sizes(axis) for name, axis in axes.items()}
    count = min(max([LEAST_BETWEEN, *map(len, sizes.values())]), MOST_BETWEEN)
    draw = np.random.Generator(np.random.PCG64(SEED))
    columns = {name: _spread(unique, count, draw) for name, unique in sizes.items()}
    others = [name for name in columns if name != "batch"]
    rows = sorted(zip(*(columns[name] for name in others), strict=True), key=math.prod) if others else []
    batches = sorted(columns["batch"], reverse=True) if "batch" in columns else []
    shapes = []
    for number in range(count):
        shape = dict(zip(others, rows[number], strict=True)) if others else {}
        shapes.append(({"batch": batches[number]} if batches else {}) | shape)
    known = [tuple(sorted(shape.items())) for shape in grid(axes)]
    unique = {tuple(sorted(shape.items())): shape for shape in shapes}
    return tuple({n: shape[n] for n in axes} for key, shape in unique.items() if key not in known)


def _all_sizes(axis: Axis) -> list[int]:
    first = -(-axis.minimum // axis.multiple_of) * axis.multiple_of
    return list(range(first, axis.maximum + 1, axis.multiple_of))


def _spread(sizes: list[int], count: int, draw: np.random.Generator) -> list[int]:
    """Sizes in seeded order, every one as often as any other, as far as so many can be."""
    several = [sizes[i % len(sizes)] for i in range(count)] if len(sizes) <= count else []
    places = np.floor((np.arange(count) + draw.random(count)) * len(sizes) / count).astype(int)
    chosen = several or [sizes[place] for place in places]
    return [chosen[place] for place in draw.permutation(count)]
