"""Numbers as people read them: a few significant digits, a unit, and a word where there is no number."""

from __future__ import annotations

import math

from edgekit.artifact.result import Measure, Ratio

AT_LEAST = {"cosine", "cosine whole", "row cosine", "snr", "spearman", "jaccard", "agreement", "equal", "matched"}
"""Metrics whose limit is a smallest allowed value, as in `verdict.py`; of all the others less is better."""

SHARES = AT_LEAST | {"count exact"}
"""Metrics that are 1 at best: what matters is how far from 1 they are."""

NOT_FINITE = "not finite"
NONE = "–"


def at_least(metric: str) -> bool:
    """Whether a metric's limit is a smallest allowed value."""
    return metric.lower() in AT_LEAST


def plain(value: float | None, digits: int = 3) -> str:
    """A number with a few significant digits: `0.0123`, `1.2e-6`, `1234`."""
    if value is None or not math.isfinite(value):
        return NOT_FINITE
    if value == 0:
        return "0"
    if abs(value) < 1e-3 or abs(value) >= 1e6:
        mantissa, _, exponent = f"{value:.{digits - 2}e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def near_one(value: float | None) -> str:
    """A correlation or a share: enough decimals to see how far from 1 it is, and never rounded up to 1."""
    if value is None or not math.isfinite(value):
        return NOT_FINITE
    if value == 1:
        return "1"
    if abs(1 - value) < 1e-5:
        return ">0.99999" if value < 1 else plain(value, 6)
    decimals = 3 if abs(1 - value) > 1e-2 else 5
    return f"{value:.{decimals}f}"


def measured(measure: Measure | None) -> str:
    """The value of a measure, by the custom of its metric; a dash where it was not measured."""
    if measure is None:
        return NONE
    return by_metric(measure.metric, measure.value)


def by_metric(metric: str, value: float | None) -> str:
    """A value, by the custom of its metric."""
    if metric.lower() == "snr":
        return f"{plain(value)} dB" if value is not None else NOT_FINITE
    return near_one(value) if metric.lower() in SHARES else plain(value)


def limit(measure: Measure) -> str:
    """The limit of a measure with its direction; empty where there is none."""
    if measure.limit is None:
        return ""
    return ("≥ " if at_least(measure.metric) else "≤ ") + threshold(measure.metric, measure.limit)


def threshold(metric: str, value: float) -> str:
    """A limit: a round number, written without zeros at its end."""
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    short = f"{float(mantissa):g}e{int(exponent)}" if 0 < abs(value) < 1e-3 else f"{value:.4g}"
    return f"{short} dB" if metric.lower() == "snr" else short


def size(count: int | None) -> str:
    """Bytes in decimal units, as download sizes are given."""
    if count is None:
        return NONE
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def milliseconds(value: float | None) -> str:
    """A latency."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.0f} ms" if value >= 100 else f"{plain(value)} ms"


def times(value: float) -> str:
    """How many times faster."""
    return f"{value:.2f}×" if value < 10 else f"{value:.1f}×"


def interval(ratio: Ratio) -> str:
    """The 95 % interval of a ratio."""
    return f"{times(ratio.low)[:-1]} to {times(ratio.high)}"
