"""How far an artifact's detections are from the reference's: a list of boxes against a list of boxes.

Which of two boxes goes is decided by rounding where their scores are equal, or overlap at the threshold of non-maximum
suppression. So what is compared is not row with row:

- detection gap: the largest, over all detections of either side, of its score less what explains that the other side
  has it weaker or not at all: the strongest detection of its class there that overlaps it by EXPLAINS, the threshold,
  or the last score of a full list. Greedy suppression leaves no detection without one of these, whatever the order of
  equal scores: two sides whose scores differ by e have a gap of at most 2 e. A detection that is missing, one too many,
  one of another class, one whose score is off have as much as that is.
- detections of a class that overlap by MATCHED are matched, each once, the largest overlap first. iou: the mean overlap
  of a row's matches; misplaced: 1 less that, a share over all detections; lost detections: those without a match, of
  the side that has more of them, over the reference's.
- untied iou, lost untied detections: the same of rows in which no two of the reference's detections of a class have
  scores within TIED. Over a flat picture all scores are equal, and rounding chooses among the boxes.
- own gap: how far the artifact's own scores rise along its list, 1 where something stands after its end; own count: how
  far its count is from the number of its detections.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgekit.model.spec import Array, Output

CORNERS, SCORE, CLASS = 4, 4, 5
"""Channels of a detection: left, top, right, bottom, and the places of its score and class."""
EXPLAINS, MATCHED = 0.3, 0.5
"""Overlaps: the least above which suppression is asked for in use (0.3 to 0.7), and PASCAL VOC's of a right box."""
SAME = 1e-3
"""Classes: their numbers are exact in fp16 up to 2048, and another one is 1 away."""
TIED = 1e-5
"""Score units: a hundred times the rounding of a score in fp32."""
UNTIED = ("untied iou", "lost untied detections")
_Rows = Iterator[tuple[str, Array, Array]]  # metric, values [n], worst positions [n]


def detection_measures(output: Output, r: Array, c: Array) -> _Rows:
    """Measures of detections, of the reference and of the artifact: float64 [n, most, 6].

    None where neither has any in these rows: an artifact that is asked for no box at all is not verified by that.
    """
    if not ((r[..., SCORE] > 0).any() or c.any()):
        return
    threshold = output.threshold or 0.0
    table = np.array([_row(expected, other, threshold) for expected, other in zip(r, c, strict=True)]).reshape(-1, 4)
    gap, iou, lost, place = table.T
    place, tied = place.astype(np.int64), np.array([_are_tied(row) for row in r], bool)
    yield "detection gap", gap, place
    yield "own gap", np.array([_own_gap(row) for row in c]), place
    yield "iou", iou, place
    yield "misplaced", 1.0 - iou, place
    yield "lost detections", lost, place
    yield UNTIED[0], np.where(tied, 1.0, iou), place
    yield UNTIED[1], np.where(tied, 0.0, lost), place


def count_detections(rows: Array) -> Array:
    """How many detections each row [n, most, 6] has, at least 1: int64 [n]."""
    return np.asarray(np.maximum((rows[..., SCORE] > 0).sum(1), 1))


def count_measures(c: Array, detections: Array) -> _Rows:
    """Of an artifact's counts [n] against its own detections [n, most, 6]."""
    counts = (detections[..., SCORE] > 0).sum(1)
    if c.any() or counts.any():
        yield "own count", np.abs(c - counts), np.full(len(c), -1)


def matches(r: Array, c: Array) -> Iterator[tuple[int, int, float]]:
    """Detections [most, 6] of two sides that are the same: places on both sides and overlap, the largest first."""
    shared = np.where(_alike(r, c), _overlaps(r, c), 0.0)
    for place in np.argsort(-shared, axis=None, kind="stable"):
        row, other = divmod(int(place), len(c))
        if shared[row, other] < MATCHED:
            return
        yield row, other, float(shared[row, other])
        shared[row], shared[:, other] = 0.0, 0.0


def pair_detections(r: Array, c: Array) -> Array:
    """The other side's detections [n, most, 6] where their matches stand; NaN for what has none."""
    table = np.where(r[..., SCORE, None] > 0, np.nan, np.zeros_like(c))
    for row, (expected, other) in enumerate(zip(r, c, strict=True)):
        for place, partner, _ in matches(expected, other):
            table[row, place] = other[partner]
    return table


def _row(r: Array, c: Array, threshold: float) -> tuple[float, float, float, int]:
    """Gap, mean overlap of the matches, share of those without one, and where it is worst."""
    gaps = np.append(_gaps(r, c, threshold), _gaps(c, r, threshold))
    pairs = list(matches(r, c))
    real = int(_has_detection(r).sum()), int(_has_detection(c).sum())
    iou = float(np.mean([overlap for *_, overlap in pairs])) if pairs else 1.0
    lost = (max(real) - len(pairs)) / max(real[0], 1)  # one that takes another's place is one
    return float(gaps.max()), iou, lost, int(gaps.argmax()) % len(r)


def _gaps(array: Array, other: Array, threshold: float) -> Array:
    """How far each detection's score is above what explains it on the other side; 0 of what is none."""
    near = _alike(array, other) & (_overlaps(array, other) >= EXPLAINS)
    strongest = np.where(near, other[None, :, SCORE], 0.0).max(1)
    last = other[:, SCORE].min() if _has_detection(other).all() else 0.0
    explained = np.maximum(strongest, max(threshold, last))
    return np.where(_has_detection(array), np.maximum(array[:, SCORE] - explained, 0.0), 0.0)


def _has_detection(rows: Array) -> Array:
    return np.asarray(rows[:, SCORE] > 0)


def _alike(array: Array, other: Array) -> Array:
    """Which are detections of one class: bool [p, q]."""
    classes = np.abs(array[:, None, CLASS] - other[None, :, CLASS]) <= SAME
    return np.asarray(classes & _has_detection(array)[:, None] & _has_detection(other)[None])


def _overlaps(array: Array, other: Array) -> Array:
    """Intersection over union: [p, q]; 1 of two boxes that are equal, also without an area."""
    a, b = array[:, None, :CORNERS], other[None, :, :CORNERS]
    sides = np.maximum(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0.0)
    areas = [np.maximum(x[..., 2:] - x[..., :2], 0.0).prod(-1) for x in (a, b)]
    union = areas[0] + areas[1] - sides.prod(-1)
    return np.asarray(np.where(union > 0, sides.prod(-1) / np.where(union > 0, union, 1.0), (a == b).all(-1)))


def _are_tied(row: Array) -> bool:
    """Whether two detections of a class have scores that are equal but for rounding."""
    near = _alike(row, row) & (np.abs(row[:, None, SCORE] - row[None, :, SCORE]) <= TIED)
    return bool((near & ~np.eye(len(row), dtype=bool)).any())


def _own_gap(row: Array) -> float:
    scores = row[:, SCORE]
    rise = float((scores - np.minimum.accumulate(scores)).max())
    return max(rise, float(bool(row[~_has_detection(row)].any())))
