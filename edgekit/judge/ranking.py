"""How far one ranking of scores is from another: swaps, changed orders, and the share of the scores that is lost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgekit.judge.spread import LEAST
from edgekit.model.spec import Array

MASS_FLOOR = 0.01
"""Score units. Where the best K have a smaller mean there is hardly any relevance to lose: the divisor ends here."""
MASSED = 0.1
"""Share of the scores' spread: the most that MASS_FLOOR may be."""
_Rows = Iterator[tuple[str, Array, Array]]  # metric, values [n], worst patches [n]


def ranking_measures(r: Array, c: Array, scores: tuple[Array, Array], tolerance: float, scale: float) -> _Rows:
    """Measures of a ranking, one value an image; what each is stands in `metrics.py`.

    Args:
        r: Of the reference, int64 [n, K].
        c: Of the artifact.
        scores: Of both sides, [n, N].
        tolerance: A swap of scores that are no further apart counts as right in "agreement" and "order faults".
        scale: How far real scores spread.
    """
    floor = min(MASS_FLOOR, MASSED * scale)
    found = [_ranked(*image, tolerance, floor) for image in zip(r, c, *scores, strict=True)]
    for metric in found[0]:
        values, patches = zip(*(image[metric] for image in found), strict=True)
        yield metric, np.array(values), np.array(patches)


def _ranked(
    right: Array, chosen: Array, s: Array, own: Array, tolerance: float, floor: float
) -> dict[str, tuple[float, int]]:
    s, own, k = s.astype(np.float64), own.astype(np.float64), len(right)
    displaced, instead = np.setdiff1d(right, chosen), np.setdiff1d(chosen, right)
    instead = instead[np.argsort(-s[instead])]
    gaps = np.append(np.maximum(np.sort(s[displaced])[::-1] - s[instead], 0.0), 0.0)
    rises, own_rises = (v[chosen] - np.minimum.accumulate(v[chosen]) for v in (s, own))
    own_gap = np.delete(own, chosen).max(initial=-np.inf) - own[chosen].min()
    mass = s - min(0.0, s.min())  # a share is one of masses that are not negative
    best = np.sort(mass)[-k:].sum()
    swapped, risen = int(np.append(instead, -1)[gaps.argmax()]), int(chosen[rises.argmax()])
    return {
        "jaccard": ((k - len(instead)) / (k + len(instead)), swapped),
        "agreement": (1 - float((gaps > tolerance).sum()) / k, swapped),
        "order faults": (float((rises > tolerance).sum()), risen),
        "swap gap": (float(gaps.max()), swapped),
        "order gap": (float(rises.max()), risen),
        "own gap": (max(0.0, float(own_gap), float(own_rises.max())), -1),
        "lost mass": (
            max(0.0, float(best - np.sort(mass[chosen]).sum())) / max(float(best), max(k * floor, LEAST)),
            swapped,
        ),
    }
