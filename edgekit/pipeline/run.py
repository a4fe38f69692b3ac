"""The run: model -> targets in order -> artifact -> outputs -> comparison -> verdict -> report.

Everything is in `build/<model>/`: `model/`, `program/`, `reference/`, one folder per target, and the report. A step
with a stored result and unchanged inputs does no work. A failing target never stops the others.

A browser bundle holds several variants of a model. A variant verified elsewhere may be wrong in a browser. Then the
bundle is exported again without it (`Manifest.left_out`), and only its replacement is run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from edgekit import doors, registry, report
from edgekit.artifact.fact import Code, fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.option import OptionValue, as_text
from edgekit.artifact.result import Result
from edgekit.artifact.run_record import CACHE, MODEL, PROGRAM, REFERENCE, earlier_run, refuse_parts
from edgekit.artifact.store import MANIFEST, read_artifact, require_build
from edgekit.errors import ArtifactError, EdgekitError, ExportError, NeedlessExportError, UsageError
from edgekit.hosts import fork_server
from edgekit.model.folder import load_builds_model, map_weights, other_code, save_model
from edgekit.model.program import Capture, program_matches, save_program
from edgekit.model.records import WEIGHTS, model_digest, recorded_weights, require_whole
from edgekit.model.sources import onnx as onnx_file
from edgekit.model.spec import ModelSpec
from edgekit.pipeline import further_places, run_log
from edgekit.pipeline.context import FreshInputs, Listener, RunContext, read_durations, write_duration
from edgekit.pipeline.evaluate_step import (
    EvaluationOutcome,
    conclude,
    evaluate,
    evaluate_in_place,
    is_settled,
    previous,
    settled_outcomes,
    variant_target,
)
from edgekit.pipeline.export_step import make, require_declared, stored
from edgekit.pipeline.outcome import ENDED, Build, TargetOutcome, apply_budgets, parse_allowed_budgets
from edgekit.pipeline.plan import Options, fallback_of, made_from_onnx, plan_run, reserves_of
from edgekit.pipeline.request import Criteria
from edgekit.pipeline.worker import EXPORT_MODULES
from edgekit.reference.adopt import obtain
from edgekit.reference.store import Reference, reference_of
from edgekit.storage.files import lock, sweep
from edgekit.storage.host_errors import as_sentences
from edgekit.storage.limits import free_unused, require_settings


@as_sentences()
def export(
    spec: ModelSpec,
    selection: tuple[str, ...],
    root: Path,
    options: Options,
    listener: Listener,
    fresh: bool = False,
    command: str = "",
    criteria: Criteria = Criteria(),
) -> Build:
    """Export a model to targets and judge each.

    Args:
        spec: The model.
        selection: Names and groups; empty selects every target whose libraries are installed.
        root: The model's build folder.
        options: Options by target and name.
        listener: Receives progress callbacks.
        fresh: True to export and judge again even if nothing changed.
        command: The command of this run, for the report.
        criteria: Further places to judge in, and budgets.

    Raises:
        EdgekitError: If something concerns all targets: the model, the reference, an unknown target or option. An error
            of one target becomes its outcome.
    """
    require_settings()
    targets = registry.with_unlisted() if set(selection) & set(registry.UNLISTED.entries()) else registry.loadable()[0]
    further, allowed = further_places.places_of(criteria.places), parse_allowed_budgets(criteria.budget, targets)
    from_onnx = onnx_file.file_of(spec.module) is not None
    possible = made_from_onnx(targets) if from_onnx and not selection else targets
    task_limits = criteria.require_task(spec)
    order, options_by_target, implied = plan_run(possible, selection, options)
    record = run_log.start_record(command, criteria)
    with lock(root, lambda: listener.progress(MODEL, 0.0, f"waiting for another run in '{root}' to end")):
        for folder in (root, *(root / CACHE).glob("**")):
            # Temporary folders of killed runs.
            sweep(folder)
        listener.progress(MODEL, 0.5, "writing the model")
        captures = any(targets[target].source == PROGRAM for target in order) and not from_onnx
        reference = _prepare(spec, root, listener, captures)
        context = RunContext(
            spec, root, targets, reference, listener, fresh,
            task_limits=task_limits, selected=registry.select_targets(selection, targets),
        )  # fmt: skip
        outcomes: dict[str, TargetOutcome] = {}
        reserves = reserves_of(implied, targets, options)

        def make_target(target: str) -> None:
            began = time.monotonic()
            second = fallback_of(targets[target], options.get(target, {}), options_by_target[target])
            outcome = _run_target(context, target, options_by_target[target], second, outcomes, bring)
            outcomes[target] = replace(outcome, part_of=implied.get(target, ""))
            if outcomes[target].is_new:
                write_duration(root / CACHE, target, time.monotonic() - began)
            listener.finished(outcomes[target])

        def bring(wrong: Collection[str]) -> None:
            for reserve in (r for r, first in reserves.items() if first in wrong and r not in outcomes):
                make_target(reserve)

        # A fallback is exported only if needed, so it is not announced.
        listener.started(tuple(t for t in order if t not in reserves), read_durations(root / CACHE))
        for target in order:
            # None if the reserve's own first was not needed.
            first = outcomes.get(reserves.get(target, ""))
            if target not in reserves or (first is not None and first.bad):
                make_target(target)
        further_places.judge_shipped(context, outcomes, spec.results)
        outcomes = apply_budgets(
            further_places.judge_places(context, outcomes, further, criteria.images), targets, allowed
        )
        run_log.finish_record(
            root, record, outcomes.values(), {} if selection else run_log.missing_requirements(possible)
        )
        report.update_report(root)
        return _build_of(context, outcomes.values())


@as_sentences()
def verify(
    root: Path,
    listener: Listener,
    criteria: Criteria = Criteria(),
    only: Sequence[str] = (),
    trust_build: bool = False,
    key: Path | None = None,
    fresh_inputs: FreshInputs | None = None,
) -> Build:
    """Check every artifact's files and judge it again.

    Args:
        root: The model's build folder.
        listener: Receives progress callbacks.
        criteria: Further places and budgets.
        only: Targets; empty selects all in the build.
        trust_build: True if code that the build names or contains may run (`edgekit.model.folder.load_builds_model`).
        key: Public key of the required signer; None requires no signature.
        fresh_inputs: Inputs for verified artifacts in addition to the recorded ones.

    Raises:
        EdgekitError: If the build is missing, or its model or reference is unusable.
    """
    require_settings()
    places = criteria.places
    further, allowed = further_places.places_of(places), parse_allowed_budgets(criteria.budget, registry.loadable()[0])
    with _build(root, listener, only, trust_build, key) as (context, names):
        context = replace(context, fresh_inputs=fresh_inputs, task_limits=criteria.require_task(context.spec))
        listener.started(names, {})
        outcomes: dict[str, TargetOutcome] = {}
        for name in names:
            verified = _verify_target(context, name, outcomes, bool(places))
            outcomes[name] = replace(verified, part_of=run_log.part_of(root, name, context.targets))
            if not places:
                listener.finished(outcomes[name])
        outcomes = further_places.judge_places(context, outcomes, further, criteria.images)
        outcomes = apply_budgets(outcomes, context.targets, allowed)
        if not outcomes:
            raise UsageError(f"no artifact here runs in '{further[0].name}', which opens none of {', '.join(names)}")
        for outcome in outcomes.values() if places else ():
            listener.finished(outcome)
        record = earlier_run(root).model_copy(update={"budget": tuple(criteria.budget)})
        run_log.finish_record(root, record, outcomes.values(), {})
        report.write_report(root)
        # A target that the user selects counts for itself, not as a part of its bundle.
        reported = (replace(o, part_of="") if o.target in only else o for o in outcomes.values())
        unsigned = context.signed.unsigned if context.signed is not None else ()
        return replace(_build_of(context, reported), unsigned=unsigned, note=context.other_code)


@as_sentences()
def pack(
    root: Path,
    path: Path,
    listener: Listener,
    places: Sequence[str],
    images: int | None,
    only: Sequence[str] = (),
    trust_build: bool = False,
) -> tuple[str, ...]:
    """Write a pack of a build's artifacts; return its targets.

    Raises:
        EdgekitError: As `verify`, or if nothing can be packed or `path` cannot be written.
    """
    further = further_places.places_of(places)
    with _build(root, listener, only, trust_build) as (context, names):
        return further_places.pack(context, names, further, images, path)


@as_sentences()
def import_result(root: Path, path: Path, listener: Listener, trust_build: bool = False) -> Build:
    """Judge the results of a pack by the limits of the build's last export, and write the report.

    Raises:
        EdgekitError: As `verify`, or if the result is unusable or belongs to other artifacts.
    """
    with _build(root, listener, (), trust_build) as (context, _):
        criteria = Criteria(limits=earlier_run(root).limits)
        context = replace(context, task_limits=criteria.require_task(context.spec))
        outcomes = further_places.judge_imported(context, path)
        for outcome in outcomes.values():
            listener.finished(outcome)
        report.write_report(root)
        return _build_of(context, outcomes.values())


def _build_of(context: RunContext, outcomes: Iterable[TargetOutcome]) -> Build:
    """Return a build of some outcomes, with what its reference says of the model."""
    reference = context.recorded
    return Build(tuple(outcomes), context.root, reference.device, doubt=reference.info.evaluation.doubt)


@contextmanager
def _build(
    root: Path, listener: Listener, only: Sequence[str], trust_build: bool, key: Path | None = None
) -> Iterator[tuple[RunContext, tuple[str, ...]]]:
    """Yield a locked build's context, and the names of its artifacts, sources first."""
    require_build(root)
    targets = registry.with_unlisted()
    names = [name for name in targets if (root / name / MANIFEST).is_file()]
    if not names:
        refuse_parts(root)
        raise ArtifactError(f"no artifact in '{root}'. Export one with `edgekit export`")
    selected = registry.select_targets(only, targets) if only else names
    if lacking := [name for name in selected if name not in names]:
        raise UsageError(f"no artifact of '{lacking[0]}' in '{root}'. Artifacts: {', '.join(names)}")
    with lock(root, lambda: listener.progress(MODEL, 0.0, f"waiting for another run in '{root}' to end")):
        signed = None if key is None else doors.hook("require_signature")(root, key)
        spec = load_builds_model(root / MODEL, trust_build)
        require_whole(root / PROGRAM)
        reference = reference_of(root / REFERENCE, recorded_weights(root / MODEL))
        changed = other_code(root / MODEL, spec)
        context = RunContext(spec, root, targets, reference, listener, True, trust_build, signed, changed)
        yield context, tuple(name for name in registry.sources_first(tuple(selected), targets) if name in selected)


