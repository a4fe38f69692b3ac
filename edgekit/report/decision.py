"""The number that decided a verdict: of what is rejected the one furthest beyond its limit, else the nearest to it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from edgekit.artifact.fact import EVALUATION
from edgekit.artifact.result import Measure, Verdict
from edgekit.report import formats
from edgekit.report.change import badness


def share_of_limit(measure: Measure) -> float:
    """The share of its limit that a number uses: 1 at the limit, infinite where it is not finite or has no limit."""
    room = badness(measure.metric, measure.limit)
    if not measure.passed and (measure.value is None or measure.limit is None or room <= 0):
        return math.inf
    return badness(measure.metric, measure.value) / room if 0 < room < math.inf else 0.0


def decisive(verdict: Verdict) -> Measure | None:
    """The number that decided: None where none did, as where an artifact gave no answer."""
    failed = [measure for measure in verdict.measures if not measure.passed]
    if failed:
        return _nearest(failed)
    return tightest(verdict) if verdict.status == "verified" else None


def tightest(verdict: Verdict) -> Measure | None:
    """The number that is nearest to its limit: of the evaluation set, and without one of all that was asked."""
    held = [m for m in verdict.measures if m.limit is not None and 0 < badness(m.metric, m.limit) < math.inf]
    return _nearest([m for m in held if m.batch == EVALUATION] or held)


def _nearest(measures: Iterable[Measure]) -> Measure | None:
    return max(measures, key=lambda m: (share_of_limit(m), m.batch == EVALUATION), default=None)


def told(verdict: Verdict) -> str:
    """The number that decided with its limit, in words; empty where there is none."""
    measure = decisive(verdict)
    if measure is None:
        return ""
    where = f", {measure.batch}" if measure.batch != EVALUATION else ""
    return f"{formats.beside_limit(measure)}{where}"
