"""Plots of the report: positions of their marks in percent of an axis' width.

The page draws them as SVG without a view box: positions are relative, while dots, lines and letters keep their size at
every width, follow the page's light or dark colours, and stay sharp on paper.

- Errors: for each artifact one dot per image, its limit and the reference's noise, on a logarithmic axis.
- Latencies: a panel for each artifact and place, with a bar for it and for each baseline that ran in turn with it. An
  axis starts at zero, so that bar lengths are proportional to times.
- Trade-offs, a panel for each audience: three axes share the lanes. Sizes start at zero. Comparable speeds are ratios
  to one artifact of the panel, on a logarithmic axis with a line at 1. Accuracy is the used share of the tightest
  limit, with a line at the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgekit.artifact.metric import plain
from edgekit.artifact.result import CANDIDATE, Timing
from edgekit.model.spec import Array
from edgekit.reference.info import ReferenceInfo
from edgekit.report import formats
from edgekit.report.recommendation import (
    Recommendation,
    Speed,
    base_of,
    beside,
    by_audience,
    decisive,
    share_of_limit,
    size_of,
    tightest,
)
from edgekit.report.study import BuildReport, ReportRow

# Most dots of a row; more images are thinned out, but the worst always stays.
MOST_DOTS = 160
# A difference of zero is drawn at the left end.
SMALLEST = 1e-12
# Pixels: height of a row of dots.
STRIP = 44
# Pixels over which dots of one row are spread, so that they do not hide each other.
SPREAD = 24
# Golden ratio: spreads consecutive dots evenly.
GOLDEN = 0.618034
# Decades; above this, every second one is labelled.
MOST_LABELS = 9
# The longest bar leaves room for its number.
BAR_ROOM = 1.3
MOST_TICKS = 6
# Percent: a longer baseline has its label inside the bar, since a phone has no room to the right.
LONG = 52
# Times the limit: where the axis of accuracy ends.
BEYOND = 1.25
# Octaves of speed; above this, every second one has a line.
MOST_OCTAVES = 6
# Times the largest size: where the axis of sizes ends.
SIZE_ROOM = 1.05


@dataclass(frozen=True)
class Scale:
    """An axis with its ends in units of `unit`, which may be a logarithm."""

    low: float
    high: float
    unit: Callable[[float], float] = float

    def x(self, value: float) -> float:
        """Return the position of a value in percent."""
        share = (self.unit(value) - self.low) / (self.high - self.low)
        return round(100 * min(1.0, max(0.0, share)), 2)


# Shares of a limit.
LIMIT_SCALE = Scale(0.0, BEYOND)


@dataclass(frozen=True)
class Mark:
    """A tick, a dot, a bar or an interval, with its text and its title.

    `x`, `low` and `high` are in percent; `low` and `high` are the ends of an interval, of the quartiles, or of a bar's
    whisker; `y` is in pixels. `own` marks a bar of the lane's artifact, not of a baseline.
    """

    x: float
    text: str = ""
    title: str = ""
    low: float = 0.0
    high: float = 0.0
    y: float = STRIP / 2
    own: bool = False

    @property
    def side(self) -> str:
        """Position of a bar's label: inside it, at the right edge over its whisker, or after both."""
        if self.own or self.high <= LONG:
            return "after"
        return "inside" if self.x > LONG else "edge"


@dataclass(frozen=True)
class Lane:
    """One artifact in one place, or the model on the reference's device, which has no status.

    `dots` are one per image, or one bar per runtime; `marks` are all others, by name; `remark` is a short note.
    """

    name: str
    note: str = ""
    status: str = ""
    dots: tuple[Mark, ...] = ()
    marks: Mapping[str, Mark] = field(default_factory=dict)
    remark: str = ""


@dataclass(frozen=True)
class Plot:
    """Lanes from top to bottom that share their axes.

    `title` names the panel; `device` is the device, or the base of the speed ratios; `sizes` are the ticks of the
    trade-off's axis of sizes, and `limit` is the position of its limit line, in percent.
    """

    lanes: tuple[Lane, ...]
    ticks: tuple[Mark, ...]
    title: str = ""
    device: str = ""
    sizes: tuple[Mark, ...] = ()
    limit: float = LIMIT_SCALE.x(1.0)


def errors(scores: Mapping[str, Array], arrays: Mapping[str, Array]) -> Array | None:
    """Return the largest absolute error of all scores in each image, float64 [n]; NaN if a map is not finite."""
    largest = [
        np.abs(np.asarray(maps, np.float64) - arrays[name]).max(1, initial=0)
        for name, maps in scores.items()
        if name in arrays and arrays[name].shape == maps.shape and maps.ndim == 2
    ]
    return np.asarray(np.max(largest, axis=0)) if largest else None


