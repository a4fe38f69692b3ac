"""The plot that a choice rests on: for each artifact its size, its speed and how much of its tightest limit it uses.

Three axes share the lanes. Sizes start at zero. Speeds are ratios to one artifact, on a logarithmic axis with a line at
1, so that the GPU that made the reference stands on the same axis. Accuracy is the share of a limit, with a line at the
limit. Positions are in percent of an axis' width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgekit.report import formats
from edgekit.report.accuracy_plot import Tick
from edgekit.report.recommendation import base_of, size_of, tightest
from edgekit.report.speed import Speed, beside
from edgekit.report.study import SINGLE, ReportRow, Study

BEYOND = 1.25  # times the limit: where the axis of accuracy ends
MOST_OCTAVES = 6  # of speed; beyond, every second one has a line
ROOM = 1.05  # times the largest size, likewise


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
    limit: float = round(100 / BEYOND, 2)


def plot_tradeoff(study: Study, best: Sequence[ReportRow]) -> Tradeoff:
    """Lay out a lane for each row that has a number, then the reference's device; `best` are marked."""
    rows = [row for row in study.rows if row.measures or row.timing]
    base = base_of([row for row in rows if row.timing])
    found = {id(row): beside(row, base) if base is not None else None for row in rows}
    device = _on_reference(study, base)
    shown = [speed for speed in (*found.values(), *device.values()) if speed]
    low, high = _octaves(shown)

    def x(value: float) -> float:
        return round(100 * min(1.0, max(0.0, (math.log2(value) - low) / (high - low))), 2)

    largest = max((size_of(study, row) or 0 for row in rows), default=0) * ROOM or 1.0
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


def _on_reference(study: Study, base: ReportRow | None) -> dict[str, Speed]:
    """The model itself on the reference's device at batch 1, by mode."""
    found: dict[str, Speed] = {}
    for speed in study.reference.speeds:
        if base is not None and base.timing is not None and speed.batch in SINGLE and speed.p50:
            value = base.timing.p50 / speed.p50
            mode = f"PyTorch, {speed.mode.replace('_', ' ')}"
            found[mode] = Speed(value, value, value, f"p50 {formats.milliseconds(speed.p50)}; another machine")
    return dict(sorted(found.items(), key=lambda pair: pair[1].value))


def _octaves(shown: Sequence[Speed]) -> tuple[float, float]:
    low = min((speed.low for speed in shown), default=1.0)
    high = max((speed.high for speed in shown), default=1.0)
    return min(-1.0, math.log2(low) - 0.5), max(1.0, math.log2(high) + 0.9)  # room for the number on the right


def _marked(speed: Speed | None, x: Callable[[float], float]) -> Mark | None:
    if speed is None:
        return None
    return Mark(x(speed.value), formats.times(speed.value), speed.how, x(speed.low), x(speed.high))


def _size(size: int | None, largest: float) -> Mark | None:
    return Mark(round(100 * size / largest, 2), formats.size(size), f"{size} bytes") if size else None


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
    return Mark(round(100 * min(used / BEYOND, 1.0), 2), number, title)
