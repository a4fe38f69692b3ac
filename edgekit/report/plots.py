"""The report's plots: where their marks are, in percent of an axis' width.

Drawn by the page as SVG without a view box: positions are relative, while dots, lines and letters keep their size at
every width, follow the page's light or dark colours, and stay sharp on paper.

- Errors: for each artifact a dot an image, its limit and the reference's noise, on a logarithmic axis.
- Latencies: a panel for each place, a lane for each artifact, a bar for it and for each baseline. An axis starts at
  zero, so that lengths compare as times do.
- The trade-off that a choice rests on: three axes share the lanes. Sizes start at zero. Speeds are ratios to one
  artifact, on a logarithmic axis with a line at 1, so that the GPU that made the reference stands on the same axis.
  Accuracy is the share of the tightest limit that is used, with a line at the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgekit.artifact.result import CANDIDATE, Timing
from edgekit.model.spec import Array
from edgekit.reference.info import Noise, ReferenceInfo, Speed
from edgekit.report import formats
from edgekit.report.recommendation import base_of, size_of, tightest
from edgekit.report.speed import Speed as RelativeSpeed
from edgekit.report.speed import beside
from edgekit.report.study import SINGLE, ReportRow, Study

MOST_DOTS = 160  # a row; more images are thinned out, the worst always stays
SMALLEST = 1e-12  # a difference of zero is drawn at the left end
STRIP = 44  # pixels: height of a row of dots
SPREAD = 24  # pixels over which dots of one row are spread, so that they do not hide each other
GOLDEN = 0.618034  # keeps neighbours apart
MOST_LABELS = 9  # decades; beyond, every second one is labelled
BAR_ROOM = 1.3  # the longest bar leaves room for its number
MOST_TICKS = 6
LONG = 52  # percent: the words of a longer baseline stand inside its bar, since a phone has no room to the right
BEYOND = 1.25  # times the limit: where the axis of accuracy ends
MOST_OCTAVES = 6  # of speed; beyond, every second one has a line
SIZE_ROOM = 1.05  # times the largest size: where the axis of sizes ends


@dataclass(frozen=True)
class Scale:
    """An axis: what stands at its ends, in units of `unit`, which is a logarithm where the axis is one."""

    low: float
    high: float
    unit: Callable[[float], float] = float

    def x(self, value: float) -> float:
        """Where a value stands, in percent."""
        share = (self.unit(value) - self.low) / (self.high - self.low)
        return round(100 * min(1.0, max(0.0, share)), 2)


LIMIT_SCALE = Scale(0.0, BEYOND)
"""Shares of a limit."""


@dataclass(frozen=True)
class Tick:
    """A grid line."""

    x: float
    label: str


@dataclass(frozen=True)
class Dot:
    """One image of the evaluation set."""

    x: float
    y: float
    title: str


@dataclass(frozen=True)
class Strip:
    """One row of the plot: the largest error in each image, its quartiles, its limit and the reference's noise."""

    row: ReportRow
    dots: tuple[Dot, ...] = ()
    box: tuple[float, float, float] | None = None
    worst: Dot | None = None
    limit: float | None = None
    noise: float | None = None
    said: str = ""


@dataclass(frozen=True)
class Accuracy:
    """The plot."""

    strips: tuple[Strip, ...]
    ticks: tuple[Tick, ...]


def errors(scores: Mapping[str, Array], recorded: Mapping[str, Array]) -> Array | None:
    """The largest absolute error of all scores in each image, float64 [n]; NaN where a map is not finite."""
    found = [
        np.abs(np.asarray(maps, np.float64) - recorded[name]).max(1, initial=0)
        for name, maps in scores.items()
        if name in recorded and recorded[name].shape == maps.shape and maps.ndim == 2
    ]
    return np.asarray(np.max(found, axis=0)) if found else None


def _largest(row: ReportRow, recorded: Mapping[str, Array]) -> Array | None:
    """The largest error in each image: of scores absolute, of other outputs over their peak."""
    shown = [np.asarray(values, np.float64) for values in row.errors.values() if values.ndim == 1]
    if row.scores or not shown:
        return errors(row.scores, recorded)
    known = min(map(len, shown))  # of a large output the reference holds the first images only
    return np.asarray(np.max([values[:known] for values in shown], axis=0))