def _verify_target(
    context: RunContext, name: str, outcomes: Mapping[str, TargetOutcome], further_alone: bool
) -> TargetOutcome:
    folder, source = context.folder(name), context.targets[name].source
    try:
        artifact = read_artifact(folder)
        require_declared(context, artifact)
        if context.signed is not None:
            context.signed.require_artifact(folder, artifact)
            # The source is timed with it, so its files must be signed too.
            if (context.folder(source) / MANIFEST).exists():
                context.signed.require_artifact(context.folder(source), read_artifact(context.folder(source)))
        if further_alone:
            return further_places.without_verdict(context, artifact)
        registry.require_trust(name, context.targets[name], context.trusted)
        # The source is timed with it, and it did not pass.
        if source in outcomes and outcomes[source].status in ("failed", "skipped"):
            return TargetOutcome(name, folder, "skipped", f"source '{source}' {ENDED[outcomes[source].status]}")
        return _outcome(context, artifact, evaluate(context, name, artifact))
    except EdgekitError as error:
        return TargetOutcome(name, folder, "failed", str(error))


def _prepare(spec: ModelSpec, root: Path, listener: Listener, captures: bool) -> Reference:
    """Write the model, its program if a target needs it, and its reference; return the latter."""
    captured = Capture(spec)
    save_model(spec, root / MODEL, captured)
    listener.done(MODEL)
    if captures:
        _save_program(captured, root, listener)
    reference = obtain(spec, root / REFERENCE, lambda share, text: listener.progress(REFERENCE, share, text))
    listener.done(REFERENCE)
    # Workers read the weights from here on. A module that the user holds stays as it is.
    if spec.factory:
        map_weights(spec, root / MODEL)
    del captured
    free_unused()
    return reference


