"""A complex tensor that is zero outside of some blocks, as pairs of real numbers, [..., 2].

A Fourier neural operator puts its first coefficients into zeros, which need not be multiplied when it transforms back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Run = tuple[int, int]
"""Neighbouring indices along an axis: the first, and the one after the last."""


@dataclass(frozen=True)
class Block:
    """A part of a complex tensor.

    Attributes:
        pairs: Its real and imaginary parts, [..., 2].
        runs: Where it lies along an axis, by axis; along any other it is as long as the tensor.
    """

    pairs: torch.Tensor
    runs: Mapping[int, Run] = field(default_factory=dict)


@dataclass(frozen=True)
class Blocks:
    """A complex tensor of a shape that is zero outside of its blocks; none of them overlap."""

    shape: tuple[Any, ...]
    blocks: tuple[Block, ...] = ()

    def whole(self) -> torch.Tensor:
        """All of it as pairs, [*shape, 2]."""
        import torch

        return self._total(self.blocks) if self.blocks else torch.zeros(*self.shape, 2)

    def along(self, axis: int) -> tuple[Block, ...]:
        """Blocks that are as long as the tensor along all other axes."""
        by_run: dict[Run, list[Block]] = {}
        for block in self.blocks:
            by_run.setdefault(block.runs.get(axis, (0, self.shape[axis])), []).append(block)
        return tuple(Block(self._total(blocks, axis), {axis: run}) for run, blocks in by_run.items())

    def _total(self, blocks: Iterable[Block], but: int = -1) -> torch.Tensor:
        import torch

        total: Any = None
        for block in blocks:
            pads = [0, 0]
            for axis in reversed(range(len(self.shape))):
                inner = axis in block.runs and axis != but
                start, stop = block.runs[axis] if inner else (0, 0)
                pads += [start, self.shape[axis] - stop] if inner else [0, 0]
            full = torch.nn.functional.pad(block.pairs, pads) if any(pads) else block.pairs
            total = full if total is None else total + full
        return total  # type: ignore[no-any-return]


def as_blocks(x: Any) -> Blocks:
    """Pairs as one block."""
    return x if isinstance(x, Blocks) else Blocks(tuple(x.shape[:-1]), (Block(x),))


def as_pairs(x: Any) -> Any:
    """Blocks as pairs, also those in a list; anything else as it is."""
    if isinstance(x, list | tuple):
        return [as_pairs(each) for each in x]
    return x.whole() if isinstance(x, Blocks) else x


def part(x: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Neighbours along an axis, as `aten.slice` takes them."""
    import torch

    shape = as_blocks(x).shape
    axis %= len(shape)
    if _is_all(start, end, step):
        return x
    run = _run(shape[axis], start, end, step)
    if not isinstance(x, Blocks) or run is None:
        return torch.ops.aten.slice.Tensor(as_pairs(x), axis, start, end, step)
    kept = []
    for block in x.blocks:
        first, last = block.runs.get(axis, (0, shape[axis]))
        inner = max(first, run[0]), min(last, run[1])
        if inner[0] < inner[1]:
            pairs = narrowed(block.pairs, axis, inner[0] - first, inner[1] - inner[0])
            kept.append(_placed(block, pairs, axis, inner[0] - run[0], run[1] - run[0]))
    return Blocks(_resized(shape, axis, run[1] - run[0]), tuple(kept))


def with_part(x: Any, source: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """A tensor with other neighbours along an axis, as `aten.slice_scatter` puts them there."""
    import torch

    x = as_blocks(x)
    axis %= len(x.shape)
    if _is_all(start, end, step):
        return source
    run = _run(x.shape[axis], start, end, step)
    if run is None:
        return torch.ops.aten.slice_scatter.default(as_pairs(x), as_pairs(source), axis, start, end, step)
    return joined([part(x, axis, 0, run[0]), source, part(x, axis, run[1], x.shape[axis])], axis)


def joined(all_of: Sequence[Any], axis: int = 0) -> Any:
    """Tensors one after the other, as `aten.cat` puts them."""
    import torch

    parts = [as_blocks(x) for x in all_of]
    shape = parts[0].shape
    axis %= len(shape)
    lengths = [each.shape[axis] for each in parts]
    full = [len(each.blocks) == 1 and not each.blocks[0].runs for each in parts]
    if all(full) or not all(isinstance(length, int) for length in lengths):
        return torch.cat(as_pairs(all_of), axis)
    offset, blocks = 0, []
    for each, length in zip(parts, lengths, strict=True):
        for block in each.blocks:
            start, _ = block.runs.get(axis, (0, length))
            blocks.append(_placed(block, block.pairs, axis, start + offset, sum(lengths)))
        offset += length
    return Blocks(_resized(shape, axis, offset), tuple(blocks))


def padded(x: Any, sizes: Sequence[int]) -> Any:
    """Zeros before and after, or cut there, as `aten.constant_pad_nd` does from the last axis on."""
    x = as_blocks(x)
    for axis, before, after in zip(range(len(x.shape))[::-1], sizes[::2], sizes[1::2], strict=False):
        if before or after:
            kept = part(x, axis, max(-before, 0), x.shape[axis] - max(-after, 0)) if min(before, after) < 0 else x
            first, last = (Blocks(_resized(x.shape, axis, max(side, 0))) for side in (before, after))
            x = as_blocks(joined([first, kept, last], axis))
    return x


def shifted(inverse: bool) -> Callable[..., Any]:
    """`fft_fftshift` or its inverse: the halves of axes change places."""

    def shift(x: Any, axes: Any = None) -> Any:
        shape = as_blocks(x).shape
        for axis in range(len(shape)) if axes is None else axes:
            cut = (shape[axis] + int(not inverse)) // 2
            x = joined([part(x, axis, cut, shape[axis]), part(x, axis, 0, cut)], axis)
        return x

    return shift


def spread(block: Block, shape: Sequence[Any], axis: int, length: int, runs: Iterable[Run]) -> Blocks:
    """What lies one after the other in a block -> where it belongs along an axis of this length."""
    blocks, done = [], 0
    for start, stop in runs:
        pairs = narrowed(block.pairs, axis, done, stop - start)
        blocks.append(_placed(block, pairs, axis, start, length))
        done += stop - start
    return Blocks(_resized(shape, axis, length), tuple(blocks))


def narrowed(x: torch.Tensor, axis: int, start: int, length: int) -> torch.Tensor:
    """Neighbours along an axis; the tensor itself where these are all."""
    return x if length == x.shape[axis] else x.narrow(axis, start, length)


def _placed(block: Block, pairs: torch.Tensor, axis: int, start: int, length: int) -> Block:
    """A block that begins at an index of an axis of this length."""
    runs = {along: run for along, run in block.runs.items() if along != axis}
    whole = start == 0 and pairs.shape[axis] == length
    return Block(pairs, runs if whole else runs | {axis: (start, start + pairs.shape[axis])})


def _resized(shape: Sequence[Any], axis: int, length: Any) -> tuple[Any, ...]:
    return *shape[:axis], length, *shape[axis + 1 :]


def _is_all(start: Any, end: Any, step: int) -> bool:
    """Whether limits leave nothing out, of whatever length."""
    return step == 1 and start in (None, 0) and (end is None or (isinstance(end, int) and end == sys.maxsize))


def _run(length: Any, start: Any, end: Any, step: int) -> Run | None:
    """What a slice takes of an axis of this length; None where it has steps or a length is open."""
    if step != 1 or not all(isinstance(number, int | None) for number in (length, start, end)):
        return None
    first, last, _ = slice(start, end).indices(length)
    return first, max(first, last)
