"""Real rows with other ids: those that no real row has, each category of a table in several rows, and words twice.

In INT8 a category that few rows have may become a similar one. A single row has an error of that size by chance. In
several rows with the same category such errors have one sign, and those of rounding cancel out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from edgekit.judge.metrics import FEW_IN_CHANNELS
from edgekit.model.evaluation_set import BATCH
from edgekit.model.spec import Array, Input, ModelSpec
from edgekit.reference.variations import TABLE, Row

# Rows that lend their other inputs if the model has no real ones.
RANDOM_ROWS = 4
# Rows that ask the ids which no real row has: of several ids each, and of one.
MOST_ID_ROWS, MOST_SINGLE_IDS = 64, 512
# Most ids of one column of a table, and of all of them.
MOST_OF_COLUMN, MOST_CATEGORIES = 128, 256
# Texts in which words are repeated, and the words of the shortest one.
REPEATED, SHORTEST_TEXT = 8, 8


def id_rows(spec: ModelSpec, own: Sequence[Row]) -> dict[str, Row]:
    """Return rows with the ids that no real row has; real rows in turn lend the other inputs, and their padding.

    An id is a value of an integer input with more than two values. If there are too many, each n-th is asked.
    """
    rows = own or [spec.random(seed) for seed in range(RANDOM_ROWS)]
    by_name: dict[str, Row] = {}
    for i in spec.inputs:
        if not _has_ids(i):
            continue
        most = MOST_SINGLE_IDS if rows[0][i.name].size == 1 else MOST_ID_ROWS
        step = max(1, math.ceil((i.high - i.low + 1) / (most * rows[0][i.name].size)))
        asked = np.concatenate([row[i.name].ravel() for row in own]) if own else np.empty(0)
        left = np.setdiff1d(np.arange(i.low, i.high + 1, step), asked)
        for number in range(most):
            if not len(left):
                break
            row = rows[number % len(rows)]
            kept = np.ones(row[i.name].shape, bool)
            for mask in spec.inputs:
                if mask.shape == i.shape and mask_axis(mask, row[mask.name]) is not None:
                    kept &= row[mask.name].astype(bool)
            ids, left = left[: kept.sum()], left[kept.sum() :]
            values = np.array(row[i.name])
            values[kept] = np.resize(ids, int(kept.sum()))
            by_name[f"'{i.name}' from {ids[0]:g} to {ids[-1]:g}"] = {**row, i.name: values}
    return by_name


def category_rows(spec: ModelSpec, own: Mapping[str, Row]) -> dict[str, Row]:
    """Return FEW_IN_CHANNELS real rows for each id that a real row of a table has, the rarest ids first.

    The rows have another id there themselves, and other ids get other rows.
    """
    names, rows = list(own), list(own.values())
    if not rows or any(i.kind != "tensor" or rows[0][i.name].size > TABLE for i in spec.inputs):
        return {}
    by_name: dict[str, Row] = {}
    for number, (_, column, i, value) in enumerate(
        sorted(_categories(spec, rows), key=lambda c: c[0])[:MOST_CATEGORIES]
    ):
        others = [place for place, row in enumerate(rows) if row[i.name].flat[column] != value]
        for k in range(min(FEW_IN_CHANNELS, len(others))):
            place = others[(number + k * len(others) // FEW_IN_CHANNELS) % len(others)]
            values = rows[place][i.name].copy()
            values.flat[column] = value
            where = f"'{i.name}'" if values.size == 1 else f"'{i.name}' {column}"
            by_name[f"{names[place]}, {where} = {value}"] = {**rows[place], i.name: values}
    return by_name


def repeated_rows(spec: ModelSpec, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return texts in which each two words follow twice: lists, and two words at other distances than in the data."""
    by_name: dict[str, Row] = {}
    for number, (name, row) in enumerate(list(rows.items())[:REPEATED]):
        masks = {i.shape: row[i.name] for i in spec.inputs if mask_axis(i, row[i.name]) is not None}
        repeated: dict[str, Array] = {}
        for i in spec.inputs:
            ids = row[i.name].ravel()
            if not _has_ids(i) or not _is_text(i, masks) or not ids.size == row[i.name].shape[-1] >= SHORTEST_TEXT:
                continue
            length = int(masks[i.shape].sum()) if i.shape in masks else ids.size
            # The first word stays: it is often a mark. Pairs begin at the second or third one.
            first = 1 + number % 2
            places = np.maximum(np.arange(length) - first, 0)
            places = np.where(np.arange(length) < first, np.arange(length), first + 2 * (places // 4) + places % 2)
            repeated[i.name] = np.concatenate([ids[places], ids[length:]]).reshape(row[i.name].shape)
        by_name |= {f"{name}, words twice": {**row, **repeated}} if repeated else {}
    return by_name


def _has_ids(i: Input) -> bool:
    return i.kind == "tensor" and np.dtype(i.dtype).kind in "iu" and i.high - i.low >= 2


def _is_text(i: Input, masks: Collection[tuple[int | str, ...]]) -> bool:
    """Return whether the values of an input are a text's: their number is open, or a mask has the same shape."""
    return i.shape in masks or any(isinstance(size, str) and size != BATCH for size in i.shape)


def _categories(spec: ModelSpec, rows: Sequence[Row]) -> Iterator[tuple[int, int, Input, int]]:
    """Yield the ids of each column of integers: number of rows that have it, column, input, id."""
    masks = {i.shape for i in spec.inputs if all(mask_axis(i, row[i.name]) is not None for row in rows)}
    for i in spec.inputs:
        # Words of a text are no columns.
        if np.dtype(i.dtype).kind not in "iu" or _is_text(i, masks):
            continue
        columns = np.stack([row[i.name].ravel() for row in rows], 1)
        for column, values in enumerate(columns):
            ids, counts = np.unique(values, return_counts=True)
            if 1 < len(ids) <= MOST_OF_COLUMN:
                yield from ((int(n), column, i, int(value)) for value, n in zip(ids, counts, strict=True))


def mask_axis(i: Input, array: Array) -> int | None:
    """Return the axis along which an input of a row is a mask of a prefix (ones, then zeros); None if it is none."""
    if i.kind != "tensor" or i.low != 0 or i.high != 1 or np.dtype(i.dtype).kind not in "iub" or array.ndim < 2:
        return None
    axes = [axis for axis, name in enumerate(i.shape) if isinstance(name, str) and name != BATCH]
    # A text of fixed length is padded too.
    axes = axes or [axis for axis, size in enumerate(i.shape) if isinstance(size, int) and size > 1]
    falls = len(axes) == 1 and array.any() and (np.diff(array.astype(np.int8), axis=axes[0]) <= 0).all()
    return axes[0] if falls else None
