"""Differences between an artifact's detections and the reference's: a list of boxes against a list of boxes.

If two boxes have equal scores, or overlap at the threshold of non-maximum suppression, rounding decides which one is
dropped. So lists are not compared row by row:

- detection gap: the largest unexplained score over all detections of either side. A score is explained up to the
  strongest detection of its class on the other side that overlaps it by EXPLAINS, up to the threshold, or up to the
  last score of a full list. Greedy suppression always leaves one of these, whatever the order of equal scores: two
  sides whose scores differ by e have a gap of at most 2 e. A missing or extra detection, a wrong class or a wrong score
  has a gap of its full size.
- detections of a class that overlap by MATCHED are matched, each once, the largest overlap first. iou: the mean overlap
  of a row's matches. misplaced: 1 less that, a share over all detections. lost detections: those without a match on the
  side that has more of them, over the reference's.
- moved box: the largest 1 less overlap of a row's matches, times the score: a mean over a hundred hides its best.
- untied iou, lost untied detections: the same of rows in which no two of the reference's detections of a class have
  scores within TIED. Over a flat picture all scores are equal, and rounding chooses among the boxes.
- own gap: the rise of the artifact's own scores along its list, 1 if there is anything after the list's end. own count:
  the difference between its count and the number of its detections.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgekit.model.spec import Array, Output

# Channels of a detection: left, top, right, bottom, and the places of its score and class.
CORNERS, SCORE, CLASS = 4, 4, 5
# Overlaps: the lowest suppression threshold in use (0.3 to 0.7), and PASCAL VOC's threshold of a correct box.
EXPLAINS, MATCHED = 0.3, 0.5
# Class numbers are exact in fp16 up to 2048, and the next class is 1 away.
SAME = 1e-3
# Score units: a hundred times the rounding of a score in fp32.
TIED = 1e-5
UNTIED = ("untied iou", "lost untied detections")
# Metric, values [n], worst positions [n].
_Rows = Iterator[tuple[str, Array, Array]]


def detection_measures(output: Output, r: Array, c: Array) -> _Rows:
    """Yield the measures of detections of the reference and of the artifact: float64 [n, most, 6].

    Yields nothing if neither side has a detection: such inputs cannot verify an artifact.
    """
    if not ((r[..., SCORE] > 0).any() or c.any()):
        return
    threshold = output.threshold or 0.0
    table = np.array([_row(expected, other, threshold) for expected, other in zip(r, c, strict=True)]).reshape(-1, 5)
    gap, iou, lost, moved, place = table.T
    place, tied = place.astype(np.int64), np.array([_are_tied(row) for row in r], bool)
    yield "detection gap", gap, place
    yield "own gap", np.array([_own_gap(row) for row in c]), place
    yield "iou", iou, place
    yield "misplaced", 1.0 - iou, place
    yield "lost detections", lost, place
    yield "moved box", moved, place
    yield UNTIED[0], np.where(tied, 1.0, iou), place
    yield UNTIED[1], np.where(tied, 0.0, lost), place


def count_detections(rows: Array) -> Array:
    """Return the number of detections in each row [n, most, 6], at least 1: int64 [n]."""
    return np.asarray(np.maximum((rows[..., SCORE] > 0).sum(1), 1))


def count_measures(c: Array, detections: Array) -> _Rows:
    """Yield the measures of an artifact's counts [n] against its own detections [n, most, 6]."""
    counts = (detections[..., SCORE] > 0).sum(1)
    if c.any() or counts.any():
        yield "own count", np.abs(c - counts), np.full(len(c), -1)


def matches(r: Array, c: Array) -> Iterator[tuple[int, int, float]]:
    """Yield matches of two sides' detections [most, 6]: row on each side and overlap, the largest first."""
    shared = np.where(_alike(r, c), _overlaps(r, c), 0.0)
    for place in np.argsort(-shared, axis=None, kind="stable"):
        row, other = divmod(int(place), len(c))
        if shared[row, other] < MATCHED:
            return
        yield row, other, float(shared[row, other])
        shared[row], shared[:, other] = 0.0, 0.0


def pair_detections(r: Array, c: Array) -> Array:
    """Return the other side's detections [n, most, 6] in the order of their matches; NaN without a match."""
    table = np.where(r[..., SCORE, None] > 0, np.nan, np.zeros_like(c))
    for row, (expected, other) in enumerate(zip(r, c, strict=True)):
        for place, partner, _ in matches(expected, other):
            table[row, place] = other[partner]
    return table


def _row(r: Array, c: Array, threshold: float) -> tuple[float, float, float, float, int]:
    """Return gap, mean overlap of the matches, share without a match, worst match, position of the largest gap."""
    gaps = np.append(_gaps(r, c, threshold), _gaps(c, r, threshold))
    pairs = list(matches(r, c))
    real = int(_has_detection(r).sum()), int(_has_detection(c).sum())
    iou = float(np.mean([overlap for *_, overlap in pairs])) if pairs else 1.0
    # A detection in place of another counts once.
    lost = (max(real) - len(pairs)) / max(real[0], 1)
    moved = max((float(r[row, SCORE]) * (1.0 - overlap) for row, _, overlap in pairs), default=0.0)
    return float(gaps.max()), iou, lost, moved, int(gaps.argmax()) % len(r)


def _gaps(array: Array, other: Array, threshold: float) -> Array:
    """Return the unexplained score of each detection; 0 for empty places."""
    near = _alike(array, other) & (_overlaps(array, other) >= EXPLAINS)
    strongest = np.where(near, other[None, :, SCORE], 0.0).max(1)
    last = other[:, SCORE].min() if _has_detection(other).all() else 0.0
    explained = np.maximum(strongest, max(threshold, last))
    return np.where(_has_detection(array), np.maximum(array[:, SCORE] - explained, 0.0), 0.0)


def _has_detection(rows: Array) -> Array:
    return np.asarray(rows[:, SCORE] > 0)


def _alike(array: Array, other: Array) -> Array:
    """Return which pairs are detections of one class: bool [p, q]."""
    classes = np.abs(array[:, None, CLASS] - other[None, :, CLASS]) <= SAME
    return np.asarray(classes & _has_detection(array)[:, None] & _has_detection(other)[None])


def _overlaps(array: Array, other: Array) -> Array:
    """Return intersection over union: [p, q]; 1 for two equal boxes, even without an area."""
    a, b = array[:, None, :CORNERS], other[None, :, :CORNERS]
    sides = np.maximum(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0.0)
    areas = [np.maximum(x[..., 2:] - x[..., :2], 0.0).prod(-1) for x in (a, b)]
    union = areas[0] + areas[1] - sides.prod(-1)
    return np.asarray(np.where(union > 0, sides.prod(-1) / np.where(union > 0, union, 1.0), (a == b).all(-1)))


def _are_tied(row: Array) -> bool:
    """Return whether two detections of a class have equal scores but for rounding."""
    near = _alike(row, row) & (np.abs(row[:, None, SCORE] - row[None, :, SCORE]) <= TIED)
    return bool((near & ~np.eye(len(row), dtype=bool)).any())


def _own_gap(row: Array) -> float:
    scores = row[:, SCORE]
    rise = float((scores - np.minimum.accumulate(scores)).max())
    return max(rise, float(bool(row[~_has_detection(row)].any())))