def plot_accuracy(study: Study, recorded: Mapping[str, Array]) -> Accuracy:
    """Lay out one strip for each row that has anything to show."""
    rows = [row for row in study.rows if row.scores or row.error]
    found = {id(row): _largest(row, recorded) for row in rows}
    low, high = _decades(_marks(rows, found.values(), study.reference.noise))
    x = Scale(low, high, lambda value: math.log10(max(value, SMALLEST))).x
    step = 1 if high - low < MOST_LABELS else 2
    ticks = (Tick(x(10.0**tick), f"1e{tick}" if tick else "1") for tick in range(low, high + 1, step))
    return Accuracy(tuple(_strip(row, found[id(row)], x, study.reference) for row in rows), tuple(ticks))


def _marks(rows: Sequence[ReportRow], found: Iterable[Array | None], noise: Sequence[Noise]) -> list[float]:
    marks = [value for array in found if array is not None for value in array[np.isfinite(array)].tolist()]
    for measure in [row.error for row in rows]:
        marks += [value for value in (measure.value, measure.limit) if value] if measure else []
    return [mark for mark in marks + [n.value for n in noise] if mark > SMALLEST]


def _decades(marks: Sequence[float]) -> tuple[int, int]:
    low, high = min(marks, default=1e-7), max(marks, default=1.0)
    first = math.floor(math.log10(low) - 0.1)
    return first, max(first + 2, math.ceil(math.log10(high) + 0.1))


def _strip(row: ReportRow, values: Array | None, x: Callable[[float], float], reference: ReferenceInfo) -> Strip:
    measure = row.error
    limit = x(measure.limit) if measure and measure.limit is not None else None
    outputs = row.scores or ([measure.output] if measure else [])
    noise = max((found.value for found in reference.noise if found.output in outputs), default=None)
    strip = Strip(row, limit=limit, noise=x(noise) if noise else None)
    if values is None:
        value = measure.value if measure else None
        dot = Dot(x(value), STRIP / 2, f"worst: {formats.plain(value)}") if value is not None else None
        return replace(strip, worst=dot, said="only the worst image is known" if dot else "no finite value")
    finite = np.flatnonzero(np.isfinite(values))
    lost = len(values) - len(finite)
    strip = replace(strip, said=f"{lost} of {len(values)} images are not finite" if lost else "")
    if not len(finite):
        return strip
    order = finite[np.argsort(values[finite], kind="stable")].tolist()
    shown = [order[i] for i in np.unique(np.linspace(0, len(order) - 1, MOST_DOTS).astype(int))]
    dots = tuple(_dot(i, image, float(values[image]), x, reference) for i, image in enumerate(shown))
    low, middle, high = (x(float(q)) for q in np.quantile(values[finite], (0.25, 0.5, 0.75)))
    worst = Dot(x(float(values[order[-1]])), STRIP / 2, f"worst: {_titled(order[-1], values[order[-1]], reference)}")
    return replace(strip, dots=dots, box=(low, middle, high), worst=worst)


def _dot(i: int, image: int, value: float, x: Callable[[float], float], reference: ReferenceInfo) -> Dot:
    y = STRIP / 2 + SPREAD * ((i * GOLDEN) % 1 - 0.5)
    return Dot(x(value), round(y, 1), _titled(image, value, reference))


def _titled(image: int, value: float, reference: ReferenceInfo) -> str:
    return f"{reference.name(image)}: {formats.plain(value)}"


@dataclass(frozen=True)
class Bar:
    """One latency."""

    label: str
    p50: float
    p95: float
    number: str
    title: str
    own: bool = False

    @property
    def inside(self) -> bool:
        """Whether its number is written inside it."""
        return not self.own and self.p50 > LONG

    @property
    def edge(self) -> bool:
        """Whether its number is written at the right edge, over its whisker."""
        return not self.own and self.p50 <= LONG < self.p95


@dataclass(frozen=True)
class LatencyLane:
    """The bars of one artifact, its own first."""

    label: str
    variant: str
    status: str
    bars: tuple[Bar, ...]
    slower: bool = False


