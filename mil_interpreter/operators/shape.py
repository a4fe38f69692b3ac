"""Operators that move values: shapes, slices, joins, padding and constant tensors, gathering, scattering and ordering.

They are MIL's modules `tensor_transformation`, `tensor_operation` and `scatter_gather`. Definitions:
https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html (iOS15 to iOS17).
The results of `SHAPE_OPERATORS` need no rounding. Indices may be negative (counted from the end). One outside the
tensor is an error here, while a device may read anything.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mil_interpreter.operators.arguments import Operator, axes, checked_shape, flags, integer, integers, text
from mil_interpreter.records import Array, Value

# Parameters of some operators have this name.
_axes = axes
_UPDATES: Mapping[str, np.ufunc | None] = {
    "update": None,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "max": np.maximum,
    "min": np.minimum,
}


def identity(x: Array) -> Array:
    """Return the input."""
    return x


def shape(x: Array) -> Array:
    """Return the sizes of the input."""
    return np.array(x.shape, dtype=np.int32)


def reshape(x: Array, shape: Value) -> Array:
    """Return another shape: -1 takes the remaining size, 0 keeps the input's size in that place."""
    sizes = integers(shape)
    if 0 in sizes and x.size and len(sizes) != x.ndim:
        raise ValueError(f"the sizes {sizes} keep a size of a tensor of rank {x.ndim}")
    return x.reshape([x.shape[d] if n == 0 and x.size else n for d, n in enumerate(sizes)])


def reshape_like(
    x: Array,
    ref_tensors: tuple[Array, ...],
    begins: tuple[Array, ...],
    ends: tuple[Array, ...],
    end_masks: tuple[Array, ...],
) -> Array:
    """Return the sizes `begins[i]:ends[i]` of each reference, one after the other, or to its end where masked."""
    sizes: tuple[int, ...] = ()
    for reference, begin, end, open_ended in zip(ref_tensors, begins, ends, end_masks, strict=True):
        sizes += reference.shape[integer(begin) : None if open_ended else integer(end)]
    return x.reshape(sizes)


def expand_dims(x: Array, axes: Value) -> Array:
    """Return the input with new axes of size 1."""
    return np.expand_dims(x, integers(axes))


def squeeze(x: Array, axes: Value | None = None) -> Array:
    """Return the input without axes of size 1. An axis of another size stays, as in PyTorch."""
    return np.squeeze(x, axis=tuple(a for a in _axes(axes, x.ndim) if x.shape[a] == 1))


def transpose(x: Array, perm: Value) -> Array:
    """Return the input with its axes in another order."""
    return np.transpose(x, integers(perm))


def flatten2d(x: Array, axis: Value | int = 1) -> Array:
    """Return two axes: all before `axis`, and the rest."""
    before = x.shape[: integer(axis)]
    return x.reshape(int(np.prod(before)), -1)


def concat(values: tuple[Array, ...], axis: Value, interleave: Array | bool = False) -> Array:
    """Return tensors joined along an axis (scalars as a vector), or interleaved, one element of each in turn."""
    along = integer(axis)
    if not interleave:
        return np.concatenate([np.atleast_1d(v) for v in values], axis=along)
    stacked = np.stack(values, axis=along % values[0].ndim + 1)
    sizes = list(values[0].shape)
    sizes[along] *= len(values)
    return stacked.reshape(sizes)


def stack(values: tuple[Array, ...], axis: Value) -> Array:
    """Return tensors joined along a new axis."""
    return np.stack(values, axis=integer(axis))


def split(
    x: Array, axis: Value, num_splits: Value | None = None, split_sizes: Value | None = None
) -> tuple[Array, ...]:
    """Return parts along an axis, of equal or of given sizes."""
    if split_sizes is None:
        return tuple(np.split(x, integer(1 if num_splits is None else num_splits), axis=integer(axis)))
    sizes = integers(split_sizes)
    if sum(sizes) != x.shape[integer(axis)]:
        raise ValueError(f"the parts {sizes} do not add up to {x.shape[integer(axis)]}")
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=integer(axis)))


