"""Fourier transforms along axes of fixed length, as products with tables of cosines and sines.

Few converters have a Fourier transform; all have products, and a product computes no more coefficients than are read.
The same way serves ONNX, which has a transform. In ONNX Runtime 1.31 on two busy cores, 256 rows, products took 0.12 of
the time of its operator for 64 values, 0.24 for 256, 0.58 for 1,024 (12 coefficients of them: 0.016), 0.09 for 1,000,
where its operator errs by 9e-5 and the product by 3e-7; only for 4,096 was the product the slower one, 2.2 times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.model import complex_numbers  # whose module imports this one: its names are there once both are

if TYPE_CHECKING:
    import torch

    from edgekit.model.complex_numbers import Blocks, Run

LARGEST = 1 << 23
"""Numbers in a table, 34 MB: of 1,448 complex values or 2,895 real ones, or of longer ones with few coefficients."""

RUNS = 2
"""The lowest and the highest frequencies; coefficients that lie in more runs are all computed."""

NAMES = tuple(f"fft_{name}{axes}" for name in ("fft", "ifft", "rfft", "irfft") for axes in ("", "2", "n"))
"""The transforms, as PyTorch's operators are called."""


PARTS = ("_fft_r2c", "_fft_c2r", "_fft_c2c")
"""What they consist of where a target takes them apart."""


class TooLargeError(Exception):
    """A table would have more numbers than `LARGEST`."""


@dataclass(frozen=True)
class Wave:
    """A transform along one axis: its length, its direction, its factor, and whether one side of it is real."""

    length: int
    inverse: bool
    half: bool
    scale: float

    @property
    def ins(self) -> int:
        """How many values it takes; others count as zeros."""
        return self.length // 2 + 1 if self.half and self.inverse else self.length

    @property
    def outs(self) -> int:
        """How many values it gives."""
        return self.length // 2 + 1 if self.half and not self.inverse else self.length

    def table(self, rows: Run, columns: Sequence[Run], dtype: torch.dtype, pairs: bool) -> torch.Tensor:
        """Cosines and sines for these values in and out, by whether values in are pairs: [values out, values in].

        Computed in double precision, from angles within one turn.

        Raises:
            TooLargeError: If it has more numbers than `LARGEST`.
        """
        import torch

        ins, outs = np.arange(*rows), np.concatenate([np.arange(*run) for run in columns])
        to_real = self.half and self.inverse
        if len(ins) * len(outs) * (1 + pairs) * (2 - to_real) > LARGEST:
            raise TooLargeError
        angles = 2 * np.pi / self.length * (np.outer(ins, outs) % self.length) * (1 if self.inverse else -1)
        cosines, sines = self.scale * np.cos(angles), self.scale * np.sin(angles)
        if to_real:  # each coefficient but the first, and the middle one, stands for its mirror image as well
            twice = np.where((ins == 0) | (2 * ins == self.length), 1, 2)[:, None]
            parts = [[twice * cosines], [-twice * sines]]
        else:
            parts = [[cosines, sines], [-sines, cosines]] if pairs else [[cosines, sines]]
        table = np.transpose(parts, (3, 1, 2, 0))  # value out, its part, value in, its part
        return torch.from_numpy(table.reshape(-1, len(ins) * len(parts))).to(dtype)


class Transforms:
    """`torch.fft`'s operators on pairs, and their tables: each is made once, when a module first runs."""

    def __init__(self) -> None:
        self._tables: dict[Any, torch.Tensor] = {}

    def keep_in(self, module: torch.nn.Module) -> None:
        """Make the tables constants of a module, by which they have names where it is captured."""
        for number, table in enumerate(self._tables.values()):
            setattr(module, f"fourier_table_{number}", table)

    def operator(self, name: str) -> Callable[..., Any]:
        """What computes `fft_rfft2`, say; as `read` it takes the coefficients that are read, as runs by axis."""
        inverse, half = name.startswith("fft_i"), "rfft" in name

        def transform(
            x: Any, size: Any = None, axes: Any = None, norm: str | None = None, *, paired: Any, read: Any = ()
        ) -> Any:
            x = complex_numbers.as_blocks(x) if paired[0] else x if x.is_floating_point() else x.float()
            plan = axes_of(name, len(x.shape), size, axes)
            # the axis with half of the coefficients is the first one of real numbers, and the last one to them
            for axis, length in plan if inverse else plan[::-1]:
                real = half and axis == plan[-1][0]
                length = length or (2 * (x.shape[axis] - 1) if real and inverse else x.shape[axis])
                wave = Wave(length, inverse, real, _scale(length, inverse, norm))
                x = self._along(x, axis, wave, dict(read).get(axis) or ((0, wave.outs),))
            return x

        return transform

    def spectrogram(
        self,
        x: torch.Tensor,
        size: int,
        hop: int | None = None,
        width: int | None = None,
        window: torch.Tensor | None = None,
        normalized: bool = False,
        onesided: bool | None = None,
        *_: Any,
        paired: Any,
    ) -> torch.Tensor:
        """What computes `aten.stft`: values [..., length] -> pairs [..., coefficients, frames, 2]."""
        import torch

        hop, width = hop or size // 4, width or size
        count = 1 + (x.shape[-1] - size) // hop
        if (size, hop, count) not in self._tables:
            places = np.arange(0, count * hop, hop)[:, None] + np.arange(size)
            self._tables[size, hop, count] = torch.from_numpy(places.reshape(-1))
        frames = x.index_select(-1, self._tables[size, hop, count]).reshape([*x.shape[:-1], count, size])
        window = torch.ones(width) if window is None and width < size else window
        if window is not None:
            before = (size - width) // 2
            frames = frames * torch.nn.functional.pad(window, (before, size - width - before))
        wave = Wave(size, False, onesided is not False, size**-0.5 if normalized else 1.0)
        coefficients: Blocks = self._along(frames, frames.dim() - 1, wave, ((0, wave.outs),))
        return coefficients.whole().transpose(-3, -2)

    def _along(self, x: Any, axis: int, wave: Wave, read: tuple[Run, ...]) -> Any:
        """One axis: from real numbers to blocks, from blocks to blocks, or from blocks to real numbers."""
        if not isinstance(x, complex_numbers.Blocks):
            x = complex_numbers.narrowed(x, axis, 0, min(x.shape[axis], wave.ins))
            values = self._product(x, axis, wave, (0, x.shape[axis]), read, pairs=False)
            return complex_numbers.spread(complex_numbers.Block(values), x.shape, axis, wave.outs, read)
        x = complex_numbers.part(x, axis, 0, min(x.shape[axis], wave.ins))
        x = x if x.blocks else complex_numbers.as_blocks(x.whole())
        to_real = wave.inverse and wave.half
        sums: dict[Any, torch.Tensor] = {}
        for block in x.along(axis) if to_real else x.blocks:
            run = block.runs.get(axis, (0, x.shape[axis]))
            values = self._product(block.pairs, axis, wave, run, read, pairs=True)
            others = tuple(sorted((along, lies) for along, lies in block.runs.items() if along != axis))
            sums[others] = sums[others] + values if others in sums else values
        if to_real:
            return sums[()]
        parts = [
            complex_numbers.spread(complex_numbers.Block(v, dict(runs)), x.shape, axis, wave.outs, read)
            for runs, v in sums.items()
        ]
        return complex_numbers.Blocks(parts[0].shape, tuple(block for each in parts for block in each.blocks))

    def _product(
        self, x: torch.Tensor, axis: int, wave: Wave, rows: Run, columns: tuple[Run, ...], *, pairs: bool
    ) -> torch.Tensor:
        import torch

        key = wave, rows, columns, x.dtype, pairs
        if key not in self._tables:
            self._tables[key] = wave.table(rows, columns, x.dtype, pairs)
        last = x.dim() - 1 - pairs
        x = x if axis == last else x.movedim(axis, last)
        y = torch.nn.functional.linear(x.flatten(-2) if pairs else x, self._tables[key])
        y = y if wave.inverse and wave.half else y.unflatten(-1, (-1, 2))  # type: ignore[no-untyped-call]
        return y if axis == last else y.movedim(last, axis)


