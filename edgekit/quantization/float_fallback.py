"""Which groups of layers stay in float, for any format whose own tool quantizes it: as few as hold the gate.

Everything is quantized first. Where that breaks the gate, each group is quantized alone, which says how sensitive it
is, and the most sensitive fall back to float one by one until the gate holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from edgekit.quantization.evaluator import STRICTER, Quality

T = TypeVar("T")


@dataclass(frozen=True)
class FloatFallback:
    """Which groups stay in float, and how good the artifact is then.

    Attributes:
        floats: Groups that stay in float arithmetic, sorted.
        quality: Of the artifact with these, on samples held back from calibration.
        tried: Candidates that were judged.
    """

    floats: tuple[str, ...]
    quality: Quality
    tried: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the choice, in sentences."""
        kept = (f"in float arithmetic: {', '.join(self.floats)}",) if self.floats else ()
        if self.quality.passed or self.quality.broken:
            return kept
        best = (
            f"nothing passed the gate, with {1.0 - STRICTER:.0%} of its room kept, on samples held back from "
            f"calibration: this is the best of {self.tried} ({self.quality.reasons[0]})"
        )
        return (*kept, best)

    @property
    def failures(self) -> tuple[str, ...]:
        """The limit of the gate that even the best choice breaks, in a sentence."""
        if not self.quality.broken:
            return ()
        return (f"no choice holds the gate's limits on samples held back from calibration: {self.quality.broken[0]}",)


def with_more_floats(
    order: Sequence[str], judge: Callable[[tuple[str, ...]], T], passed: Callable[[T], bool]
) -> list[T]:
    """What was judged with the first of some groups in float, one more each time, until one passes; never with all.

    Args:
        order: The groups, the most sensitive first.
        judge: Makes a candidate with these groups in float, and says how good it is.
        passed: Whether that is enough.
    """
    rows: list[T] = []
    for count in range(1, len(order)):
        rows.append(judge(tuple(order[:count])))
        if passed(rows[-1]):
            break
    return rows


def fewest_broken(candidates: Iterable[T], questions: Sequence[Callable[[T], int]]) -> T:
    """The first candidate that breaks no limit; where there is none, the one that gets furthest.

    Args:
        candidates: In the order of preference, at least one.
        questions: Each counts the limits that a candidate breaks; one that breaks some is not asked the next.
    """
    failures: list[tuple[tuple[int, int], T]] = []
    for one in candidates:
        counts = ((number, ask(one)) for number, ask in enumerate(questions))
        failed = next(((-number, count) for number, count in counts if count), None)
        if failed is None:
            return one
        failures.append((failed, one))
    return min(failures, key=lambda each: each[0])[1]


def float_fallback(
    parts: Collection[str],
    judge: Callable[[tuple[str, ...]], Quality],
    snr: Callable[[tuple[str, ...]], float],
    progress: Callable[[float, str], None] = lambda done, text: None,
) -> FloatFallback:
    """Find the groups to keep in float.

    Args:
        parts: All groups that can be quantized.
        judge: Makes a candidate with these groups in float, and says how good it is.
        snr: The same, and says its signal-to-noise ratio alone, in dB: it orders the groups.
        progress: Called with the share done and what is tried.
    """
    progress(0.0, "everything in INT8")
    qualities: dict[tuple[str, ...], Quality] = {(): judge(())}
    order: list[str] = []
    if not qualities[()].passed and len(parts) > 1:
        alone: dict[str, float] = {}
        for number, part in enumerate(parts):
            progress(0.1 + 0.4 * number / len(parts), f"only {part} in INT8")
            alone[part] = snr(tuple(sorted(other for other in parts if other != part)))
        order = sorted(alone, key=alone.__getitem__)

    def tried(floats: tuple[str, ...]) -> Quality:
        progress(0.5 + 0.5 * len(floats) / len(order), f"in float: {', '.join(sorted(floats))}")
        qualities[tuple(sorted(floats))] = quality = judge(tuple(sorted(floats)))
        return quality

    with_more_floats(order, tried, lambda quality: quality.passed)
    best = max(qualities, key=lambda floats: (qualities[floats].passed, qualities[floats].snr_db))
    return FloatFallback(best, qualities[best], len(qualities))
