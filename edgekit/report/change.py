"""Changes in one row of a report: verdict, evidence, size, speed, and every limited measure.

A measure counts as changed if it moved by more than a share of what its limit allows (`AllowedChange`). A tenth of a
limit of 1e-4 on a difference is 1e-5; a tenth of a limit of 0.99 on a correlation, which is 1 at best, is 0.001. A
measure that crossed its limit always counts. If the limits differ, the tighter one applies. Measures without a limit
are not compared.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from edgekit.artifact.fact import EVALUATION
from edgekit.artifact.metric import metric_info
from edgekit.artifact.result import Measure
from edgekit.judge.metrics import compare
from edgekit.model.spec import Array, Output
from edgekit.reference.info import ReferenceInfo
from edgekit.report import formats
from edgekit.report.study import STATUSES, ReportRow

Subject = Literal["verdict", "asked", "size", "speed", "accuracy", "image"]
SUBJECTS: tuple[Subject, ...] = ("verdict", "asked", "accuracy", "image", "speed", "size")
NOT_MEASURED = "not measured"
# Largest quotient of an interval's ends for a speed to be compared: a busy host's intervals are wider.
NARROW = 1.5
# Decibels per factor of ten in amplitude.
_DB = 20.0


@dataclass(frozen=True)
class AllowedChange:
    """Changes that do not count, as shares: of the size, of a speed, and of what a measure's limit allows.

    A speed is the ratio to a baseline that ran interleaved on the same host. Both intervals must be narrow and must not
    overlap.
    """

    size: float = 0.01
    speed: float = 0.2
    accuracy: float = 0.1


@dataclass(frozen=True)
class Change:
    """One change for better or worse.

    `what` is the metric and its output, the baseline, or the kind of input; `limit` its limit; `image` the worst image
    afterwards, or the image itself; `batch` the inputs. Each is empty if it has no meaning. `extent` is the change in
    units of what is allowed; infinite if nothing is.
    """

    artifact: str
    subject: Subject
    better: bool
    what: str
    before: str
    after: str
    limit: str = ""
    image: str = ""
    batch: str = ""
    extent: float = math.inf

    @property
    def sentence(self) -> str:
        """The change in one line."""
        subject_text = " ".join(part for part in (self.subject if self.subject != "image" else "", self.what) if part)
        limit = f" (limit {self.limit})" if self.limit else ""
        image = f", image '{self.image}'" if self.image else ""
        batch = f", {self.batch}" if self.batch not in ("", EVALUATION) else ""
        return f"{self.artifact}: {subject_text} {self.before} -> {self.after}{limit}{image}{batch}"

    def as_record(self) -> dict[str, Any]:
        """Return the change as a record."""
        return {**vars(self), "extent": self.extent if math.isfinite(self.extent) else None, "sentence": self.sentence}


@dataclass(frozen=True, eq=False)
class Side:
    """One build's row with its reference, and the reference's scores by output."""

    row: ReportRow
    reference: ReferenceInfo
    recorded: Mapping[str, Array]


def changes(before: Side, after: Side, allowed: AllowedChange) -> Iterator[Change]:
    """Yield the changes between two rows of the same artifact in the same place."""
    old, new = before.row, after.row
    worse = STATUSES[new.status].rank > STATUSES[old.status].rank
    if worse or (new.status == "verified" and old.status != "verified"):
        yield Change(new.label, "verdict", not worse, "", old.status, new.status)
    # A verdict on fewer inputs is weaker.
    evidence = [row.verdict.evidence for row in (old, new)]
    counts = [{**e.inputs, "shapes": e.shapes, "inputs twice": e.repeated} for e in evidence if e is not None]
    for kind, was in counts[0].items() if len(counts) == 2 else ():
        if (now := counts[1].get(kind, 0)) < was:
            yield Change(new.label, "asked", False, kind, str(was), str(now))
    if new.verdict.measures:
        yield from _accuracy(old, new, allowed)
        yield from _images(before, after, allowed)
    yield from _speed(old, new, allowed)
    if old.size and new.size and abs(moved := new.size / old.size - 1) > allowed.size:
        words = formats.size(old.size), formats.size(new.size), f"{allowed.size:+.0%}"
        yield Change(new.label, "size", moved < 0, "", *words, extent=_over(moved, allowed.size))


def _accuracy(old: ReportRow, new: ReportRow, allowed: AllowedChange) -> Iterator[Change]:
    """Yield the largest change of each metric of each output in either direction, over the batches of a kind."""
    # Real and random inputs of one shape have a measure each, in the same order in both builds.
    now: defaultdict[tuple[str, str, str], deque[Measure]] = defaultdict(deque)
    for m in new.verdict.measures:
        now[m.batch, m.output, m.metric].append(m)
    largest: dict[tuple[str, str, str, bool], Change] = {}
    gone: dict[tuple[str, str], Change] = {}
    measured = {(m.output, m.metric) for m in new.verdict.measures}
    for was in old.verdict.measures:
        same = now[was.batch, was.output, was.metric]
        change = _measure(new.label, was, same.popleft() if same else None, allowed)
        if (was.output, was.metric) not in measured and was.limit is not None:
            words = formats.metric_label(was), formats.format_measure(was), NOT_MEASURED, formats.limit(was)
            gone[was.output, was.metric] = Change(new.label, "accuracy", False, *words, batch=was.batch)
        if change is not None:
            kind = was.batch if was.batch in (EVALUATION, "stress") else "shape"
            key = kind, was.output, was.metric, change.better
            largest[key] = max(largest.get(key, change), change, key=lambda each: each.extent)
    yield from gone.values()
    yield from largest.values()


def _measure(label: str, was: Measure, now: Measure | None, allowed: AllowedChange) -> Change | None:
    if now is None or (was.limit is None and now.limit is None):
        return None
    room = min(badness(m.metric, m.limit) for m in (was, now) if m.limit is not None) * allowed.accuracy
    moved = badness(now.metric, now.value) - badness(was.metric, was.value)
    if was.passed == now.passed and (not abs(moved) > room or moved == 0):
        return None
    better = now.passed if was.passed != now.passed else moved < 0
    words = formats.format_measure(was), formats.format_measure(now), formats.limit(now) or formats.limit(was)
    extent = math.inf if was.passed != now.passed and not moved else _over(moved, room)
    return Change(label, "accuracy", better, formats.metric_label(now), *words, now.row, now.batch, extent)


def _images(before: Side, after: Side, allowed: AllowedChange) -> Iterator[Change]:
    """Yield each evaluation image whose map moved by more than allowed, in any limited metric of scores."""
    limits: dict[tuple[str, str], Measure] = {}
    for m in (*before.row.verdict.measures, *after.row.verdict.measures):
        if m.batch == EVALUATION and m.limit is not None and m.output in after.row.scores:
            key = m.output, m.metric
            limits[key] = min(limits.get(key, m), m, key=lambda measure: badness(measure.metric, measure.limit))
    old, new = (_by_image(side, {output for output, _ in limits}) for side in (before, after))
    for (output, metric), limit in limits.items():
        room = badness(metric, limit.limit) * allowed.accuracy
        was, now = (side.get((output, metric), {}) for side in (old, new))
        for image in was.keys() & now.keys():
            moved = badness(metric, now[image]) - badness(metric, was[image])
            if abs(moved) > room:
                info = metric_info(metric)
                words = (
                    formats.metric_label(limit),
                    info.format(was[image]),
                    info.format(now[image]),
                    formats.limit(limit),
                )
                yield Change(after.row.label, "image", moved < 0, *words, image, EVALUATION, _over(moved, room))


def _by_image(side: Side, outputs: Iterable[str]) -> dict[tuple[str, str], dict[str, float]]:
    """Return values by image, by output and metric; empty if maps are missing or cannot be compared."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    for output in outputs:
        maps, right = side.row.scores.get(output), side.recorded.get(output)
        if maps is None or right is None or maps.shape != right.shape or maps.ndim != 2:
            continue
        finite = np.isfinite(np.stack((maps, right))).all((0, 2))
        image_names = [side.reference.name(index) for index in np.flatnonzero(finite).tolist()]
        if not image_names:
            continue
        compared = compare((Output(output, "scores"),), {output: right[finite]}, {output: maps[finite]}, image_names)
        for m in compared.measures:
            if not m.names:
                values[output, m.metric] = dict(zip(image_names, m.values.tolist(), strict=True))
    return values


