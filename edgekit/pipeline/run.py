"""The river: model -> targets in order -> artifact -> run -> compare -> verdict -> report.

Everything lies in `build/<model>/`: `model/`, `program/`, `reference/`, one folder a target, and the report. A step
whose result is there and whose inputs did not change does no work; one failing target never stops the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from edgekit import registry, report
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import Result
from edgekit.artifact.store import MANIFEST, read_artifact
from edgekit.errors import ArtifactError, EdgekitError, UsageError
from edgekit.model.graph import capture, program_matches, save_program
from edgekit.model.source import load_model, model_digest, resolve_model, save_model
from edgekit.model.spec import ModelSpec
from edgekit.pipeline import evaluate_step, export_step
from edgekit.pipeline.context import MODEL, PROGRAM, REFERENCE, Build, Events
from edgekit.reference.record import adopt, kept, record_reference
from edgekit.reference.store import Reference, read_reference
from edgekit.storage.files import sweep
from edgekit.target import Target


@dataclass(frozen=True)
class Row:
    """What became of one target.

    Attributes:
        target: Its name.
        status: A verdict, "failed" (it could not be made) or "skipped" (its source was not made).
        sentences: Why, and what the judge noted.
        folder: Of the artifact.
        reused: Whether nothing had to be done.
        notes: What the exporter said of the artifact.
    """

    target: str
    status: str
    sentences: tuple[str, ...]
    folder: Path
    reused: bool = False
    notes: tuple[str, ...] = ()

    @property
    def slower(self) -> bool:
        """Whether it was found slower than the artifact it was made from."""
        return any(evaluate_step.SLOWER in sentence for sentence in self.sentences)


@dataclass(frozen=True)
class Outcome:
    """What became of all of them, where the report is, and which device made the reference."""

    rows: tuple[Row, ...]
    report: Path
    reference: str

    def as_record(self) -> dict[str, object]:
        """What `--json` prints."""
        rows = [{**asdict(row), "folder": str(row.folder)} for row in self.rows]
        return {"artifacts": rows, "report": str(self.report), "reference": self.reference}


class Audience(Events, Protocol):
    """Who is told what happens, and how each target ended."""

    def finished(self, row: Row) -> None:
        """A target has ended."""


def export(
    name: str,
    wanted: tuple[str, ...],
    builds: Path,
    options: Mapping[str, Mapping[str, str]],
    audience: Audience,
    fresh: bool = False,
) -> Outcome:
    """Export a model to targets and judge each.

    Args:
        name: Preset, checkpoint path, or package.module:factory.
        wanted: Names and groups; empty means every target whose libraries are installed.
        builds: The folder of builds.
        options: Options by target and name.
        audience: Told what happens.
        fresh: Whether to export and judge again although nothing changed.

    Raises:
        EdgekitError: For what concerns all targets: the model, the reference, an unknown target or option. What
            concerns one target becomes its row.
    """
    targets, _ = registry.loadable()
    for one in wanted:
        if one not in targets and one in registry.available():
            registry.find(one)  # a broken plug-in that was asked for says why
    order = registry.ordered(registry.select(wanted, targets) if wanted else _installed(targets), targets)
    for target in order if wanted else ():
        registry.require(target, targets[target])
    chosen = {target: _options(target, targets[target], options.get(target, {})) for target in order}
    _refuse_strangers(options, order)
    audience.progress(MODEL, 0.1, "making the model")
    spec = resolve_model(name)
    root = builds / spec.name
    sweep(root)
    save_model(spec, root / MODEL)
    audience.done(MODEL)
    if any(targets[target].source == PROGRAM for target in order):
        _capture(spec, root, audience)
    build = Build(spec, root, targets, _reference(spec, root, audience), audience, fresh)
    rows: dict[str, Row] = {}
    for target in order:
        rows[target] = _one(build, target, chosen[target], rows)
        audience.finished(rows[target])
    report.write(root)
    return Outcome(tuple(rows.values()), root / "report.html", build.recorded.device)


def verify(root: Path, audience: Audience) -> Outcome:
    """Check every artifact's files and judge it again.

    Raises:
        EdgekitError: If there is no build, or its model or reference cannot be used.
    """
    targets, _ = registry.loadable()
    there = [name for name in targets if (root / name / MANIFEST).is_file()]
    if not there:
        raise ArtifactError(f"no artifact in '{root}': make one with `edgekit export`")
    build = Build(load_model(root / MODEL), root, targets, read_reference(root / REFERENCE), audience, fresh=True)
    rows = []
    for name in (n for n in registry.ordered(there, targets) if n in there):
        try:
            made = read_artifact(build.folder(name))
            rows.append(_row(build, made, evaluate_step.judge(build, name, made)))
        except EdgekitError as error:
            rows.append(Row(name, "failed", (str(error),), build.folder(name)))
        audience.finished(rows[-1])
    report.write(root)
    return Outcome(tuple(rows), root / "report.html", build.recorded.device)


def record(name: str, device: str, output: Path | None, audience: Audience) -> Path:
    """Record a model's reference: into a folder that ships with it (without inputs), or into its build."""
    spec = resolve_model(name)
    folder = output or Path("build") / spec.name / REFERENCE
    record_reference(spec, folder, device, output is None, lambda done, text: audience.progress(REFERENCE, done, text))
    audience.done(REFERENCE)
    return folder


