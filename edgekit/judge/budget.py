"""Budgets: the user's limits on an artifact's cost. "Over budget" is a separate verdict from the judge's.

A budget is `NAME=VALUE`, for all artifacts, or `SELECTOR.NAME=VALUE` for a target, a group or a precision. A value that
was not measured meets no budget.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.artifact.fact import EVALUATION, Code, Fact
from edgekit.artifact.result import CANDIDATE, EvaluationResult, Ratio, Result
from edgekit.errors import UsageError, did_you_mean
from edgekit.evaluate.timing import Latency
from edgekit.model.spec import Array

_TIME = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_BYTES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
# Names and units of the limits: latency, time to open and to the first answer, peak memory of a fresh process,
# bytes on disk, bytes of a first visit to a bundle's page with brotli, drop of the task metric.
NAMES = {
    "p50": _TIME,
    "p95": _TIME,
    "open": _TIME,
    "first": _TIME,
    "memory": _BYTES,
    "size": _BYTES,
    "visit": _BYTES,
    "task_drop": {"": 1.0},
}
_FORM = re.compile(
    r"(?:(?P<selector>[a-z0-9-]+)\.)?(?P<name>[a-z0-9_]+)=(?P<value>[0-9.]+(?:e-?[0-9]+)?)(?P<unit>[A-Za-z]*)"
)


@dataclass(frozen=True)
class Budget:
    """One limit.

    Attributes:
        name: One of NAMES.
        limit: The limit in milliseconds, bytes, or units of the task metric.
        text: The value as the user wrote it.
        selector: Target, group or precision that it applies to; empty for all.
    """

    name: str
    limit: float
    text: str
    selector: str = ""


def parse_budgets(texts: Sequence[str], names: Collection[str]) -> tuple[Budget, ...]:
    """Parse budgets; one text may hold several, separated by commas.

    Args:
        texts: The user's texts.
        names: Possible selectors: targets, groups and precisions.

    Raises:
        UsageError: If a budget is malformed, or its selector is unknown.
    """
    budgets = tuple(_parse(text.strip()) for joined in texts for text in joined.split(",") if text.strip())
    for budget in budgets:
        if budget.selector and budget.selector not in names:
            meant = did_you_mean(budget.selector, names)
            raise UsageError(
                f"unknown selector '{budget.selector}' in a budget. Use a target, group or "
                f"precision{meant and '. '}{meant}"
            )
    return budgets


def _parse(text: str) -> Budget:
    match = _FORM.fullmatch(text)
    if match is None or match["name"] not in NAMES:
        raise UsageError(
            f"'{text}' is not a budget. Write NAME=VALUE or TARGET.NAME=VALUE, for example p50=20ms or onnx.size=8MB. "
            f"Names: {', '.join(NAMES)}"
        )
    units = NAMES[match["name"]]
    try:
        value = float(match["value"])
    except ValueError:
        raise UsageError(
            f"'{match['value']}' in the budget '{text}' is not a number. Write it as in p50=20ms"
        ) from None
    if match["unit"] not in units:
        raise UsageError(f"the budget '{text}' needs a unit. Units: {', '.join(unit or 'none' for unit in units)}")
    return Budget(match["name"], value * units[match["unit"]], match["value"] + match["unit"], match["selector"] or "")


def compare_budgets(budgets: Sequence[Budget], names: Collection[str], result: Result) -> tuple[tuple[str, Fact], ...]:
    """Return each place of a result and each budget that applies to it, as a fact: within it, over it, or not measured.

    Args:
        budgets: The limits.
        names: Selectors of the artifact: its target, groups and precision.
        result: The result.
    """
    mine = [budget for budget in budgets if not budget.selector or budget.selector in names]
    # Only a bundle has a page to visit.
    if result.first_visit is None:
        mine = [budget for budget in mine if budget.name != "visit" or budget.selector]
    return tuple((place.place, _compare(budget, place, result)) for place in result.places for budget in mine)


def _compare(budget: Budget, place: EvaluationResult, result: Result) -> Fact:
    value = _value(budget.name, place, result)
    details: dict[str, str | int | float] = {"name": budget.name, "allowed": budget.text}
    if value is None:
        return Fact(code=Code.BUDGET_UNKNOWN, limit=budget.limit, details=details)
    # A value in the unit that the user chose.
    unit = re.sub(r"^[0-9.e-]+", "", budget.text)
    number = value / NAMES[budget.name][unit]
    details["measured"] = f"{number:.0f}{unit}" if number >= 1000 else f"{number:.4g}{unit}"
    code = Code.OVER_BUDGET if value > budget.limit else Code.WITHIN_BUDGET
    return Fact(code=code, value=value, limit=budget.limit, details=details)


def _value(name: str, place: EvaluationResult, result: Result) -> float | None:
    if name == "size":
        return float(result.size)
    if name == "visit":
        return float(result.first_visit) if result.first_visit is not None else None
    if name == "task_drop":
        drops = [m.value for m in place.measures if m.batch == EVALUATION and m.metric.endswith(" drop")]
        return drops[0] if drops else None
    if name in ("p50", "p95"):
        timing = place.timings.get(CANDIDATE)
        return float(getattr(timing, name)) if timing is not None else None
    if place.start_up is None:
        return None
    start = {
        "open": place.start_up.open_ms,
        "first": place.start_up.first_answer_ms,
        "memory": place.start_up.peak_memory,
    }
    return start[name]


# Most rounds of a bootstrap, evenly thinned: this bounds memory, and errs on the wide side.
MOST_ROUNDS = 2000
# Bootstrap resamples of a ratio: enough for the ends of a 95 % interval (Efron and Tibshirani 1993, chapter 13).
RESAMPLES = 2000
# Coverage of a ratio's interval.
CONFIDENCE = 0.95


def ratio(timed: Mapping[str, Latency], baseline: str, candidate: str = CANDIDATE) -> Ratio:
    """Return the candidate's speed as a multiple of the baseline's, for two runtimes measured together.

    Whole rounds are resampled in blocks of neighbours (about the square root of their number): a slow spell of the host
    lasts for many runs, which are not independent (Kuensch 1989).

    Raises:
        ValueError: If a median is zero.
    """
    rounds = min(len(timed[baseline].milliseconds), len(timed[candidate].milliseconds))
    pair = np.array([timed[name].milliseconds[:rounds] for name in (baseline, candidate)])
    medians = np.median(pair, axis=1)
    if not medians.min() > 0:
        raise ValueError(f"no ratio of the medians {medians.tolist()} ms: the clock is too coarse")
    thinned = pair[:, :: math.ceil(rounds / MOST_ROUNDS)]
    resampled = np.median(thinned[:, _blocks(thinned.shape[1])], axis=2)
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(resampled[0] / resampled[1], (tail, 100.0 - tail))
    return Ratio(baseline=baseline, value=float(medians[0] / medians[1]), low=float(low), high=float(high))


def _blocks(rounds: int) -> Array:
    """Return indices [RESAMPLES, about rounds]: blocks of neighbours that wrap around, with a fixed seed."""
    length = math.ceil(math.sqrt(rounds))
    starts = np.random.Generator(np.random.PCG64(0)).integers(0, rounds, (RESAMPLES, math.ceil(rounds / length), 1))
    return np.asarray(((starts + np.arange(length)) % rounds).reshape(RESAMPLES, -1))