@dataclass(frozen=True)
class Panel:
    """Lanes that share an axis because they ran in the same place."""

    title: str
    device: str
    lanes: tuple[LatencyLane, ...]
    ticks: tuple[Tick, ...]


def plot_latency(study: Study) -> tuple[Panel, ...]:
    """Lay out a panel for each place in which something was timed, and one for the reference's device."""
    places: dict[tuple[str, str, str], list[ReportRow]] = {}
    for row in study.rows:
        if row.timing is not None:
            places.setdefault((row.origin, _family(row), formats.runtime(row)), []).append(row)
    panels = [_panel(" · ".join(part for part in key if part), rows) for key, rows in sorted(places.items())]
    return (*panels, *_reference_panel(study.reference))


def _panel(title: str, rows: Sequence[ReportRow]) -> Panel:
    timed = [timing for row in rows for timing in _timings(row).values()]
    longest = max(max(timing.p50, timing.p95) for timing in timed) * BAR_ROOM or 1.0
    lanes = tuple(LatencyLane(row.target, _variant(row), row.status, _bars(row, longest), row.slower) for row in rows)
    device = next((row.timing.device for row in rows if row.timing), "")
    return Panel(title, device, lanes, _time_ticks(longest))


def _family(row: ReportRow) -> str:
    """What shares a panel: `wasm-fp32` and `wasm-q8` ran in the same runtime on the same machine."""
    return row.place.partition("-")[0]


def _variant(row: ReportRow) -> str:
    return row.place if row.place != _family(row) else row.precision


def _timings(row: ReportRow) -> dict[str, Timing]:
    return row.found.timings if row.found else {}


def _bars(row: ReportRow, longest: float) -> tuple[Bar, ...]:
    order = sorted(_timings(row).items(), key=lambda pair: (pair[0] != CANDIDATE, pair[1].p50, pair[0]))
    return tuple(_bar(row, name, timing, longest) for name, timing in order)


def _bar(row: ReportRow, name: str, timing: Timing, longest: float) -> Bar:
    label = row.target if name == CANDIDATE else name
    parts = (("p50", timing.p50), ("p90", timing.p90), ("p95", timing.p95), ("p99", timing.p99))
    times = ", ".join(f"{part} {formats.milliseconds(value)}" for part, value in parts)
    title = f"{label}: {times}; {timing.runs} runs; {timing.device}"
    p50, p95 = (Scale(0, longest).x(value) for value in (timing.p50, timing.p95))
    return Bar(label, p50, p95, formats.milliseconds(timing.p50), title, name == CANDIDATE)


def _reference_panel(reference: ReferenceInfo) -> tuple[Panel, ...]:
    if not reference.speeds:
        return ()
    longest = max(speed.p95 or speed.p50 for speed in reference.speeds) * BAR_ROOM or 1.0
    batches = sorted({speed.batch for speed in reference.speeds}, key=lambda batch: (len(batch), batch))
    lanes = tuple(
        LatencyLane(
            batch.replace("batch", "batch ").replace("  ", " "),
            "",
            "",
            tuple(_of(s, longest) for s in reference.speeds if s.batch == batch),
        )
        for batch in batches
    )
    return (Panel("the PyTorch model where the reference was made", reference.device, lanes, _time_ticks(longest)),)


def _of(speed: Speed, longest: float) -> Bar:
    mode, number = speed.mode.replace("_", " "), formats.milliseconds(speed.p50)
    p50, p95 = (Scale(0, longest).x(value) for value in (speed.p50, speed.p95 or speed.p50))
    return Bar(mode, p50, p95, number, f"{mode}: p50 {number}")


def _time_ticks(longest: float) -> tuple[Tick, ...]:
    decade = 10.0 ** math.floor(math.log10(longest))
    step = next(decade * part for part in (0.1, 0.2, 0.5, 1, 2) if longest / (decade * part) <= MOST_TICKS)
    return tuple(Tick(Scale(0, longest).x(i * step), f"{i * step:g}") for i in range(int(longest / step) + 1))


@dataclass(frozen=True)
class Mark:
    """A value on an axis, its number, and what it says in a title; `low` and `high` are its interval."""

    x: float
    number: str
    title: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Lane:
    """One artifact in one place, or one way to run the model on the reference's device."""

    name: str
    place: str
    status: str
    size: Mark | None = None
    speed: Mark | None = None
    accuracy: Mark | None = None
    best: bool = False


