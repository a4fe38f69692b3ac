"""Outcomes of a run: one record per target, and a mapping of all of them with the report.

`build.schema.json` is the stable schema of `--json` of export, verify and quantize. Any version of edgekit may add a
field; `schema_version` rises if one is renamed, removed or changes its meaning.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from edgekit.artifact.fact import EVALUATION, Code, Fact, fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import CANDIDATE, EvaluationResult, Measure, Result, Timing
from edgekit.artifact.run_record import PARTS
from edgekit.errors import VerdictError
from edgekit.judge.budget import Budget, compare_budgets, parse_budgets
from edgekit.target import Precision, Target

OVER = "over budget"
ENDED = {"rejected": "was rejected", "failed": "failed", "skipped": "was skipped", OVER: "is over budget"}


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ReportedFact(Fact):
    """A fact of a verdict with its place and its sentence.

    Attributes:
        place: Its place; empty if it concerns the artifact.
        sentence: The fact as text; the wording may change, the code does not.
    """

    place: str = ""
    sentence: str


class TargetRecord(_Record):
    """Outcome of one target.

    Attributes:
        target: Its name.
        status: "verified", "rejected", "not verified here", "over budget", "failed" or "skipped".
        path: The artifact's folder.
        error: Sentence why it failed or was skipped; else empty.
        reused: True if nothing changed and no work was done.
        part_of: The bundle that it was exported for; empty if the user selected it.
        size: Bytes on disk; null without an artifact.
        first_visit: Bytes that a first visit to a bundle's page transfers, with brotli; null elsewhere.
        reasons: Why it is not verified.
        notes: Notes on the result, whatever the status.
        exporter_notes: Notes of the exporter.
        latency_ms: Its own latency in milliseconds, by place.
        places: Result of each place, with the limited measures of the evaluation set only.
    """

    target: str
    status: str
    path: str
    error: str = ""
    reused: bool = False
    part_of: str = ""
    size: int | None = None
    first_visit: int | None = None
    reasons: tuple[ReportedFact, ...] = ()
    notes: tuple[ReportedFact, ...] = ()
    exporter_notes: tuple[str, ...] = ()
    latency_ms: dict[str, Timing] = {}
    places: tuple[EvaluationResult, ...] = ()


class BuildRecord(_Record):
    """A build: `edgekit export --json`.

    Attributes:
        schema_version: Version of this record.
        artifacts: One per target, in the order of the run.
        path: The model's build folder.
        report: The report's page.
        reference: Description of the reference's device.
        unsigned: If a signature is required: parts of the report that it does not cover.
        note: Sentence that concerns all artifacts; may be empty.
        doubt: Signs that the model is set up wrongly, in a sentence; may be empty.
        trials: Quantizations that `edgekit quantize` tried.
        parts: For a model of parts: each part's record by name; `artifacts` are those of the whole.
    """

    schema_version: Literal[3] = 3
    artifacts: tuple[TargetRecord, ...]
    path: str
    report: str
    reference: str
    unsigned: tuple[str, ...] = ()
    note: str = ""
    doubt: str = ""
    trials: tuple[dict[str, Any], ...] = ()
    parts: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True)
class PlacedFact:
    """A fact and its place."""

    place: str
    fact: Fact

    def __str__(self) -> str:
        return f"{self.place}: {self.fact}"

    def as_record(self) -> ReportedFact:
        """Return a record with the place, the fact's fields and its sentence."""
        return ReportedFact(place=self.place, **self.fact.as_record())


