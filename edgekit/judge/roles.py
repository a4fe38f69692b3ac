"""Measures of an output's role: largest logits, overlaps of boxes and masks, angles of embeddings; one per row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from edgekit.judge.detections import count_detections, count_measures, detection_measures
from edgekit.judge.deviation import LEAST, Spreads, as_rows, channel_axis, class_spread, classes_of
from edgekit.model.spec import Array, Output

# Rows. With fewer, embeddings are not centred: the mean of one is the embedding itself.
CENTRED = 4
# Share of the mean length. The direction of a shorter embedding is mostly rounding.
DIRECTED = 0.1
# Channels of a box before its confidences.
CORNERS = 4
# Confidence in 0 to 1 above which a box counts.
CONFIDENT = 0.5
# Probability by which another class may be less likely: the rounding of fp16 below 1.
AS_LIKELY = 1e-3
# Metrics that are a share of a row's decisions.
SHARES = ("flips", "lost accuracy", "wrong labels")
# Metrics that are a share of the confident boxes -> the confidence that decides: the first, or the largest.
COUNTED: Mapping[str, Callable[[Array], Array]] = {
    "lost boxes": lambda confidences: confidences[..., 0],
    "lost classes": lambda confidences: confidences.max(-1),
}
# Metric, values [n], worst positions [n].
_Rows = Iterator[tuple[str, Array, Array]]


def role_measures(
    output: Output, r: Array, c: Array, base: tuple[Output, Array, Array] | None, scales: Spreads
) -> _Rows:
    """Yield the measures of an output's role; none for a role without a specific purpose.

    Args:
        output: The output.
        r: The reference's values, float64 [n, ...].
        c: The artifact's values.
        base: The logits or probabilities behind labels, or the detections behind a count, with the values of both
            sides.
        scales: Spreads of real inputs: a batch of empty boxes must not be the unit of its one half-likely box.
    """
    if output.role == "count" and base is not None:
        yield from count_measures(c, base[2])
    elif np.dtype(output.dtype).kind in "iub":
        yield from _labels(output, r, c, base, scales)
    elif output.role in ("logits", "probabilities"):
        yield from _classes(output, r, c, scales)
    elif output.role in _MEASURES:
        yield from _MEASURES[output.role](output, r, c)


def decisions(output: Output, metric: str, rows: Array) -> Array:
    """Return the number of decisions in each row of the reference's output [n, ...]: int64 [n].

    Decisions are labels and largest classes, detections, and the confidences of boxes or the confident boxes. Metrics
    that are shares refer to them.
    """
    each = math.prod(rows.shape[1:])
    if output.role == "detections":
        return count_detections(rows)
    if output.role in ("logits", "probabilities", "boxes"):
        values = as_rows(output, rows)
        each = values.shape[1]
        if output.role == "boxes":
            sure = values[..., CORNERS:]
            if metric in COUNTED and sure.size:
                return np.asarray(np.maximum((COUNTED[metric](sure) > CONFIDENT).sum(1), 1))
            each *= max(sure.shape[2], 1)
    return np.full(len(rows), each if metric in SHARES else 1)


def _labels(output: Output, r: Array, c: Array, base: tuple[Output, Array, Array] | None, scales: Spreads) -> _Rows:
    wrong = (r != c).reshape(len(r), -1)
    place = wrong.argmax(1)
    if output.role != "labels" and np.dtype(output.dtype).kind != "b":
        yield "unequal", wrong.mean(1), place
        return
    if base is None:
        yield "wrong labels", wrong.mean(1), place
        return
    classes, *sides = base
    for metric, values in zip(("label gap", "own label gap"), sides, strict=True):
        gap = _label_gap(classes, values, c.astype(np.int64), scales)
        yield metric, gap.max(1), gap.argmax(1)
    lost = _label_gap(classes, sides[0], c.astype(np.int64), scales, probabilities)
    yield "flips", (wrong & (lost.reshape(wrong.shape) > AS_LIKELY)).mean(1), place
    yield "lost accuracy", np.where(np.isfinite(lost), lost, 1.0).mean(1), place


def _label_gap(
    classes: Output,
    values: Array,
    array: Array,
    scales: Spreads,
    unit: Callable[[Output, Array], Array] | None = None,
) -> Array:
    """Return how far the labelled classes are below the largest, [n, labels], by default in units of their spread."""
    axis = _axis_of(classes, values, array.shape)
    array = array.reshape(len(array), -1)
    if axis is None:
        return np.full(array.shape, np.inf)
    values = as_rows(classes, values, axis)
    values = values / _unit(classes, values, scales) if unit is None else unit(classes, values)
    in_range = (array >= 0) & (array < values.shape[-1])
    return np.asarray(np.where(in_range, _below(values, np.where(in_range, array, 0)), np.inf))


def _below(values: Array, array: Array) -> Array:
    """Return how far chosen classes are below the largest of the last axis."""
    return np.asarray(values.max(-1) - np.take_along_axis(values, array[..., None], -1)[..., 0])


def probabilities(output: Output, values: Array) -> Array:
    """Return the probabilities of classes along the last axis, as the model gives them.

    Logits pass a softmax. If the classes spread by less than 1 (cosines, say), they are stretched to 1, so that a wrong
    choice between close classes has a cost.
    """
    if output.role == "probabilities":
        return values
    wide = values * max(1.0, 1.0 / class_spread(values))
    raised = np.exp(wide - wide.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def _axis_of(classes: Output, values: Array, labels: tuple[int, ...]) -> int | None:
    """Return the axis of the classes: without it the shape is the labels'; the declared one if several fit."""
    places = math.prod(labels)
    fits = [a for a in range(1, values.ndim) if math.prod(values.shape) == places * values.shape[a]]
    shaped = [
        a for a in fits if tuple(s for s in np.delete(values.shape, a) if s > 1) == tuple(s for s in labels if s > 1)
    ]
    declared = channel_axis(classes, values)
    if declared in shaped or (not shaped and declared in fits):
        return declared
    return next(iter(shaped or fits), None)