@dataclass(frozen=True)
class Tradeoff:
    """The plot; `base` is what speeds are ratios to, `limit` where the line of a limit stands."""

    lanes: tuple[Lane, ...]
    base: str
    speeds: tuple[Tick, ...]
    sizes: tuple[Tick, ...]
    limit: float = LIMIT_SCALE.x(1.0)


def plot_tradeoff(study: Study, best: Sequence[ReportRow]) -> Tradeoff:
    """Lay out a lane for each row that has a number, then the reference's device; `best` are marked."""
    rows = [row for row in study.rows if row.measures or row.timing]
    base = base_of([row for row in rows if row.timing])
    found = {id(row): beside(row, base) if base is not None else None for row in rows}
    device = _reference_speeds(study, base)
    shown = [speed for speed in (*found.values(), *device.values()) if speed]
    low, high = _octaves(shown)
    x = Scale(low, high, math.log2).x
    largest = max((size_of(study, row) or 0 for row in rows), default=0) * SIZE_ROOM or 1.0
    chosen = {id(row) for row in best}
    lanes = [
        Lane(
            row.target,
            formats.where(row),
            row.status,
            _size(size_of(study, row), largest),
            _marked(found[id(row)], x),
            _accuracy(row),
            id(row) in chosen,
        )
        for row in rows
    ]
    lanes += [Lane(mode, study.reference.device, "", speed=_marked(speed, x)) for mode, speed in device.items()]
    step = 1 if high - low < MOST_OCTAVES else 2
    ticks = [Tick(x(2.0**n), f"{2.0**n:g}×") for n in range(math.ceil(low), math.floor(high) + 1) if n % step == 0]
    return Tradeoff(tuple(lanes), base.label if base else "", tuple(ticks), _sizes(largest))


def _reference_speeds(study: Study, base: ReportRow | None) -> dict[str, RelativeSpeed]:
    """The model itself on the reference's device at batch 1, by mode."""
    found: dict[str, RelativeSpeed] = {}
    for speed in study.reference.speeds:
        if base is not None and base.timing is not None and speed.batch in SINGLE and speed.p50:
            value = base.timing.p50 / speed.p50
            mode = f"PyTorch, {speed.mode.replace('_', ' ')}"
            found[mode] = RelativeSpeed(value, value, value, f"p50 {formats.milliseconds(speed.p50)}; another machine")
    return dict(sorted(found.items(), key=lambda pair: pair[1].value))


def _octaves(shown: Sequence[RelativeSpeed]) -> tuple[float, float]:
    low = min((speed.low for speed in shown), default=1.0)
    high = max((speed.high for speed in shown), default=1.0)
    return min(-1.0, math.log2(low) - 0.5), max(1.0, math.log2(high) + 0.9)  # room for the number on the right


def _marked(speed: RelativeSpeed | None, x: Callable[[float], float]) -> Mark | None:
    if speed is None:
        return None
    return Mark(x(speed.value), formats.times(speed.value), speed.how, x(speed.low), x(speed.high))


def _size(size: int | None, largest: float) -> Mark | None:
    return Mark(Scale(0, largest).x(size), formats.size(size), f"{size} bytes") if size else None


def _sizes(largest: float) -> tuple[Tick, ...]:
    return (Tick(0.0, "0"), Tick(50.0, formats.size(round(largest / 2))), Tick(100.0, formats.size(round(largest))))


def _accuracy(row: ReportRow) -> Mark | None:
    near = tightest(row)
    if near is None:
        return None
    measure, used = near
    if row.status == "rejected" and used <= 1 and row.reasons:  # on other inputs than the evaluation set
        return Mark(100.0, "over", str(row.reasons[0]))
    number = f"{used:.0%}" if math.isfinite(used) and used < 10 else ">1000%" if math.isfinite(used) else "not finite"
    title = f"{measure.metric} of {measure.output or 'the task'} {formats.measured(measure)}, {formats.limit(measure)}"
    return Mark(LIMIT_SCALE.x(used), number, title)