@dataclass(frozen=True, repr=False)
class TargetOutcome:
    """Outcome of one target.

    Attributes:
        target: Its name.
        path: The artifact's folder.
        status: "verified", "rejected" or "not verified here", the worst of its places; "failed" if the export failed,
            "skipped" if its source is missing or if it is needless, "over budget" if it was not rejected and costs too
            much.
        error: Sentence why it failed or was skipped.
        report: Full traceback, if it failed in its own process.
        manifest: The artifact's manifest; None without an artifact.
        result: The stored result; None without one.
        reused: True if nothing changed and no work was done.
        over: Facts over the user's budget, or not measured.
        part_of: The bundle that it was exported for; empty if the user selected it. If it is bad, the bundle leaves it
            out, and the run does not fail.
        is_needless: True if it was skipped because it would bring nothing and the user did not select it: the run does
            not fail.
    """

    target: str
    path: Path
    status: str
    error: str = ""
    report: str = field(default="", kw_only=True)
    manifest: Manifest | None = None
    result: Result | None = None
    reused: bool = False
    over: tuple[PlacedFact, ...] = ()
    part_of: str = ""
    is_needless: bool = False

    def __repr__(self) -> str:
        return f"<{self.target}: {self.status} in {self.path}>"

    @property
    def bad(self) -> bool:
        """True if rejected, over budget, failed or skipped; "not verified here" is not bad."""
        return self.status in ENDED

    @property
    def left_out(self) -> bool:
        """True if it is part of a bundle that leaves it out; a part that is only over budget stays in."""
        return bool(self.part_of) and self.bad and self.status != OVER

    @property
    def is_new(self) -> bool:
        """True if it was exported or judged in this run."""
        return self.result is not None and not self.reused

    @property
    def status_text(self) -> str:
        """Status with its qualifier."""
        qualifiers = {place.qualifier for place in self.places}
        labels = (f"{place.place}: {place.qualifier}" for place in self.places if place.qualifier)
        beside = next(labels if len(qualifiers) > 1 else iter(qualifiers), "")
        return f"{self.status} ({beside})" if beside and self.status == "verified" else self.status

    @property
    def places(self) -> tuple[EvaluationResult, ...]:
        """Result of each place."""
        return self.result.places if self.result is not None else ()

    @property
    def verdict(self) -> str:
        """The status."""
        return self.status

    @property
    def reasons(self) -> tuple[PlacedFact, ...]:
        """Reasons why it is not verified."""
        return (*self.over, *(PlacedFact(p.place, fact) for p in self.places for fact in p.reasons))

    @property
    def notes(self) -> tuple[PlacedFact, ...]:
        """Notes on the result, whatever the status."""
        return tuple(PlacedFact(p.place, fact) for p in self.places for fact in p.notes)

    @property
    def metrics(self) -> tuple[Measure, ...]:
        """All measures, place by place."""
        return tuple(measure for place in self.places for measure in place.measures)

    @property
    def latency(self) -> Mapping[str, Timing]:
        """Its own latency in milliseconds, by place; places without meaningful timings are left out."""
        return {place.place: place.timings[CANDIDATE] for place in self.places if CANDIDATE in place.timings}

    @property
    def size(self) -> int | None:
        """Bytes on disk; None without an artifact."""
        return self.result.size if self.result is not None else None

    @property
    def first_visit(self) -> int | None:
        """Bytes that a first visit to a bundle's page transfers, with brotli; None elsewhere."""
        return self.result.first_visit if self.result is not None else None

    @property
    def slower(self) -> bool:
        """True if it was measured to be slower than its source artifact."""
        return any(place.slower for place in self.places)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences for the user: error, reasons, verified places if there are several, then notes."""
        verified = [p for p in self.places if p.status == "verified"] if len(self.places) > 1 else []
        lines = [f"{place.place}: verified ({place.device})" for place in verified]
        notes_on_part = [f"left out of '{self.part_of}', which works without it"] if self.left_out else []
        first = [self.error] if self.error else []
        return (*first, *notes_on_part, *map(str, self.reasons), *lines, *map(str, self.notes))

    def as_record(self) -> TargetRecord:
        """Return the record that `--json` prints for one target; the error of a failed one is a reason too."""
        error = (PlacedFact("", fact(Code.TEXT, text=self.error)),) if self.error else ()
        return TargetRecord(
            target=self.target,
            status=self.status,
            path=str(self.path),
            error=self.error,
            reused=self.reused,
            part_of=self.part_of,
            size=self.size,
            first_visit=self.first_visit,
            reasons=tuple(reason.as_record() for reason in (*error, *self.reasons)),
            notes=tuple(note.as_record() for note in self.notes),
            exporter_notes=self.manifest.notes if self.manifest is not None else (),
            latency_ms=dict(self.latency),
            places=tuple(_brief(place) for place in self.places),
        )


def _brief(place: EvaluationResult) -> EvaluationResult:
    # Reasons and notes are in the record of the target; all measures are in report.json.
    limited = tuple(m for m in place.measures if m.batch == EVALUATION and m.limit is not None)
    return place.model_copy(update={"measures": limited, "reasons": (), "notes": ()})


@dataclass(frozen=True, repr=False)
class Build(Mapping[str, TargetOutcome]):
    """Outcomes of all targets: a mapping by the target's name.

    Attributes:
        outcomes: One per target, in the order of the run.
        path: The model's build folder.
        reference: The device that made the reference, in words.
        unsigned: If a signature is required: parts of the report that it does not cover.
        note: Sentence that concerns all artifacts; may be empty.
        parts: For a model of parts: each part's build by name; `outcomes` are those of the whole.
        doubt: Signs that the model is set up wrongly, in a sentence; may be empty.
    """

    outcomes: tuple[TargetOutcome, ...]
    path: Path
    reference: str
    unsigned: tuple[str, ...] = ()
    note: str = ""
    parts: Mapping[str, Build] = field(default_factory=dict)
    doubt: str = ""

    def __getitem__(self, target: str) -> TargetOutcome:
        for outcome in self.outcomes:
            if outcome.target == target:
                return outcome
        raise KeyError(target)

    def __iter__(self) -> Iterator[str]:
        return iter(outcome.target for outcome in self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __repr__(self) -> str:
        return f"<Build {self.path}: {', '.join(f'{o.target} {o.status}' for o in self.outcomes)}>"

    @property
    def report(self) -> Path:
        """The page report.html, with report.json, .md and .csv in the same folder; parts.json for a model of parts."""
        return self.path / (PARTS if self.parts else "report.html")

    @property
    def ok(self) -> bool:
        """True if no selected artifact was rejected, is over budget, failed or was skipped."""
        return not self.faults

    @property
    def faults(self) -> tuple[TargetOutcome, ...]:
        """Outcomes that are bad, except parts that a bundle leaves out and needless exports."""
        return tuple(o for o in self.outcomes if o.bad and not o.left_out and not o.is_needless)

    def raise_for_verdict(self) -> None:
        """Raise if any artifact is bad.

        Raises:
            VerdictError: With each bad artifact and its first reason.
        """
        bad = self.faults
        if bad:
            summaries = (f"'{o.target}' {ENDED[o.status]}" + "".join(f" ({s})" for s in o.sentences[:1]) for o in bad)
            raise VerdictError("; ".join(summaries))

    def as_record(self) -> dict[str, object]:
        """Return the record that `--json` prints, as in `build.schema.json`."""
        record = BuildRecord(
            artifacts=tuple(outcome.as_record() for outcome in self.outcomes),
            path=str(self.path),
            report=str(self.report),
            reference=self.reference,
            unsigned=self.unsigned,
            note=self.note,
            doubt=self.doubt,
        )
        parts = {"parts": {name: part.as_record() for name, part in self.parts.items()}} if self.parts else {}
        return record.model_dump(mode="json", exclude={"trials", "parts"}) | parts

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        heads = ("target", "verdict", "size", "p50", "why")
        lines = ["".join(f"<th style='text-align:left'>{head}</th>" for head in heads)]
        for outcome in self.outcomes:
            p50 = next((f"{timing.p50:.2f} ms" for timing in outcome.latency.values()), "")
            size = f"{outcome.size / 1e6:.2f} MB" if outcome.size is not None else ""
            why = next(iter(outcome.sentences), "") if outcome.status != "verified" else ""
            cells = (outcome.target, outcome.status_text, size, p50, why)
            lines.append("".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in cells))
        caption = f"<caption>reference: {html.escape(self.reference)}</caption>"
        return f"<table>{caption}{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def parse_allowed_budgets(budgets: Sequence[str], targets: Mapping[str, Target]) -> tuple[Budget, ...]:
    """Return the user's budgets, parsed.

    Raises:
        UsageError: If a budget is malformed, or selects an unknown target.
    """
    groups = {group for target in targets.values() for group in target.groups}
    return parse_budgets(budgets, {*targets, *groups, *get_args(Precision)})


def apply_budgets(
    outcomes: Mapping[str, TargetOutcome], targets: Mapping[str, Target], budgets: Sequence[Budget]
) -> dict[str, TargetOutcome]:
    """Return the outcomes with budget violations; a rejected artifact stays rejected."""
    return {name: _apply_budgets(outcome, targets[name], budgets) for name, outcome in outcomes.items()}


def _apply_budgets(outcome: TargetOutcome, target: Target, budgets: Sequence[Budget]) -> TargetOutcome:
    if outcome.result is None:
        return outcome
    names = {outcome.target, *target.groups, outcome.result.precision}
    compared = compare_budgets(budgets, names, outcome.result)
    over = tuple(PlacedFact(place, each) for place, each in compared if each.code is not Code.WITHIN_BUDGET)
    # A worse status stays: what a rejected artifact costs is irrelevant.
    status = OVER if over and not outcome.bad else outcome.status
    return replace(outcome, over=over, status=status)