def _save_program(captured: Capture, root: Path, listener: Listener) -> None:
    owner = model_digest(root / MODEL)
    if program_matches(root / PROGRAM, owner):
        return
    fork_server.prepare(EXPORT_MODULES)
    listener.progress(PROGRAM, 0.2, "capturing the module and testing the grid of shapes")
    save_program(captured.program(), root / PROGRAM, owner, root / MODEL / WEIGHTS)
    listener.done(PROGRAM)


def _run_target(
    context: RunContext,
    name: str,
    options: Mapping[str, OptionValue],
    second: Mapping[str, OptionValue],
    outcomes: Mapping[str, TargetOutcome],
    bring: Bring,
) -> TargetOutcome:
    folder, source = context.folder(name), context.targets[name].source
    if source in outcomes and outcomes[source].bad:
        return TargetOutcome(name, folder, "skipped", f"source '{source}' {ENDED[outcomes[source].status]}")
    try:
        registry.require(name, context.targets[name])
        artifact = stored(context, name, second) if second and not context.fresh else None
        kept = artifact is not None and previous(context, name, artifact) is not None
        manifest, findings, reused = export_and_evaluate(context, name, second if kept else options, bring)
        if findings.status == "rejected" and second and not kept:
            rejected = _why_rejected(options, second, findings)
            # Without a second artifact the first stays, as it was judged.
            with suppress(ExportError):
                manifest, findings, reused = export_and_evaluate(context, name, second, bring, (rejected,))
        return _outcome(context, manifest, findings, reused)
    except NeedlessExportError as error:
        return TargetOutcome(name, folder, "skipped", str(error), is_needless=True)
    except EdgekitError as error:
        return TargetOutcome(name, folder, "failed", str(error), report=error.report)