def slice_by_index(
    x: Array,
    begin: Value,
    end: Value,
    stride: Value | None = None,
    begin_mask: Value | None = None,
    end_mask: Value | None = None,
    squeeze_mask: Value | None = None,
) -> Array:
    """Return `x[begin:end:stride]` on each axis. Masks mean "from the start", "to the end", "only `begin`, no axis"."""
    steps = (1,) * x.ndim if stride is None else integers(stride)
    open_begin, open_end, single = (flags(mask, x.ndim) for mask in (begin_mask, end_mask, squeeze_mask))
    slices: list[int | slice] = []
    for d, (first, last, step) in enumerate(zip(integers(begin), integers(end), steps, strict=True)):
        if single[d]:
            slices.append(first)
        else:
            slices.append(slice(None if open_begin[d] else first, None if open_end[d] else last, step))
    return np.asarray(x[tuple(slices)])


def slice_by_size(x: Array, begin: Value, size: Value) -> Array:
    """Return `size` elements from `begin` on each axis, where -1 means all the rest."""
    slices = []
    for first, count, length in zip(integers(begin), integers(size), x.shape, strict=True):
        start = first + length if first < 0 else first
        slices.append(slice(start, None if count == -1 else start + count))
    return x[tuple(slices)]


def reverse(x: Array, axes: Value | None = None) -> Array:
    """Return the input back to front along some axes, or all."""
    return np.flip(x, _axes(axes, x.ndim))


def tile(x: Array, reps: Value) -> Array:
    """Return the input repeated along each axis."""
    checked_shape(n * r for n, r in zip(x.shape, integers(reps), strict=True))
    return np.tile(x, integers(reps))


def pad(x: Array, pad: Value, mode: Value = "constant", constant_val: Array | float = 0.0) -> Array:
    """Return the last axes padded at both ends: by a constant, the mirror image without the edge, or the edge."""
    amounts = [(0, 0)] * x.ndim
    pairs = np.asarray(integers(pad)).reshape(-1, 2)
    amounts[x.ndim - len(pairs) :] = [(int(a), int(b)) for a, b in pairs]
    checked_shape(n + a + b for n, (a, b) in zip(x.shape, amounts, strict=True))
    variant = text(mode, "constant", "reflect", "replicate")
    if variant == "constant":
        return np.pad(x, amounts, constant_values=np.asarray(constant_val).astype(x.dtype))
    return np.pad(x, amounts, mode="reflect" if variant == "reflect" else "edge")


def crop(x: Array, crop_height: Value, crop_width: Value) -> Array:
    """Return the input without some rows and columns at the edges of the last two axes."""
    (top, bottom), (left_edge, right) = integers(crop_height), integers(crop_width)
    return x[..., top : x.shape[-2] - bottom, left_edge : x.shape[-1] - right]


def band_part(x: Array, lower: Value | int = -1, upper: Value | int = -1) -> Array:
    """Return zeros but for `lower` diagonals below and `upper` above the main one. A negative number keeps them all."""
    below, above = integer(lower), integer(upper)
    distance = np.arange(x.shape[-2])[:, None] - np.arange(x.shape[-1])
    band = ((below < 0) | (distance <= below)) & ((above < 0) | (-distance <= above))
    return np.where(band, x, x.dtype.type(0))


def depth_to_space(x: Array, block_size: Value) -> Array:
    """Move channels [block row, block column, channel] to pixels (TensorFlow's order)."""
    n, c, h, w = x.shape
    b = integer(block_size)
    return x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)


def space_to_depth(x: Array, block_size: Value) -> Array:
    """Move pixels to channels [block row, block column, channel]."""
    n, c, h, w = x.shape
    b = integer(block_size)
    return x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b**2, h // b, w // b)


