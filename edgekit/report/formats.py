"""Numbers as text: a few significant digits, a unit, and a word for a missing number."""

from __future__ import annotations

import math
import textwrap

from edgekit.artifact.metric import all_but, metric_info, plain, share
from edgekit.artifact.result import CANDIDATE, EvaluationResult, Measure, Ratio, Timing
from edgekit.report.study import ReportRow

NONE = "–"
TOO_NOISY = "speed too noisy to say"


def format_measure(measure: Measure | None) -> str:
    """Return the value of a measure in its metric's style; a dash if it was not measured."""
    return NONE if measure is None else metric_info(measure.metric).format(measure.value)


def limit(measure: Measure) -> str:
    """Return the limit of a measure with its direction; empty without a limit."""
    if measure.limit is None:
        return ""
    info = metric_info(measure.metric)
    return ("≥ " if info.better == "higher" else "≤ ") + info.format_limit(measure.limit)


def table_limit(measure: Measure) -> str:
    """Return the limit before the reference's noise widened it; empty without a limit."""
    return "" if measure.table is None else metric_info(measure.metric).format_limit(measure.table)


def noise(measure: Measure) -> str:
    """Return the reference's own noise in this metric; empty if unknown."""
    return "" if measure.noise is None else plain(measure.noise)


def metric_label(measure: Measure) -> str:
    """Return a metric and its output."""
    return f"{measure.metric} of '{measure.output}'" if measure.output else measure.metric


def value(measure: Measure) -> str:
    """Return the value of a measure, with enough digits to tell it from its limit."""
    return metric_info(measure.metric).format_beside(measure.value, measure.limit)


def beside_limit(measure: Measure) -> str:
    """Return a metric and its output with the value, and its limit in brackets."""
    share = f" in {all_but(measure.share)} rows" if measure.rows and measure.share != measure.limit else ""
    limit_text = f" ({limit(measure)}{share})" if measure.limit is not None else ""
    return f"{metric_label(measure)}: {value(measure)}{unit(measure)}{limit_text}"


def unit(measure: Measure) -> str:
    """Return what a value is a multiple of, as in "0.7 of its spread"; may be empty."""
    name = metric_info(measure.metric).unit
    return f" of its {name}" if name in ("spread", "peak") else ""


def task(name: str, mean: float | None, drop: Measure | None) -> str:
    """Return the task metric's mean of the model and of an artifact, by name; may be empty."""
    if not name or mean is None or drop is None or drop.value is None:
        return ""
    before, after = (f"{value:.4f}" if value < 1 else share(value) for value in (mean, mean - drop.value))
    return f"{name} {before} -> {after}"


def where(row: ReportRow) -> str:
    """Return where a row's artifact ran: the place and the runtime, since `cpu` alone may be any of five runtimes."""
    return " · ".join(part for part in (row.place, runtime(row), row.origin) if part)


def runtime(row: ReportRow) -> str:
    """Return the runtime without threads and settings: `ONNX Runtime 1.31.1`."""
    return row.verdict.device.partition(",")[0]


def size(count: int | None) -> str:
    """Return bytes in decimal units, as for download sizes."""
    if count is None:
        return NONE
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def sizes(on_disk: int | None, first_visit: int | None) -> str:
    """Return the size on disk and, for a bundle, the transfer of a first visit to its page."""
    return size(on_disk) + (f", first visit {size(first_visit)}" if first_visit is not None else "")


def brief(text: str, longest: int) -> str:
    """Return a text shortened to one line of at most so many letters."""
    return textwrap.shorten(text, longest, placeholder=" ...")


def milliseconds(value: float | None) -> str:
    """Return a latency."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.0f} ms" if value >= 100 else f"{plain(value)} ms"


def percentiles(timing: Timing) -> str:
    """Return the percentiles of a latency."""
    return ", ".join(f"{name} {milliseconds(getattr(timing, name))}" for name in ("p50", "p90", "p95", "p99"))


def protocol(timing: Timing, processor: str) -> str:
    """Return how a latency was measured, and its percentiles."""
    warm = f"{timing.warm_ups} warm-ups, " if timing.warm_ups is not None else ""
    load = f", load of the host {timing.load:g}" if timing.load is not None else ""
    return f"{percentiles(timing)}; {warm}{timing.runs} runs{f' on {processor}' if processor else ''}{load}"


def times(value: float) -> str:
    """Return how many times faster."""
    return f"{value:.2f}×" if value < 10 else f"{value:.1f}×"


def speed(ratio: Ratio) -> str:
    """Return how many times faster, or that the interval is too wide to tell."""
    return TOO_NOISY if ratio.noisy else times(ratio.value)


def beside_baseline(verdict: EvaluationResult) -> str:
    """Return an artifact's speed relative to its interleaved baseline; its own median without one."""
    if verdict.ratios:
        first = verdict.ratios[0]
        return TOO_NOISY if first.noisy else f"{speed(first)} {first.baseline}"
    own = verdict.timings.get(CANDIDATE)
    return f"{milliseconds(own.p50)}, alone" if own is not None else NONE


def interval(ratio: Ratio) -> str:
    """Return the 95 % interval of a ratio."""
    return f"{times(ratio.low)[:-1]} to {times(ratio.high)}"


def ratio(measured: Ratio) -> str:
    """Return a ratio with its interval."""
    return f"{times(measured.value)} ({interval(measured)})"
