"""Rewriting of a captured graph's complex numbers as pairs of real ones, [..., 2], since few converters have them.

A graph is rewritten if this module supports all of its complex operators, for example rotary positions as products, and
Fourier transforms along axes of fixed length. Any other graph stays unchanged, for converters that support it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    Operator = Callable[..., Any]


def export(module: torch.nn.Module, arguments: tuple[Any, ...], shapes: Any) -> torch.export.ExportedProgram:
    """Run `torch.export` on a module, without complex numbers if possible."""
    import torch

    exported = torch.export.export(module, arguments, dynamic_shapes=shapes, strict=False)
    if (real := with_real_numbers(exported)) is None:
        return exported
    return torch.export.export(real, arguments, dynamic_shapes=shapes, strict=False)


def with_real_numbers(exported: torch.export.ExportedProgram) -> torch.fx.GraphModule | None:
    """Return the program as a module without complex numbers; None if it has none, or an unsupported operator."""
    import torch

    if not any(map(is_complex, exported.graph.nodes)):
        return None
    if any(getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in exported.graph.nodes):
        # Writes a new tensor where an operator changes one in place.
        exported = exported.run_decompositions({})
    transforms = Transforms()
    operators = _operators(transforms)
    if not all(_is_known(node, operators) for node in exported.graph.nodes):
        return None
    module, paired = exported.module(), set()
    for node in module.graph.nodes:
        # In order and with repetitions.
        operands: list[torch.fx.Node] = []
        torch.fx.map_arg(node.args, operands.append)
        if node.op == "get_attr" and _complex_attribute(module, str(node.target)):
            paired.add(node)
        elif node.op == "call_function" and (is_complex(node) or paired.intersection(operands)):
            node.kwargs = {**node.kwargs, "paired": tuple(each in paired for each in operands)}
            if is_complex(node):
                paired.add(node)
                if axes := axes_of_node(node):
                    node.kwargs = {**node.kwargs, "read": read_of(node, [axis for axis, _ in axes])}
            node.target = operators[node.target]
    for node in paired:
        if node.op == "get_attr":
            _as_pair(module, str(node.target))
    module.recompile()
    arguments, keywords = exported.example_inputs or ((), {})
    try:
        with torch.no_grad():
            # This run makes the tables.
            module(*arguments, **keywords)
    except TooLargeError:
        return None
    transforms.keep_in(module)
    return module


def is_complex(node: torch.fx.Node) -> bool:
    """Return whether a captured graph's node has a complex output."""
    import torch

    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


def _is_known(node: torch.fx.Node, operators: Mapping[Any, Operator]) -> bool:
    """Return whether a node has no complex numbers, or can be computed on pairs."""
    if node.op == "output":
        return not any(map(is_complex, node.all_input_nodes))
    if node.op != "call_function" or not any(map(is_complex, (node, *node.all_input_nodes))):
        return True
    return node.target in operators and not is_open(node) and not _is_lossy(node)


def _is_lossy(node: torch.fx.Node) -> bool:
    """Return whether an operator pads with anything but zeros, drops imaginary parts, or frames complex numbers."""
    import torch

    aten = torch.ops.aten
    if node.target is aten.stft.default:
        return any(map(is_complex, node.all_input_nodes))
    if node.target in (aten.pad.default, aten.constant_pad_nd.default):
        return not all(arg in ("constant", None, 0) for arg in node.args[2:])
    return node.target in (aten.to.dtype, aten._to_copy.default) and not is_complex(node)


def _complex_attribute(module: torch.nn.Module, name: str) -> bool:
    import torch

    home, _, last = name.rpartition(".")
    value = getattr(module.get_submodule(home), last)
    return isinstance(value, torch.Tensor) and value.is_complex()


def _as_pair(module: torch.nn.Module, name: str) -> None:
    """Replace a complex weight by a real one of the same name."""
    import torch

    home, _, last = name.rpartition(".")
    part = module.get_submodule(home)
    value = getattr(part, last)
    # Two nodes may read the same weight.
    if not value.is_complex():
        return
    real = torch.view_as_real(value.detach()).contiguous()
    if isinstance(value, torch.nn.Parameter):
        setattr(part, last, torch.nn.Parameter(real, requires_grad=False))
    else:
        setattr(part, last, real)


