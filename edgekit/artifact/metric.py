"""Metrics in results: name, direction, unit and format, for the judge, the command line and reports.

`edgekit.judge.metrics` defines their computation, `edgekit.judge.limits` their limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

NOT_FINITE = "not finite"


@dataclass(frozen=True, kw_only=True)
class MetricInfo:
    """Description of a metric.

    Attributes:
        name: Its name in results and tables.
        meaning: Its meaning in a few words.
        better: The better direction; a limit is the largest or the smallest allowed value.
        unit: "score" (units of a score), "dB", "share" (of 1), "peak" (the reference's largest magnitude), "spread"
            (the standard deviation of the reference's values), "degrees", "" (none).
        style: Format of a value: "plain", or "share" if it is 1 at best and its distance from 1 matters.
        widened: True if the reference's own noise can widen its limit.
        mean: True if its limit is on the mean over all rows, of which a single one may always be off.
        relative: True if it has no meaning for differences within the reference's own noise.
    """

    name: str
    meaning: str
    better: Literal["lower", "higher"] = "lower"
    unit: str = ""
    style: Literal["plain", "share"] = "plain"
    widened: bool = False
    mean: bool = False
    relative: bool = False

    @property
    def sign(self) -> float:
        """Factor of a value: the larger the product, the worse."""
        return -1.0 if self.better == "higher" else 1.0

    def format(self, value: float | None) -> str:
        """Return a value in the metric's style."""
        text = share(value) if self.style == "share" else plain(value)
        return f"{text} dB" if self.unit == "dB" and text != NOT_FINITE else text

    def format_beside(self, value: float | None, limit: float | None) -> str:
        """Return a value with enough digits to tell it from its limit."""
        text = self.format(value)
        if value is None or limit is None or value == limit or text != self.format(limit):
            return text
        # 17 digits distinguish any two floats.
        longer = (plain(value, digits) for digits in range(4, 18))
        limit_text = next((digits for digits in longer if float(digits) != limit), repr(value))
        return f"{limit_text} dB" if self.unit == "dB" else limit_text

    def format_limit(self, limit: float) -> str:
        """Return a limit as a round number without trailing zeros."""
        mantissa, _, exponent = f"{limit:.2e}".partition("e")
        text = f"{float(mantissa):g}e{int(exponent)}" if 0 < abs(limit) < 1e-3 else f"{limit:.4g}"
        return f"{text} dB" if self.unit == "dB" else text


def _table() -> dict[str, MetricInfo]:
    rows = (
        MetricInfo(name="max abs", meaning="largest absolute difference", unit="score", widened=True),
        MetricInfo(name="mean abs", meaning="mean absolute difference", unit="score"),
        MetricInfo(name="nrmse", meaning="normalized root mean square error, over the map's spread", relative=True),
        MetricInfo(name="nrmse of spread", meaning="the same, over half the spread of real scores", relative=True),
        MetricInfo(name="nrmse in noise", meaning="the same, of eight scores or more", relative=True),
        MetricInfo(name="cosine", meaning="cosine similarity of a row", better="higher", style="share", relative=True),
        MetricInfo(name="cosine whole", meaning="cosine similarity of all rows", better="higher", style="share"),
        MetricInfo(
            name="row cosine", meaning="smallest cosine of a row", better="higher", style="share", relative=True
        ),
        MetricInfo(name="snr", meaning="signal-to-noise ratio", better="higher", unit="dB", relative=True),
        MetricInfo(
            name="spearman",
            meaning="rank correlation of a map, differences below the resolution ignored",
            better="higher",
            style="share",
            relative=True,
        ),
        MetricInfo(name="spearman raw", meaning="rank correlation of a map", better="higher", style="share"),
        MetricInfo(name="count excess", meaning="score error that explains the counts", unit="score", widened=True),
        MetricInfo(name="own count excess", meaning="counts against the artifact's own scores", unit="score"),
        MetricInfo(name="count l1", meaning="mean absolute difference of counts", unit="counts"),
        MetricInfo(name="count total", meaning="relative difference of the total", unit="share"),
        MetricInfo(name="equal", meaning="share of equal counts", better="higher", style="share"),
        MetricInfo(
            name="swap gap",
            meaning="score gap between places swapped at the top-K boundary",
            unit="score",
            widened=True,
        ),
        MetricInfo(name="order gap", meaning="score gap of a changed order", unit="score", widened=True),
        MetricInfo(name="own gap", meaning="ranking against the artifact's own scores", unit="score"),
        MetricInfo(name="order faults", meaning="places of the ranking in another order"),
        MetricInfo(name="jaccard", meaning="overlap of the top K", better="higher", style="share"),
        MetricInfo(name="agreement", meaning="overlap of the top K, ties ignored", better="higher", style="share"),
        MetricInfo(name="lost accuracy", meaning="probability lost by choosing other classes", unit="share", mean=True),
        MetricInfo(
            name="presence", meaning="share of rows where a detection appears or vanishes", unit="share", mean=True
        ),
        MetricInfo(
            name="clear presence",
            meaning="share of rows where a detection appears or vanishes that is not near the threshold",
            unit="share",
            mean=True,
        ),
        MetricInfo(name="lost mass", meaning="top-K regret: lost share of the best sum of K scores", relative=True),
        MetricInfo(name="relative", meaning="largest difference over the peak", unit="peak", widened=True),
        MetricInfo(name="deviation", meaning="largest difference in units of the spread", unit="spread"),
        *_lines("", "of a row"),
        *_lines("channel ", "of a channel"),
        MetricInfo(name="channel bias", meaning="mean signed difference in one category, less chance", unit="spread"),
        MetricInfo(name="argmax gap", meaning="loss of the largest class, in units of the classes' spread"),
        MetricInfo(name="label gap", meaning="loss of the labelled class, in units of the classes' spread"),
        MetricInfo(name="own label gap", meaning="loss of the labelled class, by the artifact's own classes"),
        MetricInfo(
            name="flips", meaning="share of largest classes or confidences that differ", unit="share", mean=True
        ),
        MetricInfo(name="lost boxes", meaning="share of boxes over 0.5 that appear or vanish", unit="share", mean=True),
        MetricInfo(name="lost classes", meaning="the same by a box's largest confidence", unit="share", mean=True),
        MetricInfo(name="detection gap", meaning="score without an equal on the other side", unit="score"),
        MetricInfo(name="misplaced", meaning="1 less the overlap of the matched detections", unit="share", mean=True),
        MetricInfo(name="lost detections", meaning="share of detections without a match", unit="share", mean=True),
        MetricInfo(name="untied iou", meaning="overlap in rows without equal scores", better="higher", style="share"),
        MetricInfo(
            name="lost untied detections", meaning="the same in rows without equal scores", unit="share", mean=True
        ),
        MetricInfo(name="moved box", meaning="largest 1 less overlap of a matched box, times its score", unit="share"),
        MetricInfo(name="own count", meaning="a count against the artifact's own detections", unit="counts"),
        MetricInfo(name="error across inputs", meaning="error in units of the variation over inputs"),
        MetricInfo(
            name="gross error",
            meaning="the error of a row, in parts of the reference's own distance from real answers if that is far",
            unit="spread",
        ),
        MetricInfo(
            name="usual error",
            meaning="the error of made inputs that the model answers as it answers real ones",
            unit="spread",
        ),
        MetricInfo(
            name="error of a place",
            meaning="error of the single position that errs most over all inputs, such as a coordinate of one point",
        ),
        MetricInfo(name="mixed rows", meaning="share of other inputs of the same batch in an answer", unit="share"),
        MetricInfo(name="wrong labels", meaning="share of labels that differ", unit="share", mean=True),
        MetricInfo(name="unequal", meaning="share of integers that differ", unit="share"),
        MetricInfo(name="total variation", meaning="half of the sum of differences of two distributions"),
        MetricInfo(name="iou", meaning="mean overlap of the boxes", better="higher", style="share"),
        MetricInfo(name="mask iou", meaning="overlap of the masks", better="higher", style="share"),
        MetricInfo(name="lost mask", meaning="overlap lost where the model is sure", unit="share"),
        MetricInfo(name="angle", meaning="angle between the embeddings", unit="degrees"),
        MetricInfo(name="matched", meaning="share of rows that both sides chose", better="higher", style="share"),
    )
    return {row.name: row for row in rows}


def _lines(prefix: str, what: str) -> tuple[MetricInfo, ...]:
    return (
        MetricInfo(name=f"{prefix}error", meaning=f"root mean square difference {what}", unit="spread"),
        MetricInfo(name=f"{prefix}gain", meaning=f"slope {what} over the reference, less 1, beyond chance"),
        MetricInfo(name=f"{prefix}offset", meaning=f"difference of the means {what}, beyond chance", unit="spread"),
        MetricInfo(name=f"{prefix}correlation", meaning=f"centred correlation {what}", better="higher", style="share"),
    )


# Every metric except the drop of the task metric, which has the model's name for it.
METRICS = _table()


def metric_info(name: str) -> MetricInfo:
    """Return the row of a metric; for unknown names (a task metric's drop, a phone's own) less is better."""
    return METRICS.get(name.lower()) or MetricInfo(name=name, meaning=_meaning(name))


def _meaning(name: str) -> str:
    task, _, drop = name.partition(" ")
    if not drop.startswith("drop"):
        return name
    amount = "the artifact's average loss" if drop == "drop" else "the largest loss of one input"
    return f"{amount} of {task_meaning(task)}"


def task_meaning(name: str) -> str:
    """Return a model's own metric in words; `coverage@32` is over the first 32 places."""
    if name.startswith("top_k:"):
        k = name.rpartition(",k=")[2] if ",k=" in name else "1"
        return "the share of inputs whose true class is " + (
            "the likeliest" if k == "1" else f"among the {k} likeliest"
        )
    base, _, first = name.partition("@")
    places = f", over the first {first} places of the ranking" if first else ""
    return f"the model's own task metric '{base}'{places}"


def all_but(share: float) -> str:
    """Return a share of rows that must be right in words: "99 of 100" if 0.01 may be wrong."""
    right = Fraction(1 - share).limit_denominator(10000)
    return f"{right.numerator} of {right.denominator}"


def plain(value: float | None, digits: int = 3) -> str:
    """Return a number with a few significant digits: `0.0123`, `1.2e-6`, `1234`."""
    if value is None or not math.isfinite(value):
        return NOT_FINITE
    if value == 0:
        return "0"
    if abs(value) < 1e-3 or abs(value) >= 1e6:
        mantissa, _, exponent = f"{value:.{digits - 2}e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def share(value: float | None) -> str:
    """Return a correlation or a share with enough decimals to see its distance from 1; never rounded up to 1."""
    if value is None or not math.isfinite(value):
        return NOT_FINITE
    if value == 1:
        return "1"
    if abs(1 - value) < 1e-5:
        return ">0.99999" if value < 1 else plain(value, 6)
    decimals = 3 if abs(1 - value) > 1e-2 else 5
    return f"{value:.{decimals}f}"
