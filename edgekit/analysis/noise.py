"""Noise of tensors: the root mean square of their difference, relative to their own."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from edgekit.model.spec import Array


@dataclass
class Noise:
    """Sums over images, by tensor.

    Attributes:
        signal: Of squares.
        error: Of squared differences.
        kinds: Of the tensors: "f" for floats; of others the share of values that differ counts.
    """

    signal: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    error: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    kinds: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, right: Array, other: Array) -> None:
        """Compare a tensor on one image; one of another shape is left out.

        Where the right value is not finite, as in masks, nothing is compared; where only the other is not, it is lost.
        """
        if right.shape != other.shape:
            return
        self.kinds[name] = "f" if right.dtype.kind == "f" else "i"
        if right.dtype.kind != "f":
            self.signal[name] += right.size
            self.error[name] += int((right != other).sum())
            return
        there = np.isfinite(right)
        x, y = right[there].astype(np.float64), other[there].astype(np.float64)
        y = np.where(np.isfinite(y), y, 0.0)
        self.signal[name] += float((x * x).sum())
        self.error[name] += float(((x - y) ** 2).sum())

    def largest(self, names: Iterable[str]) -> float | None:
        """Of the noisiest of some tensors; of the floats, where there are any; None where none was compared."""
        known = [name for name in names if self.signal.get(name, 0.0) > 0]
        floats = [name for name in known if self.kinds[name] == "f"]
        if floats:
            return max(math.sqrt(self.error[name] / self.signal[name]) for name in floats)
        return max((self.error[name] / self.signal[name] for name in known), default=None)
