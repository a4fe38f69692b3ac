"""What became of a run: a record a target, and all of them as a mapping with the report.

`build.schema.json`, which programs may rely on, is what `--json` of export, verify and quantize prints. A field may
come with any version of edgekit; `schema_version` rises where one is renamed, removed or means something else.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from edgekit.artifact.fact import EVALUATION, Fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import CANDIDATE, EvaluationResult, Measure, Result, Timing
from edgekit.artifact.run_record import PARTS
from edgekit.errors import VerdictError
from edgekit.judge.budget import Budget, over_budget, parse_budgets
from edgekit.target import Precision, Target

OVER = "over budget"
ENDED = {"rejected": "was rejected", "failed": "failed", "skipped": "was skipped", OVER: "is over budget"}


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ReportedFact(Fact):
    """A fact of a verdict, where it was found, and in words.

    Attributes:
        place: Where it was found; empty where it concerns the artifact.
        sentence: The fact for people; its words may change, its code does not.
    """

    place: str = ""
    sentence: str


class TargetRecord(_Record):
    """What became of one target.

    Attributes:
        target: Its name.
        status: "verified", "rejected", "not verified here", "over budget", "failed" or "skipped".
        path: The artifact's folder.
        error: Why it failed or was skipped, in a sentence; else empty.
        reused: Whether nothing had to be done.
        part_of: The bundle that it was made for, where nobody named it.
        size: Bytes on disk; null where there is no artifact.
        first_visit: Bytes that a first visit to a bundle's page transfers, with brotli; null elsewhere.
        reasons: Why it is not verified.
        notes: What a reader should know, whatever the status.
        exporter_notes: What the exporter said.
        latency_ms: Its own latency in milliseconds, by place.
        places: What was found in each place; of its numbers those that the evaluation set was held to.
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
        schema_version: Of this record.
        artifacts: One a target, in the order of the run.
        path: The model's build folder.
        report: The report's page.
        reference: What the artifacts were judged by, in words.
        unsigned: Where a signature was asked for, what the report shows and it does not vouch for.
        note: What a reader should know of all artifacts, in a sentence; empty where nothing is.
        doubt: Signs that the model is set up wrongly, in a sentence; empty if there are none.
        trials: Of `edgekit quantize`: each quantization that was tried.
        parts: Of a model of parts each part's record by its name, as this one; its artifacts are those of the whole.
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
    """A fact and the place where it was found."""

    place: str
    fact: Fact

    def __str__(self) -> str:
        return f"{self.place}: {self.fact}"

    def as_record(self) -> ReportedFact:
        """For machines: the place, the fact's fields and its sentence."""
        return ReportedFact(place=self.place, **self.fact.as_record())


