"""Operators over spatial axes: convolutions, pooling and resizing, MIL's `conv`, `pool` and `image_resizing`.

Definitions and the formulas of the sampling modes:
https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html (iOS15 to iOS17).
Convolutions take one to three spatial axes and loop over the positions of the kernel. At each position every output
reads one input, which is a strided slice. A window's maximum or sum is taken one axis after the other. Resizing works
on the last axes, one at a time. It finds the place of each output on the input's grid, then the two neighbours and
their weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mil_interpreter.operators.arguments import Operator, checked_shape, integer, integers, text
from mil_interpreter.records import Array, Value

# Elements (64 MiB) that the unfolded input of one matrix product may have.
COLUMNS_LIMIT = 1 << 24
Pads = tuple[tuple[int, int], ...]
_MODES = ("DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "OFFSET_CORNERS", "UNALIGN_CORNERS")


def conv(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    strides: Value | None = None,
    pad_type: Value = "valid",
    pad: Value | None = None,
    dilations: Value | None = None,
    groups: Value | int = 1,
) -> Array:
    """Return the cross-correlation of x [N, C_in, *D], weight [C_out, C_in / groups, *K] and bias [C_out]."""
    kernel, g = weight.shape[2:], integer(groups)
    steps, spread = _steps_of(strides, kernel), _steps_of(dilations, kernel)
    extent = tuple((k - 1) * d + 1 for k, d in zip(kernel, spread, strict=True))
    x = _pad(x, _pads_of(pad_type, pad, x.shape[2:], extent, steps), 0.0)
    out = _out_sizes(x.shape[2:], extent, steps)
    n, c_out, each = x.shape[0], weight.shape[0], weight.shape[1]
    if g < 1 or x.shape[1] != each * g or c_out % g:
        raise ValueError(f"a weight of the sizes {weight.shape} in {g} groups for an input of {x.shape}")
    filters = weight.reshape(g, c_out // g, each, -1)
    windows = (w.reshape(n, g, each, -1) for w in _windows(x, kernel, steps, spread, out))
    # Depthwise: a product of numbers at each position, not of matrices.
    if each == 1:
        total = sum(filters[..., 0, i, None] * window for i, window in enumerate(windows))
    elif n * x.shape[1] * math.prod(kernel) * math.prod(out) <= COLUMNS_LIMIT:
        columns = np.stack(list(windows), axis=3).reshape(n, g, -1, math.prod(out))
        total = filters.reshape(g, c_out // g, -1) @ columns
    else:
        total = sum(filters[..., i] @ window for i, window in enumerate(windows))
    return _add_bias(np.asarray(total).reshape(n, c_out, *out), bias)


def conv_transpose(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    pad: Value | None = None,
    output_shape: Value | None = None,
    pad_type: Value = "valid",
    strides: Value | None = None,
    dilations: Value | None = None,
    groups: Value | int = 1,
) -> Array:
    """Return the transpose of `conv` with weight [C_in, C_out / groups, *K]. Padding removes rows at the edges."""
    kernel, g = weight.shape[2:], integer(groups)
    steps, spread = _steps_of(strides, kernel), _steps_of(dilations, kernel)
    n, each = x.shape[0], weight.shape[1]
    full = [(d - 1) * s + (k - 1) * e + 1 for d, s, k, e in zip(x.shape[2:], steps, kernel, spread, strict=True)]
    flat = x.reshape(n, g, x.shape[1] // g, -1)
    filters = weight.reshape(g, x.shape[1] // g, each, -1).swapaxes(1, 2)
    padding = text(pad_type, "valid", "custom", "same")
    edges = _pairs(integers(pad), len(kernel)) if padding == "custom" and pad is not None else ((0, 0),) * len(kernel)
    # D_out = D_in * stride, the surplus taken away at both ends.
    if padding == "same":
        surplus = [max(0, f - d * s) for f, d, s in zip(full, x.shape[2:], steps, strict=True)]
        edges = tuple((v // 2, v - v // 2) for v in surplus)
    sizes_out = [f - a - b for f, (a, b) in zip(full, edges, strict=True)]
    if output_shape is not None:
        sizes_out = list(integers(output_shape))[-len(kernel) :]
    room = [max(f, a + w) for f, (a, _), w in zip(full, edges, sizes_out, strict=True)]
    total = np.zeros(checked_shape((n, g * each, *room)), dtype=np.float32)
    for i, position in enumerate(np.ndindex(*kernel)):
        where = tuple(
            slice(p * e, p * e + (d - 1) * s + 1, s)
            for p, e, d, s in zip(position, spread, x.shape[2:], steps, strict=True)
        )
        total[(slice(None), slice(None), *where)] += (filters[..., i] @ flat).reshape(n, g * each, *x.shape[2:])
    window = tuple(slice(a, a + w) for (a, _), w in zip(edges, sizes_out, strict=True))
    return _add_bias(total[(slice(None), slice(None), *window)], bias)


def max_pool(
    x: Array,
    kernel_sizes: Value,
    pad_type: Value,
    strides: Value | None = None,
    pad: Value | None = None,
    ceil_mode: Array | bool = False,
) -> Array:
    """Return the largest value of each window. Padding is never chosen."""
    frame = _frame_of(x, kernel_sizes, pad_type, strides, pad, ceil_mode)
    return _pool(np.maximum, x, frame, -np.inf, -np.inf)


def avg_pool(
    x: Array,
    kernel_sizes: Value,
    pad_type: Value,
    strides: Value | None = None,
    pad: Value | None = None,
    ceil_mode: Array | bool = False,
    exclude_padding_from_average: Array | bool = False,
) -> Array:
    """Return the mean of each window. Padding counts as zeros unless excluded. That of `ceil_mode` never counts."""
    frame = _frame_of(x, kernel_sizes, pad_type, strides, pad, ceil_mode)
    total = _pool(np.add, x.astype(np.float64), frame)
    counted = _pool(np.add, np.ones((1, 1, *x.shape[2:])), frame, 0.0 if exclude_padding_from_average else 1.0)
    return np.asarray(total / counted)


def l2_pool(
    x: Array,
    kernel_sizes: Value,
    pad_type: Value,
    strides: Value | None = None,
    pad: Value | None = None,
    ceil_mode: Array | bool = False,
) -> Array:
    """Return the square root of the sum of squares of each window."""
    frame = _frame_of(x, kernel_sizes, pad_type, strides, pad, ceil_mode)
    return np.sqrt(_pool(np.add, np.square(x, dtype=np.float64), frame))


@dataclass(frozen=True)
class _Frame:
    """Places of a pooling's windows, by spatial axis.

    Attributes:
        kernel: Their sizes.
        steps: From one to the next.
        pads: Before and after the input.
        rounds_up: Whether the last one may end beyond the padding.
    """

    kernel: tuple[int, ...]
    steps: tuple[int, ...]
    pads: Pads
    rounds_up: bool


def _frame_of(
    x: Array, kernel_sizes: Value, pad_type: Value, strides: Value | None, pad: Value | None, ceil_mode: Array | bool
) -> _Frame:
    kernel = integers(kernel_sizes)
    steps = _steps_of(strides, kernel)
    return _Frame(kernel, steps, _pads_of(pad_type, pad, x.shape[2:], kernel, steps), bool(ceil_mode))


def _pool(combine: np.ufunc, x: Array, frame: _Frame, padding: float = 0.0, beyond: float = 0.0) -> Array:
    """Return the windows' values combined. `padding` fills the padding, `beyond` the part added by rounding up."""
    kernel, steps = frame.kernel, frame.steps
    whole = _pad(x, frame.pads, padding)
    if frame.rounds_up:
        out = tuple(
            # The last window must start inside, as in PyTorch. It may end outside.
            rounded_up - ((rounded_up - 1) * s >= size + before)
            for size, (before, _), n, k, s in zip(x.shape[2:], frame.pads, whole.shape[2:], kernel, steps, strict=True)
            for rounded_up in [-(-(n - k) // s) + 1]
        )
        missing = tuple(
            (0, max(0, (o - 1) * s + k - n)) for o, s, k, n in zip(out, steps, kernel, whole.shape[2:], strict=True)
        )
        whole = _pad(whole, missing, beyond)
    else:
        out = _out_sizes(whole.shape[2:], kernel, steps)
    for axis, (k, s, n) in enumerate(zip(kernel, steps, out, strict=True), start=2):
        before = (slice(None),) * axis
        parts = [whole[(*before, slice(p, p + (n - 1) * s + 1, s))] for p in range(k)]
        whole = np.asarray(combine.reduce(parts))
    return whole


def _steps_of(value: Value | None, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """Return strides or dilations, all 1 without the parameter."""
    steps = (1,) * len(kernel) if value is None else integers(value)
    if len(steps) != len(kernel) or any(s < 1 for s in steps):
        raise ValueError(f"steps of {steps} for a kernel of {kernel}")
    return steps


def _pads_of(
    pad_type: Value, pad: Value | None, sizes: tuple[int, ...], extent: tuple[int, ...], steps: tuple[int, ...]
) -> Pads:
    """Return amounts before and after each spatial axis. "same" makes `ceil(size / stride)` outputs, more after."""
    padding = text(pad_type, "valid", "custom", "same", "same_lower")
    if padding == "valid" or (padding == "custom" and pad is None):
        return ((0, 0),) * len(sizes)
    if padding == "custom":
        return _pairs(integers(pad if pad is not None else ()), len(sizes))
    totals = [max(0, s * math.ceil(n / s) - n + k - s) for n, k, s in zip(sizes, extent, steps, strict=True)]
    halves = tuple((t // 2, t - t // 2) for t in totals)
    return halves if padding == "same" else tuple((b, a) for a, b in halves)


def _pairs(flat: tuple[int, ...], count: int) -> Pads:
    if len(flat) != 2 * count:
        raise ValueError(f"a padding of {flat} for {count} axes")
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def _pad(x: Array, pads: Pads, filler: float) -> Array:
    """Return the input with padded spatial axes."""
    if not any(a or b for a, b in pads):
        return x
    checked_shape((*x.shape[:2], *(n + a + b for n, (a, b) in zip(x.shape[2:], pads, strict=True))))
    return np.pad(x, ((0, 0), (0, 0), *pads), constant_values=filler)


def _out_sizes(sizes: tuple[int, ...], extent: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many outputs a padded input has on each spatial axis."""
    out = tuple((n - k) // s + 1 for n, k, s in zip(sizes, extent, steps, strict=True))
    if any(n < 1 for n in out):
        raise ValueError(f"a kernel of {extent} does not fit into {sizes}")
    return out


def _windows(
    x: Array, kernel: tuple[int, ...], steps: tuple[int, ...], spread: tuple[int, ...], out: tuple[int, ...]
) -> Iterator[Array]:
    """Yield, for each position of the kernel in row-major order, the input that every output reads there."""
    for position in np.ndindex(*kernel):
        yield x[
            (
                slice(None),
                slice(None),
                *(
                    slice(p * d, p * d + (n - 1) * s + 1, s)
                    for p, d, n, s in zip(position, spread, out, steps, strict=True)
                ),
            )
        ]


def _add_bias(x: Array, bias: Array | None) -> Array:
    return x if bias is None else np.asarray(x + bias.reshape(-1, *[1] * (x.ndim - 2)))


CONV_OPERATORS: Mapping[str, Operator] = {f.__name__: f for f in (conv, conv_transpose, max_pool, avg_pool, l2_pool)}


def resize_bilinear(
    x: Array,
    target_size_height: Value | int = 1,
    target_size_width: Value | int = 1,
    sampling_mode: Value = "DEFAULT",
) -> Array:
    """Return the linear interpolation of the last two axes to a target size."""
    sizes = integer(target_size_height), integer(target_size_width)
    return _linear(x, sizes, text(sampling_mode, *_MODES))


def upsample_bilinear(
    x: Array,
    scale_factor_height: Array | float = 1,
    scale_factor_width: Array | float = 1,
    align_corners: Array | bool = True,
    half_pixel_centers: Array | bool | None = None,
) -> Array:
    """Return the linear interpolation of the last two axes by factors, with the scale of the rounded-down sizes."""
    half = not align_corners if half_pixel_centers is None else bool(half_pixel_centers)
    if align_corners and half:
        raise ValueError("aligned corners and half-pixel centres exclude each other")
    mode = "STRICT_ALIGN_CORNERS" if align_corners else "UNALIGN_CORNERS" if half else "DEFAULT"
    return _linear(x, _scale(x, scale_factor_height, scale_factor_width), mode)


def resize_nearest_neighbor(x: Array, target_size_height: Value, target_size_width: Value) -> Array:
    """Return the nearest value to the left and above, `floor(i * size / target)`, on the last two axes."""
    return _nearest(x, (integer(target_size_height), integer(target_size_width)))


def upsample_nearest_neighbor(
    x: Array, scale_factor_height: Array | float = 1, scale_factor_width: Array | float = 1
) -> Array:
    """Return the nearest value to the left and above on the last two axes, by factors."""
    return _nearest(x, _scale(x, scale_factor_height, scale_factor_width))


def resize(
    x: Array,
    shape: Value,
    resized_dims: Value,
    interpolation_mode: Value = "LINEAR",
    sampling_mode: Value = "DEFAULT",
) -> Array:
    """Return the last `resized_dims` axes resized to the last sizes in `shape`, where 0 keeps the input's size.

    Raises:
        ValueError: For nearest neighbours off the default grid, whose rounding Apple does not define.
    """
    count = integer(resized_dims)
    target = integers(shape)[len(integers(shape)) - count :]
    sizes = tuple(n or old for n, old in zip(target, x.shape[x.ndim - count :], strict=True))
    mode = text(sampling_mode, *_MODES)
    if text(interpolation_mode, "LINEAR", "NEAREST_NEIGHBOR") == "LINEAR":
        return _linear(x, sizes, mode)
    text(mode, "DEFAULT")
    return _nearest(x, sizes)


def _scale(x: Array, height: Array | float, width: Array | float) -> tuple[int, int]:
    return math.floor(x.shape[-2] * float(height)), math.floor(x.shape[-1] * float(width))


def _nearest(x: Array, sizes: tuple[int, ...]) -> Array:
    _room(x, sizes)
    for axis, size in zip(range(-len(sizes), 0), sizes, strict=True):
        x = np.take(x, np.arange(size) * x.shape[axis] // size, axis=axis)
    return x


def _linear(x: Array, sizes: tuple[int, ...], mode: str) -> Array:
    _room(x, sizes)
    for axis, size in zip(range(-len(sizes), 0), sizes, strict=True):
        points = np.clip(_grid(x.shape[axis], size, mode), 0, x.shape[axis] - 1)
        before = np.floor(points).astype(np.int64)
        after = np.minimum(before + 1, x.shape[axis] - 1)
        share = (points - before).astype(np.float32).reshape([-1] + [1] * (-axis - 1))
        low = np.take(x, before, axis=axis)
        x = low + (np.take(x, after, axis=axis) - low) * share
    return x


def _grid(size: int, target: int, mode: str) -> Array:
    """Return the place of each output on the input's grid, before clipping. Formulas of `resize_bilinear`."""
    steps = np.arange(target, dtype=np.float64)
    if mode == "ALIGN_CORNERS" and target == 1:
        return np.array([(size - 1) / 2])
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        return np.asarray(steps * (size - 1) / max(target - 1, 1))
    if mode == "UNALIGN_CORNERS":
        return np.asarray((steps + 0.5) * size / target - 0.5)
    if mode == "OFFSET_CORNERS":
        return np.asarray((steps + 0.5) * max(1, size - 1) / target)
    return np.asarray(steps * size / target)


def _room(x: Array, sizes: tuple[int, ...]) -> None:
    if any(n < 1 for n in checked_shape((*x.shape[: x.ndim - len(sizes)], *sizes))[-len(sizes) :]):
        raise ValueError(f"a size of zero in {sizes}")


RESIZE_OPERATORS: Mapping[str, Operator] = {
    f.__name__: f
    for f in (resize_bilinear, upsample_bilinear, resize_nearest_neighbor, upsample_nearest_neighbor, resize)
}
