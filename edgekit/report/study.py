"""Records of a report: a row for each artifact, precision and place, and their build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from edgekit.artifact.fact import EVALUATION, Fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.metric import metric_info
from edgekit.artifact.profile import Profile
from edgekit.artifact.result import CANDIDATE, EvaluationResult, Measure, Result, Status, Timing
from edgekit.artifact.run_record import RunRecord
from edgekit.model.spec import Array
from edgekit.reference.info import ReferenceInfo

RowStatus = Status | Literal["over budget", "not judged yet", "unreadable", "failed", "skipped", "not installed"]


class StatusInfo(NamedTuple):
    """Symbols of a status in the page and in Markdown, and its rank: 0 good, 1 unknown, 2 bad."""

    glyph: str
    mark: str
    rank: int


STATUSES: Mapping[RowStatus, StatusInfo] = {
    "verified": StatusInfo("✓", "✅", 0),
    "rejected": StatusInfo("✕", "❌", 2),
    "over budget": StatusInfo("!", "❌", 1),
    "not verified here": StatusInfo("?", "⚪", 1),
    "not judged yet": StatusInfo("…", "⚪", 1),
    "unreadable": StatusInfo("!", "⚠️", 2),
    "failed": StatusInfo("!", "❌", 2),
    "skipped": StatusInfo("–", "⚪", 2),
    "not installed": StatusInfo("–", "⚪", 1),
}
FAILURES = ("rejected", "over budget", "unreadable", "failed")
# Verdict of a row without a result.
NO_VERDICT = EvaluationResult(status="not verified here")
# Names of the batch of one row in references.
SINGLE = ("batch1", "batch 1", "1")


@dataclass(frozen=True, eq=False)
class ReportRow:
    """One artifact at one precision in one place.

    Attributes:
        target: Its target.
        precision: Precision of this variant.
        place: Its place; empty if it never ran.
        status: The verdict, or why it is missing.
        reasons: Why it is not verified.
        verdict: The result in that place.
        size: Bytes on disk; None if unknown.
        first_visit: Bytes that a first visit to a bundle's page transfers, with brotli; None elsewhere.
        origin: Hardware, or import name, of a result from elsewhere; empty for this host's own.
        processor: Processor of the judging host, with its threads; empty if unknown.
        scores: Outputs with the role "scores" over the evaluation images, [n, N] each, if stored.
        errors: For a model without scores: the largest error of each output over its peak, in each evaluation image
            [n].
    """

    target: str
    precision: str
    place: str
    status: RowStatus
    reasons: tuple[Fact, ...] = ()
    verdict: EvaluationResult = NO_VERDICT
    size: int | None = None
    first_visit: int | None = None
    origin: str = ""
    processor: str = ""
    scores: Mapping[str, Array] = field(default_factory=dict)
    errors: Mapping[str, Array] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Target and place, unique in a report."""
        return " · ".join(part for part in (self.target, self.place, self.origin) if part)

    @property
    def failed_measures(self) -> tuple[Measure, ...]:
        """Measures beyond their limits."""
        return tuple(measure for measure in self.verdict.measures if not measure.passed)

    @property
    def timing(self) -> Timing | None:
        """Its own latency."""
        return self.verdict.timings.get(CANDIDATE)

    def worst(self, metric: str) -> Measure | None:
        """Return the worst evaluation measure of a metric: of scores before other outputs."""
        measures = [m for m in self.verdict.measures if m.batch == EVALUATION and m.metric == metric]
        measures = [m for m in measures if m.output in self._scored_outputs] or measures
        sign = metric_info(metric).sign
        return max(measures, key=lambda m: (m.value is None, sign * (m.value or 0.0)), default=None)

    @property
    def error(self) -> Measure | None:
        """Largest error: absolute for scores, relative to the peak for other outputs."""
        largest = self.worst("max abs")
        if largest is not None and largest.limit is None and not self._scored_outputs:
            return self.worst("relative") or largest
        return largest

    @property
    def drop(self) -> Measure | None:
        """Drop of the task metric's mean, whatever the metric's name."""
        measures = self.verdict.measures
        return next((m for m in measures if m.batch == EVALUATION and m.metric.endswith(" drop")), None)

    @property
    def _scored_outputs(self) -> set[str]:
        return {measure.output for measure in self.verdict.measures if measure.metric == "spearman"}


@dataclass(frozen=True, eq=False)
class ReportedArtifact:
    """One artifact folder with its rows; without a manifest if it is damaged.

    `earlier` is true if the last run did not select it.
    """

    target: str
    manifest: Manifest | None
    rows: tuple[ReportRow, ...]
    results: tuple[Result, ...] = ()
    trials: tuple[Mapping[str, Any], ...] = ()
    earlier: bool = False


@dataclass(frozen=True, eq=False)
class BuildReport:
    """One build folder: its artifacts, its reference, and the last run over it."""

    name: str
    artifacts: tuple[ReportedArtifact, ...]
    reference: ReferenceInfo
    run: RunRecord = field(default_factory=RunRecord)
    profile: Profile | None = None

    @property
    def rows(self) -> tuple[ReportRow, ...]:
        """All rows: the last run's, earlier ones, then targets that are not installed; each by target and place."""
        return tuple(row for artifact in self.artifacts for row in artifact.rows)

    @property
    def missing(self) -> tuple[ReportRow, ...]:
        """Rows of targets that are not installed here."""
        return tuple(row for row in self.rows if row.status == "not installed")

    @property
    def current(self) -> tuple[ReportRow, ...]:
        """Rows of the last run on this host."""
        rows = (row for each in self.artifacts if not each.earlier for row in each.rows)
        return tuple(row for row in rows if not row.origin and row.status != "not installed")

    @property
    def further(self) -> tuple[ReportRow, ...]:
        """Rows of other hosts and of earlier runs."""
        ids = {id(row) for row in (*self.missing, *self.current)}
        return tuple(row for row in self.rows if id(row) not in ids)

    def count(self, status: RowStatus) -> int:
        """Return how many rows have a status."""
        return sum(row.status == status for row in self.rows)

    def reference_outputs(self) -> Mapping[str, Array]:
        """Return the reference's outputs for which a row holds maps."""
        return self.reference.outputs(sorted({name for row in self.rows for name in row.scores}))

    @property
    def model_p50(self) -> dict[str, float]:
        """Milliseconds of the model itself on the reference's device, batch 1, by mode."""
        return {speed.mode: speed.p50 for speed in self.reference.speeds if speed.batch in SINGLE and speed.p50}

    def beside_reference(self, row: ReportRow) -> dict[str, float]:
        """Return a row's speed relative to the model on the reference's device, batch 1, by mode."""
        own = row.timing.p50 if row.timing else 0.0
        return {mode: p50 / own for mode, p50 in self.model_p50.items() if own}