@dataclass(frozen=True, repr=False)
class TargetOutcome:
    """What became of one target.

    Attributes:
        target: Its name.
        path: The artifact's folder.
        status: "verified", "rejected" or "not verified here", the worst of its places; "failed" where it could not be
            made, "skipped" where its source was not made, "over budget" where it was not rejected and costs too much.
        error: Why it failed or was skipped, in a sentence.
        report: The whole traceback, where it failed in its own process.
        manifest: The artifact's; None where there is none.
        result: What was measured; None where there is none.
        reused: Whether nothing had to be done.
        over: What is over the user's budget, or was not measured.
        part_of: The bundle that it was made for, where nobody named it: what is wrong with it then leaves the bundle
            without it, and is no fault of the run.
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

    def __repr__(self) -> str:
        return f"<{self.target}: {self.status} in {self.path}>"

    @property
    def bad(self) -> bool:
        """Whether it was rejected, is over budget, failed or was skipped; one that is not verified here is not bad."""
        return self.status in ENDED

    @property
    def left_out(self) -> bool:
        """Whether it is a part of a bundle that does without it: what is only over budget is in the bundle."""
        return bool(self.part_of) and self.bad and self.status != OVER

    @property
    def is_new(self) -> bool:
        """Whether it was made and judged in this run."""
        return self.result is not None and not self.reused

    @property
    def status_text(self) -> str:
        """The status as people are told it: with what must stand beside the word verified."""
        qualifiers = {place.qualifier for place in self.places}
        labels = (f"{place.place}: {place.qualifier}" for place in self.places if place.qualifier)
        beside = next(labels if len(qualifiers) > 1 else iter(qualifiers), "")
        return f"{self.status} ({beside})" if beside and self.status == "verified" else self.status

    @property
    def places(self) -> tuple[EvaluationResult, ...]:
        """What was found in each place."""
        return self.result.places if self.result is not None else ()

    @property
    def verdict(self) -> str:
        """The status."""
        return self.status

    @property
    def reasons(self) -> tuple[PlacedFact, ...]:
        """Why it is not verified."""
        return (*self.over, *(PlacedFact(p.place, fact) for p in self.places for fact in p.reasons))

    @property
    def notes(self) -> tuple[PlacedFact, ...]:
        """What a reader should know, whatever the status."""
        return tuple(PlacedFact(p.place, fact) for p in self.places for fact in p.notes)

    @property
    def metrics(self) -> tuple[Measure, ...]:
        """Every number that was judged or shown, place by place."""
        return tuple(measure for place in self.places for measure in place.measures)

    @property
    def latency(self) -> Mapping[str, Timing]:
        """Its own latency in milliseconds, by place; places where it means nothing are left out."""
        return {place.place: place.timings[CANDIDATE] for place in self.places if CANDIDATE in place.timings}

    @property
    def size(self) -> int | None:
        """Bytes on disk; None where there is no artifact."""
        return self.result.size if self.result is not None else None

    @property
    def first_visit(self) -> int | None:
        """Bytes that a first visit to a bundle's page transfers, with brotli; None elsewhere."""
        return self.result.first_visit if self.result is not None else None

    @property
    def slower(self) -> bool:
        """Whether it was measured to be slower than the artifact it was made from."""
        return any(place.slower for place in self.places)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What to tell of it: the error, the reasons, of several places those that are verified, then the notes."""
        verified = [p for p in self.places if p.status == "verified"] if len(self.places) > 1 else []
        lines = [f"{place.place}: verified ({place.device})" for place in verified]
        notes_on_part = [f"left out of '{self.part_of}', which does without it"] if self.left_out else []
        first = [self.error] if self.error else []
        return (*first, *notes_on_part, *map(str, self.reasons), *lines, *map(str, self.notes))

    def as_record(self) -> TargetRecord:
        """For machines: what `--json` prints of one target."""
        return TargetRecord(
            target=self.target,
            status=self.status,
            path=str(self.path),
            error=self.error,
            reused=self.reused,
            part_of=self.part_of,
            size=self.size,
            first_visit=self.first_visit,
            reasons=tuple(reason.as_record() for reason in self.reasons),
            notes=tuple(note.as_record() for note in self.notes),
            exporter_notes=self.manifest.notes if self.manifest is not None else (),
            latency_ms=dict(self.latency),
            places=tuple(_brief(place) for place in self.places),
        )


def _brief(place: EvaluationResult) -> EvaluationResult:
    limited = tuple(m for m in place.measures if m.batch == EVALUATION and m.limit is not None)
    return place.model_copy(update={"measures": limited, "reasons": (), "notes": ()})


@dataclass(frozen=True, repr=False)
class Build(Mapping[str, TargetOutcome]):
    """What became of all targets: a mapping by the target's name.

    Attributes:
        outcomes: One a target, in the order of the run.
        path: The model's build folder.
        reference: The device that made the reference, in words.
        unsigned: Where a signature was asked for, what the report shows and it does not vouch for.
        note: What a reader should know of all artifacts, in a sentence; empty where nothing is.
        parts: Of a model of parts each part's build by its name; the outcomes are those of the whole.
        doubt: Signs that the model is set up wrongly, in a sentence; empty if there are none.
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
        """The page: report.html, with report.json, .md and .csv beside it; of a model of parts parts.json."""
        return self.path / (PARTS if self.parts else "report.html")

    @property
    def ok(self) -> bool:
        """Whether no artifact that was asked for was rejected, is over budget, failed or was skipped."""
        return not self.faults

    @property
    def faults(self) -> tuple[TargetOutcome, ...]:
        """What was rejected, is over budget, failed or was skipped, but for parts that a bundle does without."""
        return tuple(outcome for outcome in self.outcomes if outcome.bad and not outcome.left_out)

    def raise_for_verdict(self) -> None:
        """See that nothing was rejected and nothing failed.

        Raises:
            VerdictError: Naming each artifact that was, with its first reason.
        """
        bad = self.faults
        if bad:
            summaries = (f"'{o.target}' {ENDED[o.status]}" + "".join(f" ({s})" for s in o.sentences[:1]) for o in bad)
            raise VerdictError("; ".join(summaries))

    def as_record(self) -> dict[str, object]:
        """For machines: what `--json` prints, by `build.schema.json`."""
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
        """A table, for notebooks."""
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
    """Budgets as a user gave them.

    Raises:
        UsageError: If one is not a budget, or selects what is not known.
    """
    groups = {group for target in targets.values() for group in target.groups}
    return parse_budgets(budgets, {*targets, *groups, *get_args(Precision)})


def apply_budgets(
    outcomes: Mapping[str, TargetOutcome], targets: Mapping[str, Target], budgets: Sequence[Budget]
) -> dict[str, TargetOutcome]:
    """The outcomes with what is over budget; a rejected artifact stays a rejected one."""
    return {name: _apply_budgets(outcome, targets[name], budgets) for name, outcome in outcomes.items()}


def _apply_budgets(outcome: TargetOutcome, target: Target, budgets: Sequence[Budget]) -> TargetOutcome:
    if outcome.result is None:
        return outcome
    names = {outcome.target, *target.groups, outcome.result.precision}
    over = tuple(PlacedFact(place, fact) for place, fact in over_budget(budgets, names, outcome.result))
    status = OVER if over and not outcome.bad else outcome.status
    return replace(outcome, over=over, status=status)