def _operators(transforms: Transforms) -> dict[Any, Operator]:
    """Return functions on pairs for PyTorch's operators; `paired` tells which of their operands are pairs."""
    import torch

    aten = torch.ops.aten
    on_blocks: dict[Any, Operator] = {
        aten.slice.Tensor: _untold(part),
        aten.slice_scatter.default: lambda x, source, *where, paired: with_part(
            *map(_pair, (x, source), paired), *where
        ),
        aten.cat.default: lambda all_of, axis=0, *, paired: concatenate([*map(_pair, all_of, paired)], axis),
        aten.pad.default: lambda x, sizes, *_, paired: pad(x, sizes),
        aten.constant_pad_nd.default: lambda x, sizes, *_, paired: pad(x, sizes),
        aten.zeros.default: lambda sizes, *, paired, **_: Blocks(tuple(sizes)),
        aten.new_zeros.default: lambda x, sizes, *, paired, **_: Blocks(tuple(sizes)),
        aten.zeros_like.default: lambda x, *, paired, **_: Blocks(as_blocks(x).shape if paired[0] else x.shape),
        aten.copy.default: _copy,
        **dict.fromkeys((aten.to.dtype, aten._to_copy.default), lambda x, *_, paired, **__: _pair(x, paired[0])),
        aten.fft_fftshift.default: _untold(fftshift(inverse=False)),
        aten.fft_ifftshift.default: _untold(fftshift(inverse=True)),
        aten.sym_size.int: lambda x, axis, *, paired: as_blocks(x).shape[axis],
        **{getattr(aten, name).default: transforms.operator(name) for name in NAMES},
        aten.stft.default: transforms.spectrogram,
        **dict.fromkeys((aten.view_as_complex.default, aten.clone.default, aten.contiguous.default), _same),
        **dict.fromkeys((aten.resolve_conj.default, aten.detach.default, aten.alias.default), _same),
        aten.lift_fresh_copy.default: _same,
    }
    on_pairs: dict[Any, Operator] = {
        aten.select.int: _along(aten.select.int),
        aten.select_scatter.default: _scatter,
        aten.unsqueeze.default: _along(aten.unsqueeze.default, added=1),
        aten.squeeze.dim: _along(aten.squeeze.dim),
        **dict.fromkeys(
            (aten.view.default, aten.reshape.default, aten._unsafe_view.default),
            lambda x, sizes, *, paired: x.reshape([*sizes, 2]),
        ),
        aten.unflatten.int: lambda x, axis, sizes, *, paired: x.unflatten(axis % (x.dim() - 1), sizes),
        aten.expand.default: lambda x, sizes, *, paired: x.expand([*sizes, -1]),
        aten.permute.default: _permute,
        aten.numpy_T.default: lambda x, *, paired: _permute(x, range(x.dim() - 2, -1, -1), paired=paired),
        aten.transpose.int: lambda x, first, other, *, paired: x.transpose(
            first % (x.dim() - 1), other % (x.dim() - 1)
        ),
        aten.flatten.using_ints: lambda x, start=0, end=-1, *, paired: x.flatten(
            start % (x.dim() - 1), end % (x.dim() - 1)
        ),
        aten.stack.default: _stack,
        aten.sum.dim_IntList: _reduce(aten.sum.dim_IntList),
        aten.mean.dim: _reduce(aten.mean.dim),
        **{each: _product(each) for each in (aten.matmul.default, aten.mm.default, aten.bmm.default)},
        aten.tensordot.default: _product(aten.tensordot.default),
        aten.linear.default: _linear,
        aten.einsum.default: lambda equation, operands, *, paired: _product(
            lambda *parts: torch.einsum(equation, *parts)
        )(*operands, paired=paired),
        aten.mul.Tensor: _times,
        aten.div.Tensor: _quotient,
        aten.add.Tensor: _total(1),
        aten.sub.Tensor: _total(-1),
        aten.neg.default: lambda x, *, paired: -x,
        aten._conj.default: lambda x, *, paired: torch.stack([x[..., 0], -x[..., 1]], -1),
        aten.exp.default: lambda x, *, paired: _polar(x[..., 0].exp(), x[..., 1]),
        aten.complex.default: lambda real, imaginary, *, paired: torch.stack([real, imaginary], -1),
        aten.polar.default: lambda size, angle, *, paired: _polar(size, angle),
        aten.view_as_real.default: _same,
        aten.real.default: lambda x, *, paired: x[..., 0],
        aten.imag.default: lambda x, *, paired: x[..., 1],
        aten.abs.default: lambda x, *, paired: (x * x).sum(-1).sqrt(),
        aten.angle.default: lambda x, *, paired: torch.atan2(x[..., 1], x[..., 0]),
    }
    return on_blocks | {name: _of_pairs(operator) for name, operator in on_pairs.items()}


