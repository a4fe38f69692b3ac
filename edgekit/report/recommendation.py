"""Which artifact to ship to whom: one recommendation for servers, browsers, Android and iOS, with the reason.

Only verified artifacts are recommended, and for a platform that this host cannot run those whose numbers were verified
in an interpreter, which is said. Servers get the fastest of those that take all sizes that the original takes; where
the download counts, the smallest that is not slower than the original. Of speeds whose intervals overlap neither is
faster: then the smaller artifact is taken, and of sizes that are nearly equal the faster one. What a target declares to
have a successor is recommended to nobody.
"""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit import registry
from edgekit.artifact.fact import EVALUATION
from edgekit.artifact.result import WIDEST, EvaluationResult, Measure, Ratio
from edgekit.report import formats
from edgekit.report.change import badness
from edgekit.report.study import FAILURES, BuildReport, ReportRow
from edgekit.target import Audience, TargetDescription

SERVER, BROWSER, ANDROID, IOS = "Server", "Browser", "Android", "iOS"
_AUDIENCES: Mapping[Audience, str] = {"server": SERVER, "browser": BROWSER, "android": ANDROID, "ios": IOS}
SLOWER = 1.1
"""Times: an artifact that is slower by less is not left out where the download counts."""
SAME_SIZE = 1.05
"""Times: sizes that differ by less count as equal, and the speed decides."""
EQUAL = 0.02
"""Share: a ratio that is nearer to 1 is told as a word."""


