"""Numbers as people read them: a few significant digits, a unit, and a word where there is not a number."""

from __future__ import annotations

import math
import textwrap

from edgekit.artifact.metric import metric_info, plain, share
from edgekit.artifact.result import CANDIDATE, EvaluationResult, Measure, Ratio, Timing
from edgekit.report.study import ReportRow

NONE = "–"
TOO_NOISY = "too noisy to say"


def format_measure(measure: Measure | None) -> str:
    """The value of a measure, by the custom of its metric; a dash where it was not measured."""
    return NONE if measure is None else metric_info(measure.metric).format(measure.value)


def limit(measure: Measure) -> str:
    """The limit of a measure with its direction; empty where there is none."""
    if measure.limit is None:
        return ""
    info = metric_info(measure.metric)
    return ("≥ " if info.better == "higher" else "≤ ") + info.format_limit(measure.limit)


def table_limit(measure: Measure) -> str:
    """The limit before the reference's noise widened it; empty where there is none."""
    return "" if measure.table is None else metric_info(measure.metric).format_limit(measure.table)


def noise(measure: Measure) -> str:
    """The reference's own noise in this metric; empty where it is not known."""
    return "" if measure.noise is None else plain(measure.noise)


def metric_label(measure: Measure) -> str:
    """A metric and its output."""
    return f"{measure.metric} of '{measure.output}'" if measure.output else measure.metric


def value(measure: Measure) -> str:
    """The value of a measure, with as many digits as it takes to tell it from its limit."""
    return metric_info(measure.metric).format_beside(measure.value, measure.limit)


def beside_limit(measure: Measure) -> str:
    """A metric with its value, and its limit in brackets."""
    limit_text = f" ({limit(measure)})" if measure.limit is not None else ""
    return f"{measure.metric} {value(measure)}{limit_text}"


def task(name: str, mean: float | None, drop: Measure | None) -> str:
    """The task metric's mean of the model and of an artifact, by name; empty where there is none."""
    if not name or mean is None or drop is None or drop.value is None:
        return ""
    before, after = (f"{value:.4f}" if value < 1 else share(value) for value in (mean, mean - drop.value))
    return f"{name} {before} -> {after}"


def where(row: ReportRow) -> str:
    """Where a row's artifact ran: the place, and what ran it, since `cpu` alone may be any of five runtimes."""
    return " · ".join(part for part in (row.place, runtime(row), row.origin) if part)


def runtime(row: ReportRow) -> str:
    """What ran it, without threads and settings: `ONNX Runtime 1.31.1`, `PyTorch 2.13.0+cpu lite interpreter`."""
    return row.verdict.device.partition(",")[0]


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


def sizes(on_disk: int | None, first_visit: int | None) -> str:
    """The size on disk and, of a bundle, what a first visit to its page transfers."""
    return size(on_disk) + (f", first visit {size(first_visit)}" if first_visit is not None else "")


def brief(text: str, longest: int) -> str:
    """A text in one line of so many letters at most."""
    return textwrap.shorten(text, longest, placeholder=" ...")


def milliseconds(value: float | None) -> str:
    """A latency."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.0f} ms" if value >= 100 else f"{plain(value)} ms"


def percentiles(timing: Timing) -> str:
    """The percentiles of a latency."""
    return ", ".join(f"{name} {milliseconds(getattr(timing, name))}" for name in ("p50", "p90", "p95", "p99"))


def protocol(timing: Timing, processor: str) -> str:
    """How a latency was measured, and its percentiles."""
    warm = f"{timing.warm_ups} warm-ups, " if timing.warm_ups is not None else ""
    load = f", load of the host {timing.load:g}" if timing.load is not None else ""
    return f"{percentiles(timing)}; {warm}{timing.runs} runs{f' on {processor}' if processor else ''}{load}"


def times(value: float) -> str:
    """How many times faster."""
    return f"{value:.2f}×" if value < 10 else f"{value:.1f}×"


def speed(ratio: Ratio) -> str:
    """How many times faster, or that the interval is too wide to tell."""
    return TOO_NOISY if ratio.noisy else times(ratio.value)


def beside_baseline(verdict: EvaluationResult) -> str:
    """How fast an artifact is beside what ran in turn with it; its own median where nothing did."""
    if verdict.ratios:
        first = verdict.ratios[0]
        return TOO_NOISY if first.noisy else f"{speed(first)} {first.baseline}"
    own = verdict.timings.get(CANDIDATE)
    return f"{milliseconds(own.p50)}, alone" if own is not None else NONE


def interval(ratio: Ratio) -> str:
    """The 95 % interval of a ratio."""
    return f"{times(ratio.low)[:-1]} to {times(ratio.high)}"


def ratio(measured: Ratio) -> str:
    """A ratio with its interval."""
    return f"{times(measured.value)} ({interval(measured)})"
