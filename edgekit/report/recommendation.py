"""Recommendations: the artifact to ship to servers, browsers, Android and iOS, with the reason.

Only verified artifacts are recommended. For a platform that this host cannot run, verification in an interpreter
counts, and the reason mentions it. Servers get the fastest artifact that takes all sizes of the original; other
platforms, where the download counts, the smallest that is not slower than the original. If speed intervals overlap, the
smaller artifact wins, and of nearly equal sizes the faster one. A target with a successor is never recommended.
"""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit import registry
from edgekit.artifact.fact import EVALUATION, Code, Fact
from edgekit.artifact.result import WIDEST, EvaluationResult, Measure, Ratio
from edgekit.report import formats
from edgekit.report.change import badness
from edgekit.report.study import FAILURES, BuildReport, ReportRow
from edgekit.target import Audience, TargetDescription

SERVER, BROWSER, ANDROID, IOS = "Server", "Browser", "Android", "iOS"
_AUDIENCES: Mapping[Audience, str] = {"server": SERVER, "browser": BROWSER, "android": ANDROID, "ios": IOS}
# Times: an artifact slower by less still qualifies if the download counts.
SLOWER = 1.1
# Times: sizes that differ by less count as equal, so the speed decides.
SAME_SIZE = 1.05
# Kinds of inputs that a sentence names.
MOST_BATCHES = 4
# Share: a ratio nearer to 1 is shown as a word.
EQUAL = 0.02


@dataclass(frozen=True)
class Candidate:
    """An artifact, or one variant of a bundle, and its gains over the audience's original (fp32 if there is one).

    `size` is the bytes that a device loads; `smaller` the original's size over its own; `speed` is relative to the
    original's. None marks an unknown or noisy value. `fixed` are axes that are dynamic in the original.
    """

    row: ReportRow
    size: int | None
    smaller: float | None
    speed: Speed | None
    fixed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name for users."""
        return " ".join(part for part in (self.row.target, self.row.place if self.row.verdict.variant else "") if part)

    @property
    def ran_natively(self) -> bool:
        """True if a runtime of the platform ran it, rather than an interpreter."""
        return self.row.place != "interpreter"

    @property
    def gains(self) -> str:
        """Its gains in a few words."""
        parts = [_ratio(self.smaller, "smaller", "larger", "as large")] if self.smaller else []
        parts += [_ratio(self.speed.value, "as fast", "slower", "as fast")] if self.speed else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Recommendation:
    """The recommendation for one audience: `best`, or nothing.

    Attributes:
        audience: Its name.
        best: The recommended artifact.
        against: The original that gains refer to; empty if `best` is the original.
        task: Effect on the task metric.
        limit: The measure nearest to its limit.
        others: The other artifacts, with their gains or reasons.
        undecided: True if another host, or more time or memory, may verify an artifact.
        doubtful: True if the model itself seems to be set up wrongly.
        instead: A sentence on what to export, if only formats that are no longer developed were; else empty.
    """

    audience: str
    best: Candidate | None
    against: str = ""
    task: str = ""
    limit: str = ""
    others: tuple[str, ...] = ()
    undecided: bool = False
    doubtful: bool = False
    instead: str = ""

    @property
    def head(self) -> str:
        """The recommendation in a few words."""
        if self.instead:
            return "No current format exported"
        if self.best is None:
            return "Nothing verified on this host" if self.undecided else "Nothing to ship"
        # An artifact that agrees with a doubtful model is right about the model alone.
        if self.doubtful:
            return f"{self.best.name} is verified against the model alone"
        return f"Ship {self.best.name}" if self.best.ran_natively else f"Try {self.best.name}"

    @property
    def reason(self) -> str:
        """The reason in a sentence."""
        if self.best is None:
            return self.instead
        joint = "as" if self.best.gains.endswith(("as fast", "as large")) else "than"
        gains = f"{self.best.gains} {joint} {self.against}" if self.against and self.best.gains else ""
        alone = f"{formats.size(self.best.size)}, and no verified artifact is better" if not self.against else ""
        unproved = "" if self.best.ran_natively else "not yet run on a device of the platform"
        qualifier = self.best.row.verdict.qualifier
        return ", ".join(part for part in (gains or alone, self.task, qualifier, unproved) if part)

    @property
    def sentence(self) -> str:
        """Head and reason."""
        return f"{self.head}: {self.reason}" if self.reason else self.head


def recommend(study: BuildReport) -> tuple[Recommendation, ...]:
    """Return one recommendation for each audience with a row."""
    rows = by_audience(row for row in study.rows if not row.origin and row.status != "not installed")
    successors = {target: about.successor for target, about in _abouts().items()}
    return tuple(_for(study, name, rows[name], successors) for name in (SERVER, BROWSER, ANDROID, IOS) if name in rows)


def by_audience(rows: Iterable[ReportRow]) -> dict[str, list[ReportRow]]:
    """Return rows by their targets' audience; a target that is not installed counts for servers."""
    abouts = _abouts()
    grouped: dict[str, list[ReportRow]] = {}
    for row in rows:
        if (audience := _AUDIENCES.get(abouts[row.target].audience)) is not None:
            grouped.setdefault(audience, []).append(row)
    return grouped