def pixel_shuffle(x: Array, upscale_factor: Value) -> Array:
    """Move channels [channel, block row, block column] to pixels (PyTorch's order)."""
    n, c, h, w = x.shape
    f = integer(upscale_factor)
    return x.reshape(n, c // f**2, f, f, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // f**2, h * f, w * f)


def pixel_unshuffle(x: Array, downscale_factor: Value) -> Array:
    """Move pixels to channels [channel, block row, block column]."""
    n, c, h, w = x.shape
    f = integer(downscale_factor)
    return x.reshape(n, c, h // f, f, w // f, f).transpose(0, 1, 3, 5, 2, 4).reshape(n, c * f**2, h // f, w // f)


def sliding_windows(x: Array, axis: Value, size: Value, stride: Value | int = 1) -> Array:
    """Return all windows of `size` along an axis, as a new axis after it."""
    along = integer(axis) % x.ndim
    windows = np.lib.stride_tricks.sliding_window_view(x, integer(size), axis=along)
    every = windows[(slice(None),) * along + (slice(None, None, integer(stride)),)]
    return np.moveaxis(every, -1, along + 1)


def fill(shape: Value, value: Array | float = 0.0) -> Array:
    """Return one value in every place."""
    return np.full(checked_shape(integers(shape)), value)


def fill_like(ref_tensor: Array, value: Array | float = 0.0) -> Array:
    """Return one value in every place of another tensor's sizes."""
    return np.full(ref_tensor.shape, value)


def range_1d(start: Array, end: Array, step: Array) -> Array:
    """Return `start, start + step, ...` up to but without `end`."""
    if step == 0:
        raise ValueError("a range of step 0")
    checked_shape([max(0, int(np.ceil((float(end) - float(start)) / float(step))))])
    return np.asarray(np.arange(start.item(), end.item(), step.item()))


SHAPE_OPERATORS: Mapping[str, Operator] = {
    f.__name__: f
    for f in (
        identity,
        shape,
        reshape,
        reshape_like,
        expand_dims,
        squeeze,
        transpose,
        flatten2d,
        concat,
        stack,
        split,
        slice_by_index,
        slice_by_size,
        reverse,
        tile,
        pad,
        crop,
        band_part,
        depth_to_space,
        space_to_depth,
        pixel_shuffle,
        pixel_unshuffle,
        sliding_windows,
        fill,
        fill_like,
        range_1d,
    )
}


def topk(
    x: Array,
    k: Value | int = 1,
    axis: Value | int = -1,
    ascending: Array | bool = False,
    sort: Array | bool = True,
    return_indices: Array | bool = True,
    output_indices_dtype: Value = "int32",
) -> tuple[Array, ...]:
    """Return the k largest (or smallest) values along an axis, in order, and their indices. Ties go to the lower index.

    Where `sort` is false Core ML leaves the order open, so this order is valid.
    """
    text(output_indices_dtype, "int32", "uint16")
    along, count = integer(axis), integer(k)
    if not 0 <= count <= x.shape[along]:
        raise ValueError(f"the {count} largest of {x.shape[along]} values")
    indices = np.take(_order(x, along, bool(ascending)), np.arange(count), axis=along)
    values = np.take_along_axis(x, indices, axis=along)
    return (values, indices) if return_indices else (values,)


def argsort(x: Array, axis: Value | int = -1, ascending: Array | bool = False) -> Array:
    """Return the indices of the values in order, largest first unless ascending. Ties go to the lower index."""
    return _order(x, integer(axis), bool(ascending))


def gather(
    x: Array,
    indices: Array,
    axis: Value | int = 0,
    batch_dims: Value | int = 0,
    validate_indices: Array | bool = False,
) -> Array:
    """Return slices of `x` along an axis, one for each index. The first `batch_dims` axes are paired."""
    along, batch = integer(axis) % x.ndim, integer(batch_dims)
    if batch == 0:
        return np.take(x, _inside(indices, x.shape[along]), axis=along)
    lead = x.shape[:batch]
    if indices.shape[:batch] != lead:
        raise ValueError(f"batches of {lead} and {indices.shape[:batch]}")
    rows = zip(x.reshape(-1, *x.shape[batch:]), indices.reshape(-1, *indices.shape[batch:]), strict=True)
    rows_taken = [np.take(row, _inside(index, x.shape[along]), axis=along - batch) for row, index in rows]
    return np.stack(rows_taken).reshape(*lead, *rows_taken[0].shape)


def gather_along_axis(x: Array, indices: Array, axis: Value | int = 0, validate_indices: Array | bool = False) -> Array:
    """Return `x[..., indices[..., i, ...], ...]` along an axis: one index for each value of the result."""
    along = integer(axis)
    return np.take_along_axis(x, _inside(indices, x.shape[along]), axis=along)


def gather_nd(x: Array, indices: Array, batch_dims: Value | int = 0, validate_indices: Array | bool = False) -> Array:
    """Return `x[indices[..., 0], indices[..., 1], ...]`. The last axis of `indices` holds coordinates."""
    batch = integer(batch_dims)
    depth = indices.shape[-1]
    coordinates = [_inside(indices[..., d], x.shape[batch + d]) for d in range(depth)]
    for d in range(batch):
        lead = np.arange(x.shape[d]).reshape([-1 if a == d else 1 for a in range(indices.ndim - 1)])
        coordinates.insert(d, lead)
    return np.asarray(x[tuple(coordinates)])


def scatter(
    data: Array,
    indices: Array,
    updates: Array,
    axis: Value | int = 0,
    mode: Value = "add",
    validate_indices: Array | bool = False,
) -> Array:
    """Return a copy of `data` whose slices along an axis are replaced by, or combined with, the updates."""
    along = integer(axis) % data.ndim
    where = (slice(None),) * along + (_inside(indices, data.shape[along]),)
    return _update(data, where, updates, mode)


def scatter_along_axis(
    data: Array,
    indices: Array,
    updates: Array,
    axis: Value | int = 0,
    mode: Value = "add",
    validate_indices: Array | bool = False,
) -> Array:
    """Return a copy of `data` with one update for each index along an axis."""
    along = integer(axis) % data.ndim
    where = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    where[along] = _inside(indices, data.shape[along])
    return _update(data, tuple(where), updates, mode)


def scatter_nd(
    data: Array, indices: Array, updates: Array, mode: Value = "add", validate_indices: Array | bool = False
) -> Array:
    """Return a copy of `data` with updates at the coordinates in the last axis of `indices`."""
    where = tuple(_inside(indices[..., d], data.shape[d]) for d in range(indices.shape[-1]))
    return _update(data, where, updates, mode)


def non_zero(x: Array) -> Array:
    """Return the coordinates of the values that are not zero, one row each."""
    return np.transpose(np.nonzero(x))


def one_hot(
    indices: Array,
    one_hot_vector_size: Value,
    axis: Value | int = -1,
    on_value: Array | int = 1,
    off_value: Array | int = 0,
) -> Array:
    """Return a new axis that holds `on_value` at the index and `off_value` elsewhere."""
    count = integer(one_hot_vector_size)
    checked_shape((*indices.shape, count))
    hit = indices[..., None] == np.arange(count)
    return np.moveaxis(np.where(hit, on_value, off_value), -1, integer(axis))


def _order(x: Array, axis: int, ascending: bool) -> Array:
    """Return a stable order. Descending is the stable order of the reversed array, so integers need no negation."""
    if ascending:
        return np.argsort(x, axis=axis, kind="stable")
    flipped = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(flipped, axis))


def _inside(indices: Array, size: int) -> Array:
    wide = indices.astype(np.int64)
    if wide.size and not (-size <= int(wide.min()) and int(wide.max()) < size):
        raise ValueError(f"an index between {int(wide.min())} and {int(wide.max())} for {size} values")
    return np.asarray(np.where(wide < 0, wide + size, wide))


def _update(data: Array, where: tuple[Array | slice, ...], updates: Array, mode: Value) -> Array:
    result = data.copy()
    combine = _UPDATES[text(mode, *_UPDATES)]
    if combine is None:
        result[where] = updates
    else:
        # NumPy's stubs leave out tuples of indices.
        combine.at(result, where, updates)  # type: ignore[arg-type]
    return result


GATHER_OPERATORS: Mapping[str, Operator] = {
    f.__name__: f
    for f in (
        topk,
        argsort,
        gather,
        gather_along_axis,
        gather_nd,
        scatter,
        scatter_along_axis,
        scatter_nd,
        non_zero,
        one_hot,
    )
}
