"""Gathering, scattering and ordering by index: MIL's `scatter_gather` module, top-k, sorting, one-hot.

Definitions: https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html (iOS15 to iOS17).
Indices may be negative (counted from the end). One outside the tensor is an error here; a device may read anything.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mil_interpreter.operators.arguments import Operator, integer, sized, text
from mil_interpreter.records import Array, Value

_UPDATES: Mapping[str, np.ufunc | None] = {
    "update": None,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "max": np.maximum,
    "min": np.minimum,
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
    """The k largest (or smallest) values along an axis, in order, and their indices; ties go to the lower index.

    Where `sort` is false Core ML leaves the order open; this order is then as good as any.
    """
    text(output_indices_dtype, "int32", "uint16")
    along, count = integer(axis), integer(k)
    if not 0 <= count <= x.shape[along]:
        raise ValueError(f"the {count} largest of {x.shape[along]} values")
    indices = np.take(_order(x, along, bool(ascending)), np.arange(count), axis=along)
    values = np.take_along_axis(x, indices, axis=along)
    return (values, indices) if return_indices else (values,)


def argsort(x: Array, axis: Value | int = -1, ascending: Array | bool = False) -> Array:
    """Indices of the values in order, largest first unless ascending; ties go to the lower index."""
    return _order(x, integer(axis), bool(ascending))


def gather(
    x: Array,
    indices: Array,
    axis: Value | int = 0,
    batch_dims: Value | int = 0,
    validate_indices: Array | bool = False,
) -> Array:
    """Slices of `x` along an axis, one for each index; the first `batch_dims` axes are walked together."""
    along, batch = integer(axis) % x.ndim, integer(batch_dims)
    if batch == 0:
        return np.take(x, _inside(indices, x.shape[along]), axis=along)
    lead = x.shape[:batch]
    if indices.shape[:batch] != lead:
        raise ValueError(f"batches of {lead} and {indices.shape[:batch]}")
    rows = zip(x.reshape(-1, *x.shape[batch:]), indices.reshape(-1, *indices.shape[batch:]), strict=True)
    taken = [np.take(row, _inside(index, x.shape[along]), axis=along - batch) for row, index in rows]
    return np.stack(taken).reshape(*lead, *taken[0].shape)


def gather_along_axis(x: Array, indices: Array, axis: Value | int = 0, validate_indices: Array | bool = False) -> Array:
    """`x[..., indices[..., i, ...], ...]` along an axis: one index for each value of the result."""
    along = integer(axis)
    return np.take_along_axis(x, _inside(indices, x.shape[along]), axis=along)


def gather_nd(x: Array, indices: Array, batch_dims: Value | int = 0, validate_indices: Array | bool = False) -> Array:
    """`x[indices[..., 0], indices[..., 1], ...]`: the last axis of `indices` holds coordinates."""
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
    """A copy of `data` whose slices along an axis are replaced by, or combined with, the updates."""
    along = integer(axis) % data.ndim
    where = (slice(None),) * along + (_inside(indices, data.shape[along]),)
    return _updated(data, where, updates, mode)


def scatter_along_axis(
    data: Array,
    indices: Array,
    updates: Array,
    axis: Value | int = 0,
    mode: Value = "add",
    validate_indices: Array | bool = False,
) -> Array:
    """A copy of `data` with one update for each index along an axis."""
    along = integer(axis) % data.ndim
    where = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    where[along] = _inside(indices, data.shape[along])
    return _updated(data, tuple(where), updates, mode)


def scatter_nd(
    data: Array, indices: Array, updates: Array, mode: Value = "add", validate_indices: Array | bool = False
) -> Array:
    """A copy of `data` with updates at the coordinates in the last axis of `indices`."""
    where = tuple(_inside(indices[..., d], data.shape[d]) for d in range(indices.shape[-1]))
    return _updated(data, where, updates, mode)


def non_zero(x: Array) -> Array:
    """Coordinates of the values that are not zero, one row each."""
    return np.transpose(np.nonzero(x))


def one_hot(
    indices: Array,
    one_hot_vector_size: Value,
    axis: Value | int = -1,
    on_value: Array | int = 1,
    off_value: Array | int = 0,
) -> Array:
    """A new axis that holds `on_value` at the index and `off_value` elsewhere."""
    count = integer(one_hot_vector_size)
    sized((*indices.shape, count))
    hit = indices[..., None] == np.arange(count)
    return np.moveaxis(np.where(hit, on_value, off_value), -1, integer(axis))


def _order(x: Array, axis: int, ascending: bool) -> Array:
    """A stable order; descending is the stable order of the reversed array, so that integers need no negation."""
    if ascending:
        return np.argsort(x, axis=axis, kind="stable")
    flipped = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(flipped, axis))


def _inside(indices: Array, size: int) -> Array:
    wide = indices.astype(np.int64)
    if wide.size and not (-size <= int(wide.min()) and int(wide.max()) < size):
        raise ValueError(f"an index between {int(wide.min())} and {int(wide.max())} for {size} values")
    return np.asarray(np.where(wide < 0, wide + size, wide))


def _updated(data: Array, where: tuple[Array | slice, ...], updates: Array, mode: Value) -> Array:
    result = data.copy()
    combine = _UPDATES[text(mode, *_UPDATES)]
    if combine is None:
        result[where] = updates
    else:
        combine.at(result, where, updates)  # type: ignore[arg-type]  # NumPy's stubs leave tuples of indices out
    return result


TABLE: Mapping[str, Operator] = {
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