def _largest(row: ReportRow, arrays: Mapping[str, Array]) -> Array | None:
    """Return the largest error in each image: absolute for scores, over the peak for other outputs."""
    by_row = [np.asarray(values, np.float64) for values in row.errors.values() if values.ndim == 1]
    if row.scores or not by_row:
        return errors(row.scores, arrays)
    # The reference holds only the first images of a large output.
    count = min(map(len, by_row))
    return np.asarray(np.max([values[:count] for values in by_row], axis=0))


def plot_accuracy(study: BuildReport, arrays: Mapping[str, Array]) -> Plot:
    """Lay out a lane for each row with errors or a limit, as in `_strip`."""
    rows = [row for row in study.rows if row.scores or row.error]
    per_row = [_largest(row, arrays) for row in rows]
    values = [value for array in per_row if array is not None for value in array[np.isfinite(array)].tolist()]
    values += [value for row in rows if row.error for value in (row.error.value, row.error.limit) if value]
    values = [value for value in values + [noise.value for noise in study.reference.noise] if value > SMALLEST]
    low = math.floor(math.log10(min(values, default=1e-7)) - 0.1)
    high = max(low + 2, math.ceil(math.log10(max(values, default=1.0)) + 0.1))
    scale = Scale(low, high, lambda value: math.log10(max(value, SMALLEST)))
    ticks = range(low, high + 1, 1 if high - low < MOST_LABELS else 2)
    return Plot(
        tuple(_strip(row, array, scale, study.reference) for row, array in zip(rows, per_row, strict=True)),
        tuple(Mark(scale.x(10.0**tick), f"1e{tick}" if tick else "1") for tick in ticks),
    )


def _strip(row: ReportRow, values: Array | None, scale: Scale, reference: ReferenceInfo) -> Lane:
    """Return a lane with a dot per image, and the marks "worst", "quartiles" with their median, "limit" and "noise"."""
    measure = row.error
    outputs = row.scores or ([measure.output] if measure else [])
    noise = max((each.value for each in reference.noise if each.output in outputs), default=0.0)
    marks = {"noise": Mark(scale.x(noise))} if noise else {}
    if measure and measure.limit is not None:
        marks["limit"] = Mark(scale.x(measure.limit))
    dots: tuple[Mark, ...] = ()
    if values is None:
        value = measure.value if measure else None
        remark = "only the worst image is known" if value is not None else "no finite value"
        marks |= {"worst": Mark(scale.x(value), title=f"worst: {plain(value)}")} if value is not None else {}
    else:
        finite = np.flatnonzero(np.isfinite(values))
        lost = len(values) - len(finite)
        remark = f"{lost} of {len(values)} images are not finite" if lost else ""
        if len(finite):
            dots, dot_count = _dots(values, finite, scale, reference)
            marks |= dot_count
    return Lane(row.target, f"{row.precision} · {formats.where(row)}", row.status, dots, marks, remark)


def _dots(
    values: Array, finite: Array, scale: Scale, reference: ReferenceInfo
) -> tuple[tuple[Mark, ...], dict[str, Mark]]:
    def title(image: int) -> str:
        return f"{reference.name(image)}: {plain(float(values[image]))}"

    def dot(place: int, image: int) -> Mark:
        y = STRIP / 2 + SPREAD * ((place * GOLDEN) % 1 - 0.5)
        return Mark(scale.x(float(values[image])), title=title(image), y=round(y, 1))

    order = finite[np.argsort(values[finite], kind="stable")].tolist()
    indices = [order[i] for i in np.unique(np.linspace(0, len(order) - 1, MOST_DOTS).astype(int))]
    low, middle, high = (scale.x(float(q)) for q in np.quantile(values[finite], (0.25, 0.5, 0.75)))
    worst = Mark(scale.x(float(values[order[-1]])), title=f"worst: {title(order[-1])}")
    return tuple(map(dot, range(len(indices)), indices)), {
        "quartiles": Mark(middle, low=low, high=high),
        "worst": worst,
    }


def plot_latency(row: ReportRow) -> Plot | None:
    """Lay out a bar for a row and one for each interleaved baseline; return None if it was not timed."""
    if row.timing is None:
        return None
    longest = max(max(timing.p50, timing.p95) for timing in row.verdict.timings.values())
    scale = Scale(0, longest * BAR_ROOM or 1.0)
    order = sorted(row.verdict.timings.items(), key=lambda pair: (pair[0] != CANDIDATE, pair[1].p50, pair[0]))
    bars = tuple(_bar(row.target, name, timing, scale) for name, timing in order)
    lane = Lane(row.target, row.place, row.status, bars, remark="slower" if row.verdict.slower else "")
    return Plot((lane,), _time_ticks(scale), "", row.timing.device)


def _bar(target: str, name: str, timing: Timing, scale: Scale) -> Mark:
    own = name == CANDIDATE
    title = f"{target if own else name}: {formats.percentiles(timing)}; {timing.runs} runs; {timing.device}"
    number = formats.milliseconds(timing.p50)
    text = number if own else f"{number} · {name}"
    return Mark(scale.x(timing.p50), text, title, high=scale.x(timing.p95), own=own)


