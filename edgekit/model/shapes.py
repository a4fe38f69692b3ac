"""The grid of shapes on which dynamic axes are proved: an axis that is not proved is never advertised."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.model.spec import Axis

BATCHES = (1, 2, 3, 8)


def grid(axes: Mapping[str, Axis]) -> tuple[Mapping[str, int], ...]:
    """Shapes at which dynamic axes are proved: batch 1, 2, 3, 8 with several sizes of the other axes, mixed.

    The other axes take their default, minimum, maximum and an uneven size; every batch meets the default and every
    size meets two batches, which keeps the grid near twelve shapes.
    """
    batches = sorted({min(max(b, a.minimum), a.maximum) for a in [axes.get("batch", Axis(1, 1, 1))] for b in BATCHES})
    others = {name: _sizes(axis) for name, axis in axes.items() if name != "batch"}
    rows = [dict(zip(others, sizes, strict=True)) for sizes in _mixed(list(others.values()))] or [{}]
    shapes = [{"batch": b} | rows[0] for b in batches]
    shapes += [{"batch": b} | row for i, row in enumerate(rows[1:]) for b in {batches[i % len(batches)], batches[0]}]
    return tuple({k: v for k, v in shape.items() if k in axes} for shape in shapes)


def _sizes(axis: Axis) -> tuple[int, ...]:
    step = axis.multiple_of
    largest = axis.maximum // step * step
    uneven = min(axis.default + step, axis.maximum)
    return (axis.default, axis.minimum, largest, uneven)


def _mixed(sizes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Equal sizes, then sizes shifted against each other, so that height and width differ in both directions."""
    if not sizes:
        return []
    straight = list(zip(*sizes, strict=True))
    shifted = [tuple(s[(i + k) % len(s)] for k, s in enumerate(sizes)) for i in range(len(sizes[0]))]
    return list(dict.fromkeys(straight + shifted))


def example_sizes(axes: Mapping[str, Axis]) -> dict[str, int]:
    """Sizes to capture with: 1 is special to torch.export, and equal sizes could be taken for one symbol."""
    return {name: _example(axis, position) for position, (name, axis) in enumerate(axes.items())}


def _example(axis: Axis, position: int) -> int:
    step = axis.multiple_of
    wanted = max(axis.default, 2) + position * step
    return min(wanted, axis.maximum // step * step)
