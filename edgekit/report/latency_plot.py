"""The plot of latencies: a panel for each place, a lane for each artifact, a bar for it and for each baseline.

Positions are in percent of the width, as in `accuracy.py`. An axis starts at zero, so that lengths compare as times do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.artifact.result import CANDIDATE, Timing
from edgekit.reference.info import ReferenceInfo, Speed
from edgekit.report import formats
from edgekit.report.accuracy_plot import Tick
from edgekit.report.study import ReportRow, Study

ROOM = 1.3  # the longest bar leaves room for its number
MOST_TICKS = 6
LONG = 52  # percent: the words of a longer baseline stand inside its bar, since a phone has no room to the right


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
class Lane:
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
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]


def plot_latency(study: Study) -> tuple[Panel, ...]:
    """Lay out a panel for each place in which something was timed, and one for the reference's device."""
    places: dict[tuple[str, str, str], list[ReportRow]] = {}
    for row in study.rows:
        if row.timing is not None:
            places.setdefault((row.origin, _family(row), formats.runtime(row)), []).append(row)
    panels = [_panel(" · ".join(part for part in key if part), rows) for key, rows in sorted(places.items())]
    return (*panels, *_on_reference(study.reference))


def _panel(title: str, rows: Sequence[ReportRow]) -> Panel:
    timed = [timing for row in rows for timing in _timings(row).values()]
    longest = max(max(timing.p50, timing.p95) for timing in timed) * ROOM or 1.0
    lanes = tuple(Lane(row.target, _variant(row), row.status, _bars(row, longest), row.slower) for row in rows)
    device = next((row.timing.device for row in rows if row.timing), "")
    return Panel(title, device, lanes, _ticks(longest))


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
    p50, p95 = (round(100 * value / longest, 2) for value in (timing.p50, timing.p95))
    return Bar(label, p50, p95, formats.milliseconds(timing.p50), title, name == CANDIDATE)


def _on_reference(reference: ReferenceInfo) -> tuple[Panel, ...]:
    if not reference.speeds:
        return ()
    longest = max(speed.p95 or speed.p50 for speed in reference.speeds) * ROOM or 1.0
    batches = sorted({speed.batch for speed in reference.speeds}, key=lambda batch: (len(batch), batch))
    lanes = tuple(
        Lane(
            batch.replace("batch", "batch ").replace("  ", " "),
            "",
            "",
            tuple(_of(s, longest) for s in reference.speeds if s.batch == batch),
        )
        for batch in batches
    )
    return (Panel("the PyTorch model where the reference was made", reference.device, lanes, _ticks(longest)),)


def _of(speed: Speed, longest: float) -> Bar:
    mode, number = speed.mode.replace("_", " "), formats.milliseconds(speed.p50)
    p50, p95 = (round(100 * value / longest, 2) for value in (speed.p50, speed.p95 or speed.p50))
    return Bar(mode, p50, p95, number, f"{mode}: p50 {number}")


def _ticks(longest: float) -> tuple[Tick, ...]:
    decade = 10.0 ** math.floor(math.log10(longest))
    step = next(decade * part for part in (0.1, 0.2, 0.5, 1, 2) if longest / (decade * part) <= MOST_TICKS)
    return tuple(Tick(round(100 * i * step / longest, 2), f"{i * step:g}") for i in range(int(longest / step) + 1))
