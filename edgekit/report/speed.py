"""How fast one artifact is beside another, from what was measured: interleaved where it was, else less surely."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.artifact.result import WIDEST, Ratio
from edgekit.report import formats
from edgekit.report.study import ReportRow

SURE = 1.1
"""Times: what a ratio of two medians that did not run interleaved may be off by, either way, on a quiet host."""


@dataclass(frozen=True)
class Speed:
    """Times as fast as another artifact, with its interval, and how that is known."""

    value: float
    low: float
    high: float
    how: str


def beside(row: ReportRow, base: ReportRow) -> Speed | None:
    """How many times as fast as `base` a row is; None where that was not measured or is too noisy to say.

    In this order: the two ran interleaved; both ran interleaved with the same third; their medians, where one runtime
    of one host ran both.
    """
    if row.timing is None or base.timing is None:
        return None
    p50 = f"p50 {formats.milliseconds(row.timing.p50)}"
    if row is base:
        return Speed(1.0, 1.0, 1.0, f"{p50}; all speeds are ratios to this")
    direct = next((ratio for ratio in row.verdict.ratios if ratio.baseline == base.target), None)
    if direct is not None:
        text = f"{p50}; 95 % interval {formats.interval(direct)}"
        return None if direct.noisy else Speed(direct.value, direct.low, direct.high, text)
    for own in row.verdict.ratios:
        for other in (ratio for ratio in base.verdict.ratios if ratio.baseline == own.baseline):
            return _through(own, other, p50)
    if _ran_in(row) != _ran_in(base):
        return None
    value = base.timing.p50 / row.timing.p50
    return Speed(value, value / SURE, value * SURE, f"{p50}; not run interleaved with {base.label}")


def _ran_in(row: ReportRow) -> tuple[str, str, str]:
    return row.origin, row.processor, formats.runtime(row)


def _through(own: Ratio, other: Ratio, p50: str) -> Speed | None:
    if own.noisy or other.noisy or own.high / other.low > WIDEST * own.low / other.high:
        return None
    text = f"{p50}; both ran interleaved with {own.baseline}"
    return Speed(own.value / other.value, own.low / other.high, own.high / other.low, text)