def plot_reference(reference: ReferenceInfo) -> Plot | None:
    """Lay out a lane per batch size and a bar per mode: the model on the reference's device."""
    if not reference.speeds:
        return None
    scale = Scale(0, max(speed.p95 or speed.p50 for speed in reference.speeds) * BAR_ROOM or 1.0)
    lanes: dict[str, list[Mark]] = {}
    for speed in sorted(reference.speeds, key=lambda speed: (len(speed.batch), speed.batch)):
        mode, number = speed.mode.replace("_", " "), formats.milliseconds(speed.p50)
        bar = Mark(
            scale.x(speed.p50), f"{number} · {mode}", f"{mode}: p50 {number}", high=scale.x(speed.p95 or speed.p50)
        )
        lanes.setdefault(speed.batch.replace("batch", "batch ").replace("  ", " "), []).append(bar)
    title = "the PyTorch model where the reference was made"
    lanes_with_dots = tuple(Lane(batch, dots=tuple(bars)) for batch, bars in lanes.items())
    return Plot(lanes_with_dots, _time_ticks(scale), title, reference.device)


def _time_ticks(scale: Scale) -> tuple[Mark, ...]:
    decade = 10.0 ** math.floor(math.log10(scale.high))
    step = next(decade * part for part in (0.1, 0.2, 0.5, 1, 2) if scale.high / (decade * part) <= MOST_TICKS)
    return tuple(Mark(scale.x(i * step), f"{i * step:g}") for i in range(int(scale.high / step) + 1))


def plot_tradeoffs(study: BuildReport, advice: Sequence[Recommendation]) -> tuple[Plot, ...]:
    """Lay out a panel for each audience with two rows or more; mark the recommended one."""
    rows = by_audience(row for row in study.rows if not row.origin and (row.verdict.measures or row.timing))
    panels = [(recommendation, rows.get(recommendation.audience, [])) for recommendation in advice]
    return tuple(_tradeoff(study, recommendation, own) for recommendation, own in panels if len(own) > 1)


def _tradeoff(study: BuildReport, recommendation: Recommendation, rows: Sequence[ReportRow]) -> Plot:
    base = base_of([row for row in rows if row.timing])
    speeds = [beside(row, base) if base is not None else None for row in rows]
    speeds_with_value = [speed for speed in speeds if speed]
    low = min(-1.0, math.log2(min((speed.low for speed in speeds_with_value), default=1.0)) - 0.5)
    high = max(
        1.0, math.log2(max((speed.high for speed in speeds_with_value), default=1.0)) + 0.9
    )  # room for the number
    scale = Scale(low, high, math.log2)
    sizes = [size_of(study, row) or 0 for row in rows]
    full = Scale(0, max(sizes, default=0) * SIZE_ROOM or 1.0)
    lanes = []
    for row, size, speed in zip(rows, sizes, speeds, strict=True):
        marks = {"size": Mark(full.x(size), formats.size(size), f"{size} bytes")} if size else {}
        marks |= _speed(speed, scale) | _accuracy(row)
        best = recommendation.best is not None and row is recommendation.best.row
        remark = recommendation.head.partition(" ")[0].lower() if best else ""
        lanes.append(Lane(row.target, formats.where(row), row.status, (), marks, remark))
    step = 1 if high - low < MOST_OCTAVES else 2
    octaves = [n for n in range(math.ceil(low), math.floor(high) + 1) if n % step == 0]
    ticks = tuple(Mark(scale.x(2.0**n), f"{2.0**n:g}×") for n in octaves)
    halves = (Mark(50.0 * n, formats.size(round(full.high * n / 2)) if n else "0") for n in range(3))
    return Plot(tuple(lanes), ticks, recommendation.audience, base.label if base else "", sizes=tuple(halves))


def _speed(speed: Speed | None, scale: Scale) -> dict[str, Mark]:
    if speed is None:
        return {}
    low, high = scale.x(speed.low), scale.x(speed.high)
    return {"speed": Mark(scale.x(speed.value), formats.times(speed.value), speed.how, low, high)}


def _accuracy(row: ReportRow) -> dict[str, Mark]:
    measure = decisive(row.verdict) or tightest(row.verdict)
    if measure is None:
        return {}
    used = share_of_limit(measure)
    # Rejected on inputs other than the evaluation set.
    if row.status == "rejected" and used <= 1 and row.reasons:
        return {"accuracy": Mark(100.0, "over", str(row.reasons[0]))}
    number = f"{used:.0%}" if math.isfinite(used) and used < 10 else ">1000%" if math.isfinite(used) else "not finite"
    value = f"{formats.format_measure(measure)}, {formats.limit(measure)}"
    title = f"{measure.metric} of {measure.output or 'the task'} {value}"
    return {"accuracy": Mark(LIMIT_SCALE.x(used), number, title)}