def _classes(output: Output, r: Array, c: Array, scales: Spreads) -> _Rows:
    r, c = (as_rows(output, a) for a in (r, c))
    classes = c.argmax(-1)
    gap = _below(r, classes) / _unit(output, r, scales)
    yield "argmax gap", gap.max(1), gap.argmax(1)
    lost = _below(probabilities(output, r), classes)
    yield "flips", (lost > AS_LIKELY).mean(1), gap.argmax(1)
    yield "lost accuracy", lost.mean(1), gap.argmax(1)
    if output.role == "probabilities":
        moved = np.abs(r - c).sum(-1) / 2.0
        yield "total variation", moved.max(1), moved.argmax(1)


def _unit(output: Output, values: Array, scales: Spreads) -> float:
    """Return the spread of an output's classes: of real inputs, or of these rows if that is larger."""
    return max([class_spread(values), *map(float, scales.get(classes_of(output.name), ()))])


def _boxes(output: Output, r: Array, c: Array) -> _Rows:
    r, c = (as_rows(output, a) for a in (r, c))
    if r.shape[-1] < CORNERS:
        return
    sure, other = r[..., CORNERS:], c[..., CORNERS:]
    has_confidences = bool(sure.size) and sure.min() >= 0.0 and sure.max() <= 1.0
    if has_confidences:
        crossed = ((sure > CONFIDENT) != (other > CONFIDENT)).reshape(len(r), -1)
        yield "flips", crossed.mean(1), crossed.argmax(1)
        for metric, confidence in COUNTED.items():
            counts = confidence(sure) > CONFIDENT
            crossed = counts != (confidence(other) > CONFIDENT)
            yield metric, crossed.sum(1) / np.maximum(counts.sum(1), 1), crossed.argmax(1)
    r, c = r[..., :CORNERS], c[..., :CORNERS]
    inner = np.minimum(r[..., 2:], c[..., 2:]) - np.maximum(r[..., :2], c[..., :2])
    shared = np.maximum(inner, 0.0).prod(-1)
    areas = [np.maximum(a[..., 2:] - a[..., :2], 0.0).prod(-1) for a in (r, c)]
    real = areas[0] > 0
    iou = np.where(real, shared / np.maximum(areas[0] + areas[1] - shared, LEAST), 1.0)
    yield "iou", iou.mean(1), iou.argmin(1)
    if has_confidences:
        moved = (1.0 - iou) * sure.max(-1)
        yield "moved box", moved.max(1), moved.argmax(1)


def _mask(output: Output, r: Array, c: Array) -> _Rows:
    middle = (output.low + output.high) / 2.0
    inside, other = ((a > middle).reshape(len(a), -1) for a in (r, c))
    either = (inside | other).sum(1)
    iou = np.where(either > 0, (inside & other).sum(1) / np.maximum(either, 1), 1.0)
    yield "mask iou", iou, (inside != other).argmax(1)
    sure = np.minimum(np.abs(r.reshape(len(r), -1) - middle) / max((output.high - output.low) / 2.0, LEAST), 1.0)
    wrong = np.where(inside != other, sure, 0.0)
    yield "lost mask", wrong.sum(1) / np.maximum(either, 1), wrong.argmax(1)


def _embedding(output: Output, r: Array, c: Array) -> _Rows:
    r, c = (a.reshape(len(a), -1) for a in (r, c))
    middle = r.mean(0) if len(r) >= CENTRED else 0.0
    r, c = r - middle, c - middle
    lengths = np.linalg.norm(r, axis=1, keepdims=True)
    # The arc cosine loses half the digits near 1; the chord between unit vectors does not.
    units = [a / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), LEAST) for a in (r, c)]
    angle = 2.0 * np.arcsin(np.minimum(np.linalg.norm(units[0] - units[1], axis=1) / 2.0, 1.0))
    has_direction = lengths[:, 0] >= DIRECTED * lengths.mean()
    yield "angle", np.where(has_direction, np.degrees(angle), 0.0), np.full(len(r), -1)


_MEASURES: Mapping[str, Callable[[Output, Array, Array], _Rows]] = {
    "boxes": _boxes,
    "detections": detection_measures,
    "mask": _mask,
    "embedding": _embedding,
}