def axes_of(name: str, rank: int, size: Any, axes: Any) -> list[tuple[int, Any]]:
    """The axes that a transform by this name goes along, each with its length; None where its input says that."""
    if name[-1] not in "2n":
        return [((-1 if axes is None else axes) % rank, size)]
    if axes is None:
        axes = (-2, -1) if name[-1] == "2" else range(-len(size or range(rank)), 0)
    return [(axis % rank, length) for axis, length in zip(axes, size or [None] * len(axes), strict=True)]


def axes_of_node(node: torch.fx.Node) -> list[tuple[int, Any]]:
    """The same of a captured graph's node; none where it is no transform."""
    name = getattr(getattr(node.target, "_schema", None), "name", "").removeprefix("aten::")
    if name in PARTS:
        along: Any = node.args[1]
        return [(axis, None) for axis in along]
    if name not in NAMES:
        return []
    size, axes, *_ = (*node.args[1:], None, None)
    return axes_of(name, len(node.all_input_nodes[0].meta["val"].shape), size, axes)


def is_open(node: torch.fx.Node) -> bool:
    """Whether a node transforms along an axis whose length is open."""
    import torch

    if node.target is torch.ops.aten.stft.default:
        return not isinstance(node.all_input_nodes[0].meta["val"].shape[-1], int)
    ends = (node, *node.all_input_nodes[:1])
    return not all(isinstance(end.meta["val"].shape[axis], int) for axis, _ in axes_of_node(node) for end in ends)


def read_of(node: torch.fx.Node, axes: Iterable[int]) -> tuple[tuple[int, tuple[Run, ...]], ...]:
    """The coefficients of a transform that anything reads, as runs by axis; an axis with many runs is left out."""
    found = []
    for axis in axes:
        steps = np.diff(_mask(node, axis).astype(np.int8), prepend=0, append=0)
        runs = zip(np.flatnonzero(steps == 1).tolist(), np.flatnonzero(steps == -1).tolist(), strict=True)
        found.append((axis, tuple(runs)))
    return tuple((axis, runs) for axis, runs in found if len(runs) <= RUNS)


def _mask(node: torch.fx.Node, axis: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether anything reads an index along an axis of a node's answer."""
    import torch

    aten, shape = torch.ops.aten, node.meta["val"].shape
    mask = np.zeros(shape[axis], bool)
    for user in node.users:
        given: tuple[Any, ...] = user.args[1:]
        if user.target is aten.slice.Tensor:
            along, *limits = list(given) + [0, None, None, 1][len(given) :]
            inside = slice(*limits) if all(isinstance(limit, int | None) for limit in limits) else slice(None)
            mask[inside if along % len(shape) == axis else slice(None)] |= _mask(user, axis)
        elif user.target in (aten.fft_fftshift.default, aten.fft_ifftshift.default):
            moved = not given or given[0] is None or axis in [one % len(shape) for one in given[0]]
            back = (shape[axis] + (user.target is aten.fft_ifftshift.default)) // 2
            mask |= np.roll(_mask(user, axis), -back if moved else 0)
        else:
            mask[:] = True
    return mask


def _scale(length: int, inverse: bool, norm: str | None) -> float:
    whole = "backward" if inverse else "forward"
    return length**-0.5 if norm == "ortho" else 1 / length if (norm or "backward") == whole else 1.0
