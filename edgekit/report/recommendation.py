"""Which artifact to ship to whom: one recommendation for servers, browsers, Android and iOS, with the reason.

Only verified artifacts are recommended, and for a platform that this host cannot run those whose numbers were verified
in an interpreter, which is said. Servers get the fastest; where the download counts, the smallest that is not slower
than the original. Of speeds whose intervals overlap neither is faster: then the smaller artifact is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgekit import registry
from edgekit.artifact.fact import EVALUATION
from edgekit.artifact.result import Measure
from edgekit.errors import UsageError
from edgekit.report import formats
from edgekit.report.change import badness
from edgekit.report.speed import Speed, beside
from edgekit.report.study import ReportRow, Study
from edgekit.target import Audience

SERVER, BROWSER, ANDROID, IOS = "Server", "Browser", "Android", "iOS"
_AUDIENCES: Mapping[Audience, str] = {"server": SERVER, "browser": BROWSER, "android": ANDROID, "ios": IOS}
SLOWER = 1.1
"""Times: an artifact that is slower by less is not left out where the download counts."""
EQUAL = 0.02
"""Share: a ratio that is nearer to 1 is told as a word."""


@dataclass(frozen=True)
class Candidate:
    """An artifact, or one variant of a bundle, beside the original of the same audience: fp32, where there is one.

    Attributes:
        row: Where it was judged.
        name: As users know it.
        size: Bytes that a device loads.
        smaller: The original's size over its own; None where one is unknown.
        speed: Beside the original's; None where that was not measured or is too noisy to say.
        proved: Whether a runtime of the platform itself answered, rather than an interpreter.
    """

    row: ReportRow
    name: str
    size: int | None
    smaller: float | None
    speed: Speed | None
    proved: bool

    @property
    def gains(self) -> str:
        """What it gains, in a few words."""
        parts = [_ratio(self.smaller, "smaller", "larger", "as large")] if self.smaller else []
        parts += [_ratio(self.speed.value, "as fast", "", "as fast")] if self.speed else []
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Recommendation:
    """What to ship to one audience.

    Attributes:
        audience: To whom.
        best: What to ship; None where nothing can be.
        against: Name of the original that gains are beside; empty where `best` is that itself.
        task: What it does to the task metric; empty where there is none.
        limit: The number that is nearest to its limit.
        others: What else could be shipped, and what not, one sentence each.
    """

    audience: str
    best: Candidate | None
    against: str = ""
    task: str = ""
    limit: str = ""
    others: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """What to do, in a few words."""
        if self.best is None:
            return "Nothing to ship"
        return f"Ship {self.best.name}" if self.best.proved else f"Try {self.best.name}"

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        if self.best is None:
            return ""
        joint = "as" if self.best.speed else "than"
        gains = f"{self.best.gains} {joint} {self.against}" if self.against and self.best.gains else ""
        alone = f"{formats.size(self.best.size)}, and nothing that was verified is better" if not self.against else ""
        unproved = "" if self.best.proved else "no device of the platform has run it"
        return ", ".join(part for part in (gains or alone, self.task, unproved) if part)

    @property
    def sentence(self) -> str:
        """Head and reason."""
        return f"{self.head}: {self.reason}" if self.reason else self.head


def recommend(study: Study) -> tuple[Recommendation, ...]:
    """One recommendation for each audience for which anything was asked."""
    rows: dict[str, list[ReportRow]] = {}
    for row in study.rows:
        if not row.origin and row.status != "not installed":
            rows.setdefault(audience_of(row.target), []).append(row)
    return tuple(_for(study, name, rows[name]) for name in (SERVER, BROWSER, ANDROID, IOS) if name in rows)


def audience_of(target: str) -> str:
    """To whom a target's artifacts are shipped, as it declares; one that is not installed here counts for servers."""
    try:
        return _AUDIENCES[registry.find(target).about.audience]
    except UsageError:
        return SERVER


def tightest(row: ReportRow) -> tuple[Measure, float] | None:
    """The evaluation number that is nearest to its limit, and the share of the limit that it uses; 1 is the limit."""
    found = [
        (m, badness(m.metric, m.value) / room)
        for m in row.measures
        if m.batch == EVALUATION and m.limit is not None and (room := badness(m.metric, m.limit)) > 0
    ]
    return max(found, key=lambda pair: pair[1], default=None)


