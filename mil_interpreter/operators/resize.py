"""Resizing: MIL's `image_resizing` module, on the last axes.

Definitions and the formulas of the sampling modes:
https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html (iOS15 to iOS17). An axis at a
time: where each output lies on the input's grid, then the two neighbours and their weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from mil_interpreter.operators.arguments import Operator, integer, integers, sized, text
from mil_interpreter.records import Array, Value

_MODES = ("DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "OFFSET_CORNERS", "UNALIGN_CORNERS")


def resize_bilinear(
    x: Array,
    target_size_height: Value | int = 1,
    target_size_width: Value | int = 1,
    sampling_mode: Value = "DEFAULT",
) -> Array:
    """Linear interpolation of the last two axes to a target size."""
    sizes = integer(target_size_height), integer(target_size_width)
    return _linear(x, sizes, text(sampling_mode, *_MODES))


def upsample_bilinear(
    x: Array,
    scale_factor_height: Array | float = 1,
    scale_factor_width: Array | float = 1,
    align_corners: Array | bool = True,
    half_pixel_centers: Array | bool | None = None,
) -> Array:
    """Linear interpolation of the last two axes by factors; the scale is that of the sizes, rounded down."""
    half = not align_corners if half_pixel_centers is None else bool(half_pixel_centers)
    if align_corners and half:
        raise ValueError("aligned corners and half-pixel centres exclude each other")
    mode = "STRICT_ALIGN_CORNERS" if align_corners else "UNALIGN_CORNERS" if half else "DEFAULT"
    return _linear(x, _scaled(x, scale_factor_height, scale_factor_width), mode)


def resize_nearest_neighbor(x: Array, target_size_height: Value, target_size_width: Value) -> Array:
    """The nearest value to the left and above, `floor(i * size / target)`, on the last two axes."""
    return _nearest(x, (integer(target_size_height), integer(target_size_width)))


def upsample_nearest_neighbor(
    x: Array, scale_factor_height: Array | float = 1, scale_factor_width: Array | float = 1
) -> Array:
    """The nearest value to the left and above on the last two axes, by factors."""
    return _nearest(x, _scaled(x, scale_factor_height, scale_factor_width))


def resize(
    x: Array,
    shape: Value,
    resized_dims: Value,
    interpolation_mode: Value = "LINEAR",
    sampling_mode: Value = "DEFAULT",
) -> Array:
    """The last `resized_dims` axes to the last sizes in `shape`, where 0 keeps the input's size.

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


def _scaled(x: Array, height: Array | float, width: Array | float) -> tuple[int, int]:
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
    """Where each output lies on the input's grid, before it is clipped to it; formulas of `resize_bilinear`."""
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
    if any(n < 1 for n in sized((*x.shape[: x.ndim - len(sizes)], *sizes))[-len(sizes) :]):
        raise ValueError(f"a size of zero in {sizes}")


TABLE: Mapping[str, Operator] = {
    f.__name__: f
    for f in (resize_bilinear, upsample_bilinear, resize_nearest_neighbor, upsample_nearest_neighbor, resize)
}
