"""The direction of an artifact's answer against the reference's."""

from __future__ import annotations

import numpy as np

from edgekit.model.spec import Array


def map_cosine(r: Array, c: Array, floor: float) -> Array:
    """Of maps [n, patches]; that of two with a root mean square below the floor counts by their size (metrics.py)."""
    share = np.minimum(np.maximum((r * r).mean(1), (c * c).mean(1)) / floor**2, 1.0)
    return np.asarray(1.0 - share * (1.0 - cosine(r, c)))


def cosine(a: Array, b: Array) -> Array:
    """Along the last axis; 1 where both are zero, 0 where one is."""
    # Divided by the largest magnitude first, since squares may leave float64's range.
    a, b = (v / np.maximum(np.abs(v).max(-1, keepdims=True), np.finfo(np.float64).tiny) for v in (a, b))
    lengths = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return np.asarray(np.where(a.any(-1) | b.any(-1), (a * b).sum(-1) / np.where(lengths > 0, lengths, 1.0), 1.0))
