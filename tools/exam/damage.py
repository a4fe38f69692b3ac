"""What is done to stored values: kernels and matrices, vectors, single numbers. Values have the type of the graph's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgekit.model.spec import Array


def flipped(w: Array) -> Array:
    """The second highest bit of the value that is the median by magnitude: of a float its highest exponent bit."""
    place = int(np.argsort(np.abs(w), axis=None)[w.size // 2])
    new = w.copy()
    if w.dtype.kind == "f":
        bits = np.array([w.flat[place]], np.float32).view(np.uint32)
        new.flat[place] = np.clip((bits ^ np.uint32(1 << 26)).view(np.float32)[0], -6e4, 6e4)  # fp16 ends there
    else:
        new.flat[place] ^= 1 << 6
    return new


def row(w: Array, factor: float) -> Array:
    """One column of a matrix, or one kernel, times a factor."""
    new = w.copy()
    if w.ndim == 2:
        new[:, 1] = np.round(new[:, 1] * factor, 12)
    else:
        new[1] = new[1] * factor
    return new


def transposed(w: Array) -> Array:
    return w.T if w.ndim == 2 and w.shape[0] == w.shape[1] else w.reshape(w.shape[::-1]).T


def rounded(bits: int) -> Callable[[Array], Array]:
    return lambda w: np.round(w / (step := np.abs(w).max() / (2 ** (bits - 1) - 1))) * step


def _swapped(w: Array) -> Array:
    order = np.arange(w.shape[0])
    order[[0, -1]] = order[[-1, 0]]
    return w[order]


def _dropped(w: Array) -> Array:
    new = w.copy()
    new[: max(w.shape[0] // 4, 1)] = 0
    return new


DAMAGES: dict[str, Callable[[Array], Array]] = {
    "times 1.02": lambda w: w * 1.02,
    "times 1.25": lambda w: w * 1.25,
    "times 0.8": lambda w: w * 0.8,
    "swapped": _swapped,
    "reversed": lambda w: w[::-1],
    "transposed": transposed,
    "dropped": lambda w: np.zeros_like(w),
    "a quarter dropped": _dropped,
    "of 3 bits": rounded(3),
    "of 4 bits": rounded(4),
    "of 5 bits": rounded(5),
    "a bit flipped": flipped,
    "sign of a row": lambda w: row(w, -1),
    "a row dropped": lambda w: row(w, 0),
}
VECTORS: dict[str, Callable[[Array], Array]] = {
    "dropped": lambda w: np.zeros_like(w),
    "times 1.5": lambda w: w * 1.5,
    "rolled": lambda w: np.roll(w, 1),
    "sign of all": lambda w: -w,
}
NUMBERS: dict[str, Callable[[Array], Array]] = {
    "times 1.1": lambda w: w * 1.1,
    "times 0.5": lambda w: w * 0.5,
    "times -1": lambda w: -w,
    "plus 0.25": lambda w: w + 0.25,
}