def _why_rejected(options: Mapping[str, OptionValue], second: Mapping[str, OptionValue], findings: Result) -> str:
    tried = ", ".join(f"{option} {as_text(options[option])}" for option in second if options[option] != second[option])
    why = next(str(reason) for place in findings.places if place.status == "rejected" for reason in place.reasons)
    return f"{tried} was rejected: {why}"


def _outcome(context: RunContext, manifest: Manifest, result: Result, reused: bool = False) -> TargetOutcome:
    folder = context.folder(manifest.target)
    return TargetOutcome(manifest.target, folder, result.status, manifest=manifest, result=result, reused=reused)


Bring = Callable[[Collection[str]], None]
"""Callback with the targets that a bundle rejects: exports their fallbacks before the bundle is exported again."""


def export_and_evaluate(
    context: RunContext, name: str, options: Mapping[str, OptionValue], bring: Bring, notes: Sequence[str] = ()
) -> tuple[Manifest, Result, bool]:
    """Export and judge an artifact, each only if something changed.

    Args:
        context: The run.
        name: Name of the target.
        options: Its options.
        bring: Called with the targets of rejected variants.
        notes: Notes for users besides those of the target.

    Returns:
        The manifest, the result, and True if both were stored and unchanged.
    """
    manifest = make(context, name, options, notes=notes)
    before = None if context.fresh else previous(context, name, manifest)
    if before is not None and is_settled(before):
        return manifest, before, True
    settled_findings = settled_outcomes(context, name, manifest, before) if before is not None else []
    # Another judge, reference or host may accept the variants that were left out.
    if manifest.bundle.left_out:
        manifest = make(replace(context, fresh=True), name, options)
    findings = _evaluate_variants(context, name, manifest, settled_findings)
    # A replacement may be rejected too.
    while rejected := _rejected_variants(manifest, findings):
        bring(rejected)
        manifest = make(context, name, options, (*manifest.bundle.left_out, *rejected))
        findings = _evaluate_variants(context, name, manifest, findings)
    return manifest, conclude(context, name, manifest, findings), False


def _evaluate_variants(
    context: RunContext, name: str, manifest: Manifest, before: Sequence[EvaluationOutcome]
) -> list[EvaluationOutcome]:
    """Judge a bundle's variants in their places; reuse earlier outcomes of unchanged variants."""
    findings = []
    for place in context.targets[name].places:
        earlier = next((f for f in before if f.verdict.place == place.name), None)
        target = variant_target(manifest, place)
        if earlier is None and place not in context.targets[name].places_of(manifest):
            continue
        if earlier is None:
            findings.append(evaluate_in_place(context, name, manifest, place))
        elif target in ("", earlier.variant_target):
            findings.append(earlier)
        else:
            # The note says which variant was rejected here before.
            finding = evaluate_in_place(context, name, manifest, place)
            why = "; ".join(str(reason) for reason in earlier.verdict.reasons[:1])
            note = fact(Code.VARIANT_REPLACED, variant=earlier.variant_target, why=why)
            replaced = replace(
                finding, verdict=finding.verdict.model_copy(update={"notes": (note, *finding.verdict.notes)})
            )
            findings.append(replaced)
    return findings


def _rejected_variants(manifest: Manifest, findings: Sequence[EvaluationOutcome]) -> list[str]:
    """Return the targets of rejected variants that the bundle can leave out: all but the first."""
    spare = {variant.target for variant in manifest.bundle.variants[1:]}
    return sorted({f.variant_target for f in findings if f.verdict.status == "rejected"} & spare)