@dataclass(frozen=True)
class Candidate:
    """An artifact, or one variant of a bundle, beside the original of the same audience: fp32, where there is one.

    `size` is what a device loads, in bytes; `smaller` the original's size over its own; `speed` is beside the
    original's. None where one is unknown or too noisy to say. `fixed` are axes that are open in the original.
    """

    row: ReportRow
    size: int | None
    smaller: float | None
    speed: Speed | None
    fixed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As users know it."""
        return " ".join(part for part in (self.row.target, self.row.place if self.row.verdict.variant else "") if part)

    @property
    def ran_natively(self) -> bool:
        """Whether a runtime of the platform itself answered, rather than an interpreter."""
        return self.row.place != "interpreter"

    @property
    def gains(self) -> str:
        """What it gains, in a few words."""
        parts = [_ratio(self.smaller, "smaller", "larger", "as large")] if self.smaller else []
        parts += [_ratio(self.speed.value, "as fast", "slower", "as fast")] if self.speed else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Recommendation:
    """What to ship to one audience: `best`, or nothing.

    `against` names the original that gains are beside, empty where `best` is that itself; `task` is what it does to the
    task metric, `limit` the number that is nearest to its limit; `others` what else could be shipped, and what not;
    `undecided` whether something was not verified here, which another host, or more time or memory, may verify;
    `doubtful` whether the model itself seems to be set up wrongly.
    """

    audience: str
    best: Candidate | None
    against: str = ""
    task: str = ""
    limit: str = ""
    others: tuple[str, ...] = ()
    undecided: bool = False
    doubtful: bool = False

    @property
    def head(self) -> str:
        """What to do, in a few words."""
        if self.best is None:
            return "Nothing verified on this host" if self.undecided else "Nothing to ship"
        # An artifact that agrees with a doubtful model is right about the model alone.
        if self.doubtful:
            return f"{self.best.name} is verified against the model alone"
        return f"Ship {self.best.name}" if self.best.ran_natively else f"Try {self.best.name}"

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        if self.best is None:
            return ""
        joint = "as" if self.best.gains.endswith(("as fast", "as large")) else "than"
        gains = f"{self.best.gains} {joint} {self.against}" if self.against and self.best.gains else ""
        alone = f"{formats.size(self.best.size)}, and nothing that was verified is better" if not self.against else ""
        unproved = "" if self.best.ran_natively else "no device of the platform has run it"
        return ", ".join(part for part in (gains or alone, self.task, unproved) if part)

    @property
    def sentence(self) -> str:
        """Head and reason."""
        return f"{self.head}: {self.reason}" if self.reason else self.head


def recommend(study: BuildReport) -> tuple[Recommendation, ...]:
    """One recommendation for each audience for which anything was asked."""
    rows = by_audience(row for row in study.rows if not row.origin and row.status != "not installed")
    successors = {target: about.successor for target, about in _abouts().items()}
    return tuple(_for(study, name, rows[name], successors) for name in (SERVER, BROWSER, ANDROID, IOS) if name in rows)


def by_audience(rows: Iterable[ReportRow]) -> dict[str, list[ReportRow]]:
    """Rows by whom artifacts are shipped to, as their targets declare; one that is not installed counts for servers."""
    abouts = _abouts()
    grouped: dict[str, list[ReportRow]] = {}
    for row in rows:
        if (audience := _AUDIENCES.get(abouts[row.target].audience)) is not None:
            grouped.setdefault(audience, []).append(row)
    return grouped


def _abouts() -> defaultdict[str, TargetDescription]:
    """What each target declares, read at once: each look into the registry reads all installed packages."""
    return defaultdict(TargetDescription, {name: target.about for name, target in registry.loadable()[0].items()})


def base_of(rows: Sequence[ReportRow]) -> ReportRow | None:
    """What others are compared with: of the verified ones the most precise, and of several the first by name."""
    ranks = {"fp32": 0, "fp16": 1}

    def key(row: ReportRow) -> tuple[int, bool, str, str]:
        return ranks.get(row.precision, len(ranks)), row.target != "onnx", row.target, row.place

    return min((row for row in rows if row.status == "verified"), key=key, default=None)


def size_of(study: BuildReport, row: ReportRow) -> int | None:
    """Bytes of the model that a device loads: of a bundle those of the variant, whose entry is a page."""
    manifest = next((each.manifest for each in study.artifacts if each.target == row.target), None)
    if manifest is None:
        return row.size
    path = next((v.path for v in manifest.bundle.variants if v.name == row.verdict.variant), "")
    return next((file.size for file in manifest.files if file.path == path), row.size)


def _for(study: BuildReport, audience: str, rows: Sequence[ReportRow], successors: Mapping[str, str]) -> Recommendation:
    rejected = {row.target for row in rows if row.status == "rejected" and not row.verdict.variant}
    replaced = {row.target: new for row in rows if (new := successors.get(row.target))}
    out = rejected | set(replaced)
    good = [row for row in rows if row.status == "verified" and row.target not in out]
    # An artifact counts in the first of its places, but each variant of a bundle.
    first = {row.target: row for row in reversed(rows)}
    good = [row for row in good if row.verdict.variant or row is first[row.target]]
    base = base_of(good)
    candidates = {id(row): _candidate(study, row, base) for row in good}
    if audience == SERVER:
        best = _fastest([candidate for candidate in candidates.values() if not candidate.fixed])
    else:
        best = _smallest(list(candidates.values()))
    others = [_gain_text(candidate, base) for candidate in candidates.values() if candidate is not best]
    bad = [row for row in rows if row.status in (*FAILURES, "skipped") and row.reasons]
    others += [f"{_candidate(study, row, None).name}: {row.status}, {row.reasons[0]}" for row in bad]
    others += [f"{target}: no longer developed, new ones take {new}" for target, new in replaced.items()]
    if best is None:
        undecided = any(row.status == "not verified here" for row in rows)
        return Recommendation(audience, None, others=tuple(others), undecided=undecided)
    doubt = study.reference.evaluation.doubt
    against = candidates[id(base)].name if base is not None and base is not best.row else ""
    task = formats.task(study.reference.evaluation.metric, study.reference.evaluation.mean, best.row.drop)
    return Recommendation(
        audience, best, against, task, deciding_text(best.row.verdict), tuple(others), doubtful=bool(doubt)
    )


def _candidate(study: BuildReport, row: ReportRow, base: ReportRow | None) -> Candidate:
    size = size_of(study, row)
    if base is None or row is base:
        return Candidate(row, size, None, None)
    full = size_of(study, base)
    axes = {each.target: each.manifest.open_sizes for each in study.artifacts if each.manifest is not None}
    fixed = tuple(name for name in axes.get(base.target, {}) if name not in axes.get(row.target, {}))
    return Candidate(row, size, full / size if full and size else None, beside(row, base), fixed)


def _gain_text(candidate: Candidate, base: ReportRow | None) -> str:
    """What an artifact that is not recommended gains, and which sizes it has fixed."""
    gains = "the original" if candidate.row is base else candidate.gains or "no gain"
    return f"{candidate.name}: {gains}" + (f", {', '.join(candidate.fixed)} fixed" if candidate.fixed else "")


def _fastest(candidates: Sequence[Candidate]) -> Candidate | None:
    """The smallest of those that are as fast as the fastest; what was not timed counts as fast as the original."""
    top = max((_low(candidate) for candidate in candidates), default=1.0)
    return _lightest([candidate for candidate in candidates if _high(candidate) >= top])


def _smallest(candidates: Sequence[Candidate]) -> Candidate | None:
    """The smallest of those that are not surely slower than the original, which is one of them."""
    return _lightest([candidate for candidate in candidates if _high(candidate) * SLOWER >= 1.0])


def _lightest(candidates: Sequence[Candidate]) -> Candidate | None:
    """The smallest; of those that are nearly as small the fastest."""
    smallest = min((_bytes(candidate) for candidate in candidates), default=math.inf)
    return min(
        (candidate for candidate in candidates if _bytes(candidate) <= smallest * SAME_SIZE),
        key=lambda candidate: (-_low(candidate), _bytes(candidate)),
        default=None,
    )


def _bytes(candidate: Candidate) -> float:
    return candidate.size if candidate.size is not None else math.inf


def _low(candidate: Candidate) -> float:
    return candidate.speed.low if candidate.speed else 1.0


def _high(candidate: Candidate) -> float:
    return candidate.speed.high if candidate.speed else 1.0


def _ratio(value: float, more: str, less: str, equal: str) -> str:
    """`3.6x smaller`, `1.8x as fast`, `as large`."""
    if abs(value - 1) < EQUAL:
        return equal
    return f"{1 / value:.2g}x {less}" if value < 1 and less else f"{value:.2g}x {more}"


def share_of_limit(measure: Measure) -> float:
    """The share of its limit that a number uses: 1 at the limit, infinite where it is not finite or has no limit."""
    room = badness(measure.metric, measure.limit)
    if not measure.passed and (measure.value is None or measure.limit is None or room <= 0):
        return math.inf
    return badness(measure.metric, measure.value) / room if 0 < room < math.inf else 0.0


def decisive(verdict: EvaluationResult) -> Measure | None:
    """The number that decided: None where none did, as where an artifact gave no answer."""
    failed = [measure for measure in verdict.measures if not measure.passed]
    if failed:
        return _nearest(failed)
    return tightest(verdict) if verdict.status == "verified" else None


def tightest(verdict: EvaluationResult) -> Measure | None:
    """The number that is nearest to its limit: of the evaluation set, and without one of all that was asked."""
    candidates = [m for m in verdict.measures if m.limit is not None and 0 < badness(m.metric, m.limit) < math.inf]
    return _nearest([m for m in candidates if m.batch == EVALUATION] or candidates)


def _nearest(measures: Iterable[Measure]) -> Measure | None:
    return max(measures, key=lambda m: (share_of_limit(m), m.batch == EVALUATION), default=None)


def deciding_text(verdict: EvaluationResult) -> str:
    """The number that decided with its limit, in words; empty where there is none."""
    measure = decisive(verdict)
    if measure is None:
        return ""
    where = f", {measure.batch}" if measure.batch != EVALUATION else ""
    return f"{formats.beside_limit(measure)}{where}"


SURE = 1.1
"""Times: what a ratio of two medians that did not run interleaved may be off by, either way, on a quiet host."""


@dataclass(frozen=True)
class Speed:
    """Times as fast as another artifact, with its interval, and how that is known."""

    value: float
    low: float
    high: float
    how: str


def beside(row: ReportRow, base: ReportRow) -> Speed | None:
    """How many times as fast as `base` a row is; None where that was not measured or is too noisy to say.

    In this order: the two ran interleaved; both ran interleaved with the same third; their medians, where one runtime
    of one host ran both.
    """
    if row.timing is None or base.timing is None:
        return None
    p50 = f"p50 {formats.milliseconds(row.timing.p50)}"
    if row is base:
        return Speed(1.0, 1.0, 1.0, f"{p50}; all speeds are ratios to this")
    direct = next((ratio for ratio in row.verdict.ratios if ratio.baseline == base.target), None)
    if direct is not None:
        text = f"{p50}; 95 % interval {formats.interval(direct)}"
        return None if direct.noisy else Speed(direct.value, direct.low, direct.high, text)
    for own in row.verdict.ratios:
        for other in (ratio for ratio in base.verdict.ratios if ratio.baseline == own.baseline):
            return _through(own, other, p50)
    if _runtime_key(row) != _runtime_key(base):
        return None
    value = base.timing.p50 / row.timing.p50
    return Speed(value, value / SURE, value * SURE, f"{p50}; not run interleaved with {base.label}")


def _runtime_key(row: ReportRow) -> tuple[str, str, str]:
    return row.origin, row.processor, formats.runtime(row)


def _through(own: Ratio, other: Ratio, p50: str) -> Speed | None:
    if own.noisy or other.noisy or own.high / other.low > WIDEST * own.low / other.high:
        return None
    text = f"{p50}; both ran interleaved with {own.baseline}"
    return Speed(own.value / other.value, own.low / other.high, own.high / other.low, text)


PLATFORMS = {ANDROID: "android", IOS: "ios"}
SIGNATURE = "signature"  # a signed build's folder
EXPLAINED = ("fp16", "int8", "int4")
"""Precisions whose errors `edgekit explain` attributes to modules."""


def next_commands(folder: Path, study: BuildReport, advice: Sequence[Recommendation]) -> tuple[str, ...]:
    """The commands, one a purpose; where none applies to what was verified, the one that judges again elsewhere.

    A signed build is not to be judged again in its place: its results would be others than were signed.
    """
    commands = (*_ship_sentences(folder, advice), *_explanations(folder, study))
    proved = {row.target for row in study.rows if row.status == "verified"}
    if commands or not proved or (folder / SIGNATURE).is_dir():
        return commands
    targets, _ = registry.loadable()
    code = any(targets[name].runs_code for name in proved & targets.keys())
    trust = " --trust-build" if code else ""
    return (f"edgekit verify {shlex.quote(str(folder))}{trust}  # on the host that will run it",)


def _ship_sentences(folder: Path, advice: Sequence[Recommendation]) -> Iterator[str]:
    for recommendation in advice:
        if recommendation.best is None:
            continue
        bundle = folder / recommendation.best.row.target
        if recommendation.audience == BROWSER and (bundle / "index.html").is_file():
            yield f"edgekit demo {shlex.quote(str(bundle))}"
        if recommendation.audience in PLATFORMS:
            yield f"edgekit assets {PLATFORMS[recommendation.audience]} {shlex.quote(str(folder))} --into APP"


def _explanations(folder: Path, study: BuildReport) -> Iterator[str]:
    rejected = [row for row in study.rows if row.status == "rejected" and not row.origin and row.precision in EXPLAINED]
    for target in dict.fromkeys(row.target for row in rejected):
        manifest = next(each.manifest for each in study.artifacts if each.target == target)
        if manifest is not None and manifest.entry.endswith(".onnx"):
            yield f"edgekit explain {shlex.quote(str(folder / target))}"
            return