def _abouts() -> defaultdict[str, TargetDescription]:
    """Return the description of each target, read at once: each registry lookup reads all installed packages."""
    return defaultdict(TargetDescription, {name: target.about for name, target in registry.with_unlisted().items()})


def base_of(rows: Sequence[ReportRow]) -> ReportRow | None:
    """Return the row to compare with: of the verified ones the most precise, and of several the first by name."""
    ranks = {"fp32": 0, "fp16": 1}

    def key(row: ReportRow) -> tuple[int, bool, str, str]:
        return ranks.get(row.precision, len(ranks)), row.target != "onnx", row.target, row.place

    return min((row for row in rows if row.status == "verified"), key=key, default=None)


def size_of(study: BuildReport, row: ReportRow) -> int | None:
    """Return the bytes of the model that a device loads; in a bundle those of the variant, whose entry is a page."""
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
    # An artifact counts only in its first place, but a bundle counts with each variant.
    first = {row.target: row for row in reversed(rows)}
    good = [row for row in good if row.verdict.variant or row is first[row.target]]
    base = base_of(good)
    candidates = {id(row): _candidate(study, row, base) for row in good}
    if audience == SERVER:
        # The smallest of those as fast as the fastest; untimed ones count as fast as the original.
        free = [candidate for candidate in candidates.values() if not candidate.fixed]
        top = max(map(_low, free), default=1.0)
        best = _lightest([candidate for candidate in free if _high(candidate) >= top])
    else:
        # The smallest of those that are not surely slower than the original, which is one of them.
        best = _lightest([candidate for candidate in candidates.values() if _high(candidate) * SLOWER >= 1.0])
    others = [_gain_text(candidate, base) for candidate in candidates.values() if candidate is not best]
    bad = [row for row in rows if row.status in (*FAILURES, "skipped") and row.reasons]
    calibrated = {
        artifact.target: f". It was {note}"
        for artifact in study.artifacts
        for note in (artifact.manifest.notes if artifact.manifest is not None else ())
        if note.startswith("calibrated on")
    }
    others += [
        f"{_candidate(study, row, None).name}: {row.status}, {row.reasons[0]}{calibrated.get(row.target, '')}"
        for row in bad
    ]
    others += [f"{target}: no longer developed. Use {new} instead" for target, new in replaced.items()]
    if best is None:
        undecided = any(row.status == "not verified here" for row in rows)
        # torch-mobile needs PyTorch alone, so it may be the only format for a phone that was exported.
        outdated = [f"{name} is no longer developed. Export {new} with `-t {new}`" for name, new in replaced.items()]
        instead = "; ".join(outdated) if replaced.keys() == {row.target for row in rows} else ""
        return Recommendation(audience, None, others=tuple(others), undecided=undecided, instead=instead)
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
    """Return the gains of an artifact that is not recommended, and its fixed sizes."""
    gains = "the original" if candidate.row is base else candidate.gains or "no gain"
    return f"{candidate.name}: {gains}" + (f", {', '.join(candidate.fixed)} fixed" if candidate.fixed else "")


