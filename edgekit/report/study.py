"""What a report shows, as records: a row for each artifact, precision and place, and the build that they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from edgekit.artifact.fact import EVALUATION, Code, Fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.metric import metric_info
from edgekit.artifact.result import CANDIDATE, Measure, Ratio, Result, Timing, Verdict
from edgekit.artifact.run_record import RunRecord
from edgekit.model.spec import Array
from edgekit.reference.info import ReferenceInfo

RowStatus = Literal[
    "verified",
    "rejected",
    "over budget",
    "not verified here",
    "not judged yet",
    "unreadable",
    "failed",
    "skipped",
    "not installed",
]
SINGLE = ("batch1", "batch 1", "1")
"""What references call one row at a time."""
STATUSES: tuple[RowStatus, ...] = get_args(RowStatus)


@dataclass(frozen=True, eq=False)
class ReportRow:
    """One artifact at one precision in one place.

    Attributes:
        target: What made the artifact.
        precision: Of this variant.
        place: Where it ran; empty where it never did.
        status: The verdict, or why there is none.
        reasons: Why it is not verified.
        found: Everything that was found there.
        size: Bytes of the entry file; None where unknown.
        origin: Of a result from elsewhere: its hardware, or the name it was imported under; empty for this host's own.
        processor: Of the host that judged, with its threads; empty where unknown.
        scores: Outputs with the role "scores" over the evaluation images, [n, N] each, where they were kept.
        errors: Of a model without scores, the largest error of each output over its peak, in each evaluation image [n].
    """

    target: str
    precision: str
    place: str
    status: RowStatus
    reasons: tuple[Fact, ...] = ()
    found: Verdict | None = None
    size: int | None = None
    origin: str = ""
    processor: str = ""
    scores: Mapping[str, Array] = field(default_factory=dict)
    errors: Mapping[str, Array] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Target and place, unique in a report."""
        return " · ".join(part for part in (self.target, self.place, self.origin) if part)

    @property
    def rank(self) -> int:
        """Place of its status among all: verified first."""
        return STATUSES.index(self.status)

    @property
    def device(self) -> str:
        """What ran it, in words."""
        return self.found.device if self.found else ""

    @property
    def qualifier(self) -> str:
        """What must stand beside the word verified; empty where the model has an evaluation set."""
        return self.found.qualifier if self.found else ""

    @property
    def notes(self) -> tuple[Fact, ...]:
        """What a reader should know."""
        return self.found.notes if self.found else ()

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Every number."""
        return self.found.measures if self.found else ()

    @property
    def failed(self) -> tuple[Measure, ...]:
        """The numbers that did not hold."""
        return tuple(measure for measure in self.measures if not measure.passed)

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """Against each baseline."""
        return self.found.ratios if self.found else ()

    @property
    def timing(self) -> Timing | None:
        """Its own latency."""
        return self.found.timings.get(CANDIDATE) if self.found else None

    @property
    def slower(self) -> bool:
        """Whether it was measured to be slower than the artifact it was made from."""
        return any(note.code is Code.SLOWER for note in self.notes)

    def worst(self, *metrics: str) -> Measure | None:
        """The evaluation measure of the first of these metrics that was measured: of scores before other outputs."""
        ranked = {measure.output for measure in self.measures if measure.metric == "spearman"}
        for metric in metrics:
            found = [m for m in self.measures if m.batch == EVALUATION and m.metric == metric]
            found = [m for m in found if m.output in ranked] or found
            if found:
                sign = metric_info(metric).sign
                return max(found, key=lambda m: (m.value is None, sign * (m.value or 0.0)))
        return None

    @property
    def error(self) -> Measure | None:
        """The largest error: of scores absolute, of other outputs relative to their peak."""
        largest = self.worst("max abs")
        if largest is not None and largest.limit is None and not any(m.metric == "spearman" for m in self.measures):
            return self.worst("relative") or largest
        return largest

    @property
    def drop(self) -> Measure | None:
        """The drop of the task metric's mean, whatever the metric's name."""
        return next((m for m in self.measures if m.batch == EVALUATION and m.metric.endswith(" drop")), None)


@dataclass(frozen=True, eq=False)
class ReportedArtifact:
    """One artifact folder with its rows; the manifest is None where it is damaged."""

    target: str
    manifest: Manifest | None
    rows: tuple[ReportRow, ...]
    results: tuple[Result, ...] = ()
    trials: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, eq=False)
class Study:
    """One build folder: its artifacts, what judged them, and the last run over it."""

    name: str
    artifacts: tuple[ReportedArtifact, ...]
    reference: ReferenceInfo
    run: RunRecord = field(default_factory=RunRecord)

    @property
    def rows(self) -> tuple[ReportRow, ...]:
        """Every row, in order of target, origin and place."""
        return tuple(row for found in self.artifacts for row in found.rows)

    def count(self, status: RowStatus) -> int:
        """How many rows have a status."""
        return sum(row.status == status for row in self.rows)

    def beside_reference(self, row: ReportRow) -> dict[str, float]:
        """How many times as fast as the model itself on the reference's device a row is, batch 1, by mode."""
        if row.timing is None or not row.timing.p50:
            return {}
        speeds = [speed for speed in self.reference.speeds if speed.batch in SINGLE and speed.p50]
        return {speed.mode: speed.p50 / row.timing.p50 for speed in speeds}