def _installed(targets: Mapping[str, Target]) -> tuple[str, ...]:
    return tuple(name for name, target in targets.items() if not registry.missing(target) and not target.obstacle())


def _options(name: str, target: Target, given: Mapping[str, str]) -> dict[str, str]:
    declared = {option.name: option for option in target.options}
    for option, value in given.items():
        if option not in declared:
            possible = ", ".join(declared) or "none"
            raise UsageError(f"target '{name}' has no option '{option}': possible are {possible}")
        choices = declared[option].choices
        if choices and value not in choices:
            raise UsageError(f"option '{name}.{option}' cannot be '{value}': possible are {', '.join(choices)}")
    return {option: given.get(option, declaration.default) for option, declaration in declared.items()}


def _refuse_strangers(options: Mapping[str, Mapping[str, str]], order: tuple[str, ...]) -> None:
    for name in options:
        if name not in order:
            raise UsageError(f"there are options for '{name}', which is not exported: chosen are {', '.join(order)}")


def _capture(spec: ModelSpec, root: Path, events: Events) -> None:
    owner = model_digest(root / MODEL)
    if program_matches(root / PROGRAM, owner):
        return
    events.progress(PROGRAM, 0.2, "capturing the module and proving the grid")
    save_program(capture(spec), root / PROGRAM, owner)
    events.done(PROGRAM)


def _reference(spec: ModelSpec, root: Path, events: Events) -> Reference:
    """The build's own reference if it belongs to these weights, else the one that ships, else a new one of the CPU."""
    folder = root / REFERENCE
    if (found := kept(spec, folder)) is not None:
        return found
    events.progress(REFERENCE, 0.1, "preparing the reference")
    if spec.reference is None or not adopt(spec, spec.reference, folder):
        record_reference(spec, folder, progress=lambda done, text: events.progress(REFERENCE, done, text))
    events.done(REFERENCE)
    return read_reference(folder)


def _one(build: Build, name: str, options: Mapping[str, str], rows: Mapping[str, Row]) -> Row:
    folder, source = build.folder(name), build.targets[name].source
    if source in rows and rows[source].status in ("failed", "skipped", "rejected"):
        return Row(name, "skipped", (f"its source '{source}' was {rows[source].status}",), folder)
    try:
        registry.require(name, build.targets[name])
        made = export_step.make(build, name, options)
        before = None if build.fresh else evaluate_step.before(build, name, made)
        if before is None and made.left_out:  # another judge or reference: what was left out gets another chance
            made = export_step.make(replace(build, fresh=True), name, options)
        return _row(build, made, before or _judged(build, name, made, options), reused=before is not None)
    except EdgekitError as error:
        return Row(name, "failed", (str(error),), folder)


def _judged(build: Build, name: str, made: Manifest, options: Mapping[str, str]) -> Result:
    """Judge an artifact; a variant that is rejected where a bundle lives leaves it, and what replaces it is judged."""
    findings = evaluate_step.find(build, name, made)
    while unfit := evaluate_step.unfit(made, findings):
        made = export_step.make(build, name, options, (*made.left_out, *unfit))
        findings = evaluate_step.find(build, name, made, findings)
    return evaluate_step.conclude(build, name, made, findings)


def _row(build: Build, made: Manifest, found: Result, reused: bool = False) -> Row:
    sentences = tuple(f"{p.place}: {s}" for p in found.places for s in (*p.reasons, *p.notes))
    if len(found.places) > 1:  # the status is that of all places
        sentences = (*(f"{p.place}: verified ({p.device})" for p in found.places if p.status == "verified"), *sentences)
    return Row(made.target, found.status, sentences, build.folder(made.target), reused, made.notes)