def _lightest(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the smallest; of nearly equal sizes the fastest."""
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
    """Return `3.6x smaller`, `1.8x as fast` or `as large`."""
    if abs(value - 1) < EQUAL:
        return equal
    return f"{1 / value:.2g}x {less}" if value < 1 and less else f"{value:.2g}x {more}"


def share_of_limit(measure: Measure | Fact) -> float:
    """Return the used share of a measure's limit: 1 at the limit, infinite if not finite or without a limit."""
    room = badness(measure.metric, measure.limit)
    passed = isinstance(measure, Measure) and measure.passed
    if not passed and (measure.value is None or measure.limit is None or room <= 0):
        return math.inf
    return badness(measure.metric, measure.value) / room if 0 < room < math.inf else 0.0


def decisive(verdict: EvaluationResult) -> Measure | None:
    """Return the measure that decided; None if none did, for example if an artifact returned nothing."""
    failed = [m for m in verdict.measures if not m.passed and verdict.status != "verified"]
    if failed:
        return _nearest(failed)
    return tightest(verdict) if verdict.status == "verified" else None


def decisive_share(verdict: EvaluationResult) -> float:
    """Return the share of its limit that the measure that decided uses; 0 if none did."""
    return 0.0 if (measure := decisive(verdict)) is None else share_of_limit(measure)


def join_reasons(reasons: Sequence[Fact]) -> list[str]:
    """Return reasons as sentences; those of one cause are one, with their number and the worst.

    All limits of one output are one cause, and so is any other fault of it on several kinds of inputs.
    """
    causes: dict[tuple[object, ...], list[Fact]] = defaultdict(list)
    for reason in reasons:
        code = Code.LIMIT_EXCEEDED if reason.code is Code.ROWS_BEYOND else reason.code
        causes[(code, reason.output) if reason.output else (code, str(reason))].append(reason)
    sentences = []
    for same in causes.values():
        worst = max(same, key=share_of_limit)
        others = list(dict.fromkeys(each.batch for each in same if each.batch != worst.batch))
        named = ", ".join(others[:MOST_BATCHES]) + (
            f" and {len(others) - MOST_BATCHES} more" * (len(others) > MOST_BATCHES)
        )
        where = f", also on {named}" if others else ""
        count = f"; the worst of {len(same)} faults of this output{where}" if len(same) > 1 else ""
        sentences.append(f"{worst}{count}")
    return sentences


def tightest(verdict: EvaluationResult) -> Measure | None:
    """Return the measure nearest to its limit: of the evaluation set, else of all inputs."""
    candidates = [m for m in verdict.measures if m.limit is not None and 0 < badness(m.metric, m.limit) < math.inf]
    return _nearest([m for m in candidates if m.batch == EVALUATION] or candidates)


def _nearest(measures: Iterable[Measure]) -> Measure | None:
    return max(measures, key=lambda m: (share_of_limit(m), m.batch == EVALUATION), default=None)


def deciding_text(verdict: EvaluationResult) -> str:
    """Return the measure that decided with its limit, as text; empty if none did."""
    measure = decisive(verdict)
    if measure is None:
        return ""
    where = f", {measure.batch}" if measure.batch != EVALUATION else ""
    return f"{formats.beside_limit(measure)}{where}"


# Times: the error, either way, of a ratio of medians that did not run interleaved, on a quiet host.
SURE = 1.1


@dataclass(frozen=True)
class Speed:
    """Speed relative to another artifact, with its interval and its source."""

    value: float
    low: float
    high: float
    how: str


def beside(row: ReportRow, base: ReportRow) -> Speed | None:
    """Return how many times as fast as `base` a row is; None if unknown or too noisy.

    Sources in this order: the two ran interleaved; both ran interleaved with the same third; their medians, if one
    runtime of one host ran both.
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
# A signed build's folder.
SIGNATURE = "signature"
# Precisions whose errors `edgekit explain` attributes to modules.
EXPLAINED = ("fp16", "int8", "int4")


def next_commands(folder: Path, study: BuildReport, advice: Sequence[Recommendation]) -> tuple[str, ...]:
    """Return the next commands, one per purpose; if none applies, the one that judges on another host.

    A signed build is not judged again, since its results would differ from the signed ones.
    """
    commands = (*_ship_sentences(folder, advice), *_explanations(folder, study))
    proved = {row.target for row in study.rows if row.status == "verified"}
    if commands or not proved or (folder / SIGNATURE).is_dir():
        return commands
    targets = registry.with_unlisted()
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
        # A file of `edgekit check` has no fp32 artifact beside it.
        if manifest is not None and manifest.entry.endswith(".onnx") and target.startswith("onnx-"):
            yield f"edgekit explain {shlex.quote(str(folder / target))}"
            return