def base_of(rows: Sequence[ReportRow]) -> ReportRow | None:
    """What others are compared with: of the verified ones the most precise, and of several the first by name."""
    good = [row for row in rows if row.status == "verified"]
    order = ("fp32", "fp16")

    def key(row: ReportRow) -> tuple[int, bool, str, str]:
        rank = order.index(row.precision) if row.precision in order else len(order)
        return rank, row.target != "onnx", row.target, row.place

    return min(good, key=key, default=None)


def size_of(study: Study, row: ReportRow) -> int | None:
    """Bytes of the model that a device loads: of a bundle those of the variant, whose entry is a page."""
    made = next((found.manifest for found in study.artifacts if found.target == row.target), None)
    variant = row.found.variant if row.found else ""
    path = next((v.path for v in made.bundle.variants if v.name == variant), "") if made else ""
    return next((file.size for file in made.files if file.path == path), row.size) if made else row.size


def _for(study: Study, audience: str, rows: Sequence[ReportRow]) -> Recommendation:
    rejected = {row.target for row in rows if row.status == "rejected" and not _variant(row)}
    good = _once([row for row in rows if row.status == "verified" and row.target not in rejected])
    base = base_of(good)
    found = [_candidate(study, row, base) for row in good]
    best = _fastest(found) if audience == SERVER else _smallest(found)
    others = [f"{c.name}: {'the original' if c.row is base else c.gains or 'no gain'}" for c in found if c is not best]
    others += [f"{_name(row)}: {row.status}, {row.reasons[0]}" for row in rows if row.status in _BAD and row.reasons]
    if best is None:
        return Recommendation(audience, None, others=tuple(others))
    near = tightest(best.row)
    limit = f"{near[0].metric} {formats.measured(near[0])}, {formats.limit(near[0])}" if near else ""
    against = _name(base) if base is not None and base is not best.row else ""
    task = formats.task(study.reference.evaluation.metric, study.reference.evaluation.mean, best.row.drop)
    return Recommendation(audience, best, against, task, limit, tuple(others))


def _once(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """An artifact in the first of its places; each variant of a bundle."""
    first = {row.target: row for row in reversed(rows)}
    return [row for row in rows if _variant(row) or row is first[row.target]]


_BAD = ("rejected", "over budget", "failed", "skipped", "unreadable")


def _candidate(study: Study, row: ReportRow, base: ReportRow | None) -> Candidate:
    size, full = size_of(study, row), size_of(study, base) if base is not None else None
    smaller = full / size if full and size and row is not base else None
    speed = beside(row, base) if base is not None and row is not base else None
    return Candidate(row, _name(row), size, smaller, speed, row.place != "interpreter")


def _variant(row: ReportRow) -> str:
    return row.found.variant if row.found else ""


def _name(row: ReportRow) -> str:
    return " ".join(part for part in (row.target, row.place if _variant(row) else "") if part)


def _fastest(found: Sequence[Candidate]) -> Candidate | None:
    """The smallest of those that are as fast as the fastest; what was not timed counts as fast as the original."""
    top = max(found, key=lambda one: _low(one), default=None)
    return min((c for c in found if top and _high(c) >= _low(top)), key=_weight, default=None)


def _smallest(found: Sequence[Candidate]) -> Candidate | None:
    """The smallest of those that are not surely slower than the original, which is one of them."""
    return min((c for c in found if _high(c) * SLOWER >= 1.0), key=_weight, default=None)


def _weight(one: Candidate) -> tuple[float, float]:
    return one.size if one.size is not None else math.inf, -_low(one)


def _low(one: Candidate) -> float:
    return one.speed.low if one.speed else 1.0


def _high(one: Candidate) -> float:
    return one.speed.high if one.speed else 1.0


def _ratio(value: float, more: str, less: str, equal: str) -> str:
    """`3.6x smaller`, `1.8x as fast`, `as large`."""
    if abs(value - 1) < EQUAL:
        return equal
    return f"{1 / value:.2g}x {less}" if value < 1 and less else f"{value:.2g}x {more}"