def _speed(old: ReportRow, new: ReportRow, allowed: AllowedChange) -> Iterator[Change]:
    """Yield changed ratios to interleaved baselines on the same host; milliseconds of two runs do not compare."""
    if old.processor != new.processor:
        return
    before = {ratio.baseline: ratio for ratio in old.verdict.ratios if ratio.high <= NARROW * ratio.low}
    for now in new.verdict.ratios:
        was = before.get(now.baseline)
        if was is None or now.high > NARROW * now.low or not (now.high < was.low or now.low > was.high):
            continue
        moved = now.value / was.value - 1
        if abs(moved) > allowed.speed:
            words = f"against {now.baseline}", formats.ratio(was), formats.ratio(now), f"{-allowed.speed:+.0%}"
            yield Change(new.label, "speed", moved > 0, *words, extent=_over(moved, allowed.speed))


def badness(metric: str, value: float | None) -> float:
    """Return a value's distance from the best possible one; infinite if not finite."""
    if value is None or not math.isfinite(value):
        return math.inf
    info = metric_info(metric)
    # Decibels are logarithmic: a share of them means nothing, a share of the amplitude does.
    if info.unit == "dB":
        return float(10.0 ** (-value / _DB))
    return 1.0 - value if info.better == "higher" else value


def _over(moved: float, room: float) -> float:
    return abs(moved) / room if room > 0 else math.inf