def _of_pairs(operator: Operator) -> Operator:
    """Return an operator on pairs that joins its operands' blocks first."""
    return lambda *args, **kwargs: operator(*map(as_pairs, args), **kwargs)


def _untold(operator: Operator) -> Operator:
    return lambda *args, paired: operator(*args)


def _polar(size: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.stack([size * angle.cos(), size * angle.sin()], -1)


def _pair(x: Any, is_pair: bool) -> Any:
    """Return an operand as a pair if it is a real tensor or a number."""
    import torch

    if is_pair:
        return x
    if isinstance(x, torch.Tensor):
        return torch.stack([x, torch.zeros_like(x)], -1)
    return torch.stack([torch.full((), float(part)) for part in (complex(x).real, complex(x).imag)])


def _along(operator: Operator, added: int = 0) -> Operator:
    """Return, on pairs, an operator whose second argument is an axis."""

    def on_pairs(x: torch.Tensor, axis: int = 0, *rest: Any, paired: Sequence[bool]) -> torch.Tensor:
        return operator(x, axis % (x.dim() - 1 + added), *rest)  # type: ignore[no-any-return]

    return on_pairs


def _reduce(operator: Operator) -> Operator:
    """Return, on pairs, an operator whose second argument is a list of axes; None means all."""

    def on_pairs(x: torch.Tensor, axes: Any, *rest: Any, paired: Sequence[bool], **_: Any) -> torch.Tensor:
        rank = x.dim() - 1
        return operator(x, [axis % rank for axis in axes or range(rank)], *rest)  # type: ignore[no-any-return]

    return on_pairs


def _same(x: Any, *, paired: Sequence[bool], **_: Any) -> Any:
    return x


def _copy(x: Any, source: Any, *, paired: Sequence[bool]) -> Any:
    """Return a tensor with the first one's shape and the second one's values, which may have fewer axes."""
    source, shape = _pair(source, paired[1]), as_blocks(x).shape
    fits = tuple(as_blocks(source).shape) == tuple(shape)
    return source if fits else as_pairs(source).expand([*shape, 2])


def _permute(x: torch.Tensor, axes: Sequence[int], *, paired: Sequence[bool]) -> torch.Tensor:
    return x.permute(*(axis % (x.dim() - 1) for axis in axes), x.dim() - 1)


def _scatter(x: Any, source: Any, axis: int, index: int, *, paired: Sequence[bool]) -> torch.Tensor:
    import torch

    x = _pair(x, paired[0])
    return torch.select_scatter(x, _pair(source, paired[1]), axis % (x.dim() - 1), index)


def _stack(all_of: Sequence[Any], axis: int = 0, *, paired: Sequence[bool]) -> torch.Tensor:
    import torch

    pairs = list(map(_pair, all_of, paired))
    return torch.stack(pairs, axis % pairs[0].dim())


def _linear(x: Any, weight: Any, bias: Any = None, *, paired: Sequence[bool]) -> torch.Tensor:
    import torch

    product: torch.Tensor = _product(torch.nn.functional.linear)(x, weight, paired=paired[:2])
    return product if bias is None else product + _pair(bias, paired[2])


def _product(operator: Operator) -> Operator:
    """Return, on pairs, an operator that is linear in each tensor: the sum over all combinations of their parts."""

    def on_pairs(*args: Any, paired: Sequence[bool]) -> torch.Tensor:
        import torch

        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        parts = [x.unbind(-1) if is_pair else (x,) for x, is_pair in zip(tensors, paired, strict=True)]
        sums: list[Any] = [None, None]
        for choice in itertools.product(*(range(len(each)) for each in parts)):
            value = operator(*(each[index] for each, index in zip(parts, choice, strict=True)), *args[len(tensors) :])
            # The power of i.
            half, is_imaginary = divmod(sum(choice) % 4, 2)
            total = sums[is_imaginary]
            sums[is_imaginary] = value if total is None else total - value if half else total + value
        return torch.stack(sums, -1)

    return on_pairs


def _times(a: Any, b: Any, *, paired: Sequence[bool]) -> torch.Tensor:
    import torch

    if isinstance(b, complex):
        # 1j * x of a real x is a pair too.
        return _times(_pair(a, paired[0]), _pair(b, False), paired=(True, True))
    if not isinstance(b, torch.Tensor):
        return torch.mul(a, b)
    if all(paired):
        product: torch.Tensor = _product(torch.mul)(a, b, paired=paired)
        return product
    first, other = (x if is_pair else x.unsqueeze(-1) for x, is_pair in zip((a, b), paired, strict=True))
    return first * other  # type: ignore[no-any-return]  # a real factor belongs to both parts


def _quotient(a: Any, b: Any, *, paired: Sequence[bool]) -> torch.Tensor:
    import torch

    if isinstance(b, torch.Tensor) and paired[-1]:
        inverse = torch.stack([b[..., 0], -b[..., 1]], -1) / (b * b).sum(-1, keepdim=True)
        return _times(a, inverse, paired=paired)
    return torch.div(a, b.unsqueeze(-1) if isinstance(b, torch.Tensor) else b)


def _total(sign: int) -> Operator:
    """Return, on pairs, a sum or a difference."""

    def on_pairs(a: Any, b: Any, *, paired: Sequence[bool], alpha: float = 1) -> torch.Tensor:
        import torch

        flags = iter(paired)
        first, other = (_pair(x, isinstance(x, torch.Tensor) and next(flags)) for x in (a, b))
        return first + sign * alpha * other  # type: ignore[no-any-return]

    return on_pairs


Run = tuple[int, int]
"""Adjacent indices along an axis: the first, and the one after the last."""


@dataclass(frozen=True)
class Block:
    """A part of a complex tensor.

    Attributes:
        pairs: Its real and imaginary parts, [..., 2].
        runs: Its position along an axis, by axis; it covers the whole tensor along any other.
    """

    pairs: torch.Tensor
    runs: Mapping[int, Run] = field(default_factory=dict)


@dataclass(frozen=True)
class Blocks:
    """A complex tensor that is zero outside of its blocks, which do not overlap."""

    shape: tuple[Any, ...]
    blocks: tuple[Block, ...] = ()

    def whole(self) -> torch.Tensor:
        """Return the tensor as pairs, [*shape, 2]."""
        import torch

        return self._total(self.blocks) if self.blocks else torch.zeros(*self.shape, 2)

    def along(self, axis: int) -> tuple[Block, ...]:
        """Return blocks that cover the tensor along all other axes."""
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
    """Return pairs as a single block."""
    return x if isinstance(x, Blocks) else Blocks(tuple(x.shape[:-1]), (Block(x),))


def as_pairs(x: Any) -> Any:
    """Return blocks as pairs, including those in a list; anything else unchanged."""
    if isinstance(x, list | tuple):
        return [as_pairs(each) for each in x]
    return x.whole() if isinstance(x, Blocks) else x


def part(x: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Return adjacent indices along an axis, as `aten.slice` does."""
    import torch

    shape = as_blocks(x).shape
    axis %= len(shape)
    if _is_all(start, end, step):
        return x
    run = _run(shape[axis], start, end, step)
    if not isinstance(x, Blocks) or run is None:
        return torch.ops.aten.slice.Tensor(as_pairs(x), axis, start, end, step)
    pieces = []
    for block in x.blocks:
        first, last = block.runs.get(axis, (0, shape[axis]))
        inner = max(first, run[0]), min(last, run[1])
        if inner[0] < inner[1]:
            pairs = narrow(block.pairs, axis, inner[0] - first, inner[1] - inner[0])
            pieces.append(_place_block(block, pairs, axis, inner[0] - run[0], run[1] - run[0]))
    return Blocks(_resize(shape, axis, run[1] - run[0]), tuple(pieces))


def with_part(x: Any, source: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Return a tensor with some indices along an axis replaced, as `aten.slice_scatter` does."""
    import torch

    x = as_blocks(x)
    axis %= len(x.shape)
    if _is_all(start, end, step):
        return source
    run = _run(x.shape[axis], start, end, step)
    if run is None:
        return torch.ops.aten.slice_scatter.default(as_pairs(x), as_pairs(source), axis, start, end, step)
    return concatenate([part(x, axis, 0, run[0]), source, part(x, axis, run[1], x.shape[axis])], axis)


def concatenate(all_of: Sequence[Any], axis: int = 0) -> Any:
    """Join tensors along an axis, as `aten.cat` does."""
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
            blocks.append(_place_block(block, block.pairs, axis, start + offset, sum(lengths)))
        offset += length
    return Blocks(_resize(shape, axis, offset), tuple(blocks))


def pad(x: Any, sizes: Sequence[int]) -> Any:
    """Add or remove values before and after each axis, as `aten.constant_pad_nd` does from the last axis on."""
    x = as_blocks(x)
    for axis, before, after in zip(range(len(x.shape))[::-1], sizes[::2], sizes[1::2], strict=False):
        if before or after:
            cropped = part(x, axis, max(-before, 0), x.shape[axis] - max(-after, 0)) if min(before, after) < 0 else x
            first, last = (Blocks(_resize(x.shape, axis, max(side, 0))) for side in (before, after))
            x = as_blocks(concatenate([first, cropped, last], axis))
    return x


def fftshift(inverse: bool) -> Callable[..., Any]:
    """Return `fft_fftshift` or its inverse: the halves of axes change places."""

    def shift(x: Any, axes: Any = None) -> Any:
        shape = as_blocks(x).shape
        for axis in range(len(shape)) if axes is None else axes:
            cut = (shape[axis] + int(not inverse)) // 2
            x = concatenate([part(x, axis, cut, shape[axis]), part(x, axis, 0, cut)], axis)
        return x

    return shift


def spread(block: Block, shape: Sequence[Any], axis: int, length: int, runs: Iterable[Run]) -> Blocks:
    """Place the consecutive parts of a block at their positions along an axis of this length."""
    blocks, position = [], 0
    for start, stop in runs:
        pairs = narrow(block.pairs, axis, position, stop - start)
        blocks.append(_place_block(block, pairs, axis, start, length))
        position += stop - start
    return Blocks(_resize(shape, axis, length), tuple(blocks))


def narrow(x: torch.Tensor, axis: int, start: int, length: int) -> torch.Tensor:
    """Return adjacent indices along an axis; the tensor itself if these are all."""
    return x if length == x.shape[axis] else x.narrow(axis, start, length)


def _place_block(block: Block, pairs: torch.Tensor, axis: int, start: int, length: int) -> Block:
    """Return a block that begins at an index of an axis of this length."""
    runs = {along: run for along, run in block.runs.items() if along != axis}
    whole = start == 0 and pairs.shape[axis] == length
    return Block(pairs, runs if whole else runs | {axis: (start, start + pairs.shape[axis])})


def _resize(shape: Sequence[Any], axis: int, length: Any) -> tuple[Any, ...]:
    return *shape[:axis], length, *shape[axis + 1 :]


def _is_all(start: Any, end: Any, step: int) -> bool:
    """Return whether limits select everything, at any length."""
    return step == 1 and start in (None, 0) and (end is None or (isinstance(end, int) and end == sys.maxsize))


def _run(length: Any, start: Any, end: Any, step: int) -> Run | None:
    """Return the run that a slice takes of an axis of this length; None if it has steps or a length is open."""
    if step != 1 or not all(isinstance(number, int | None) for number in (length, start, end)):
        return None
    first, last, _ = slice(start, end).indices(length)
    return first, max(first, last)


LARGEST = 1 << 23
"""Largest number of values in a table, 34 MB: a transform of 1,448 complex or 2,895 real values, or of more values
with few coefficients."""

RUNS = 2
"""The lowest and the highest frequencies; if the coefficients form more runs, all are computed."""

NAMES = tuple(f"fft_{name}{axes}" for name in ("fft", "ifft", "rfft", "irfft") for axes in ("", "2", "n"))
"""The transforms, by the names of PyTorch's operators."""


PARTS = ("_fft_r2c", "_fft_c2r", "_fft_c2c")
"""Operators into which some targets decompose the transforms."""


class TooLargeError(Exception):
    """A table would have more numbers than `LARGEST`."""


@dataclass(frozen=True)
class Wave:
    """A transform along one axis: its length, its direction, its factor, and `half` if one side of it is real."""

    length: int
    inverse: bool
    half: bool
    scale: float

    @property
    def ins(self) -> int:
        """Number of input values; further ones count as zeros."""
        return self.length // 2 + 1 if self.half and self.inverse else self.length

    @property
    def outs(self) -> int:
        """Number of output values."""
        return self.length // 2 + 1 if self.half and not self.inverse else self.length

    def table(self, rows: Run, columns: Sequence[Run], dtype: torch.dtype, pairs: bool) -> torch.Tensor:
        """Return cosines and sines for these input and output values, [values out, values in]; `pairs`: complex input.

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
        # Each coefficient but the first and the middle one also stands for its mirror image.
        if to_real:
            twice = np.where((ins == 0) | (2 * ins == self.length), 1, 2)[:, None]
            parts = [[twice * cosines], [-twice * sines]]
        else:
            parts = [[cosines, sines], [-sines, cosines]] if pairs else [[cosines, sines]]
        # Value out, its part, value in, its part.
        table = np.transpose(parts, (3, 1, 2, 0))
        return torch.from_numpy(table.reshape(-1, len(ins) * len(parts))).to(dtype)


class Transforms:
    """`torch.fft`'s operators on pairs, and their tables: each is made once, in a module's first run."""

    def __init__(self) -> None:
        self._tables: dict[Any, torch.Tensor] = {}

    def keep_in(self, module: torch.nn.Module) -> None:
        """Store the tables as constants of a module, which gives them names in a capture."""
        for number, table in enumerate(self._tables.values()):
            setattr(module, f"fourier_table_{number}", table)

    def operator(self, name: str) -> Callable[..., Any]:
        """Return the function of, say, `fft_rfft2`; its `read` limits the coefficients, as runs by axis."""
        inverse, half = name.startswith("fft_i"), "rfft" in name

        def transform(
            x: Any, size: Any = None, axes: Any = None, norm: str | None = None, *, paired: Any, read: Any = ()
        ) -> Any:
            x = as_blocks(x) if paired[0] else x if x.is_floating_point() else x.float()
            plan = axes_of(name, len(x.shape), size, axes)
            # The axis with half of the coefficients comes first from real numbers, and last to real numbers.
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
        """Compute `aten.stft`: values [..., length] -> pairs [..., coefficients, frames, 2]."""
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
        """Transform one axis: real numbers to blocks, blocks to blocks, or blocks to real numbers."""
        if not isinstance(x, Blocks):
            x = narrow(x, axis, 0, min(x.shape[axis], wave.ins))
            values = self._product(x, axis, wave, (0, x.shape[axis]), read, pairs=False)
            return spread(Block(values), x.shape, axis, wave.outs, read)
        x = part(x, axis, 0, min(x.shape[axis], wave.ins))
        x = x if x.blocks else as_blocks(x.whole())
        to_real = wave.inverse and wave.half
        sums: dict[Any, torch.Tensor] = {}
        for block in x.along(axis) if to_real else x.blocks:
            run = block.runs.get(axis, (0, x.shape[axis]))
            values = self._product(block.pairs, axis, wave, run, read, pairs=True)
            others = tuple(sorted((along, lies) for along, lies in block.runs.items() if along != axis))
            sums[others] = sums[others] + values if others in sums else values
        if to_real:
            return sums[()]
        parts = [spread(Block(v, dict(runs)), x.shape, axis, wave.outs, read) for runs, v in sums.items()]
        return Blocks(parts[0].shape, tuple(block for each in parts for block in each.blocks))

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
    """Return the axes of a transform, each with its length; None if the input determines the length."""
    if name[-1] not in "2n":
        return [((-1 if axes is None else axes) % rank, size)]
    if axes is None:
        axes = (-2, -1) if name[-1] == "2" else range(-len(size or range(rank)), 0)
    return [(axis % rank, length) for axis, length in zip(axes, size or [None] * len(axes), strict=True)]


def axes_of_node(node: torch.fx.Node) -> list[tuple[int, Any]]:
    """Return the axes of a captured graph's node, as `axes_of`; none if it is not a transform."""
    name = getattr(getattr(node.target, "_schema", None), "name", "").removeprefix("aten::")
    if name in PARTS:
        along: Any = node.args[1]
        return [(axis, None) for axis in along]
    if name not in NAMES:
        return []
    size, axes, *_ = (*node.args[1:], None, None)
    return axes_of(name, len(node.all_input_nodes[0].meta["val"].shape), size, axes)


def is_open(node: torch.fx.Node) -> bool:
    """Return whether a node transforms along an axis of open length."""
    import torch

    if node.target is torch.ops.aten.stft.default:
        return not isinstance(node.all_input_nodes[0].meta["val"].shape[-1], int)
    ends = (node, *node.all_input_nodes[:1])
    return not all(isinstance(end.meta["val"].shape[axis], int) for axis, _ in axes_of_node(node) for end in ends)


def read_of(node: torch.fx.Node, axes: Iterable[int]) -> tuple[tuple[int, tuple[Run, ...]], ...]:
    """Return the coefficients of a transform that are read, as runs by axis; an axis with many runs is left out."""
    readers = []
    for axis in axes:
        steps = np.diff(_mask(node, axis).astype(np.int8), prepend=0, append=0)
        runs = zip(np.flatnonzero(steps == 1).tolist(), np.flatnonzero(steps == -1).tolist(), strict=True)
        readers.append((axis, tuple(runs)))
    return tuple((axis, runs) for axis, runs in readers if len(runs) <= RUNS)


def _mask(node: torch.fx.Node, axis: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which indices along an axis of a node's output are read."""
    import torch

    aten, shape = torch.ops.aten, node.meta["val"].shape
    mask = np.zeros(shape[axis], bool)
    for user in node.users:
        reduction: tuple[Any, ...] = user.args[1:]
        if user.target is aten.slice.Tensor:
            along, *limits = list(reduction) + [0, None, None, 1][len(reduction) :]
            inside = slice(*limits) if all(isinstance(limit, int | None) for limit in limits) else slice(None)
            mask[inside if along % len(shape) == axis else slice(None)] |= _mask(user, axis)
        elif user.target in (aten.fft_fftshift.default, aten.fft_ifftshift.default):
            moved = (
                not reduction or reduction[0] is None or axis in [dimension % len(shape) for dimension in reduction[0]]
            )
            back = (shape[axis] + (user.target is aten.fft_ifftshift.default)) // 2
            mask |= np.roll(_mask(user, axis), -back if moved else 0)
        else:
            mask[:] = True
    return mask


def _scale(length: int, inverse: bool, norm: str | None) -> float:
    whole = "backward" if inverse else "forward"
    return length**-0.5 if norm == "ortho" else 1 / length if (norm or "backward") == whole else 1.0
