"""Artifacts in further places: on this host in a worker, elsewhere by a pack, sent or carried by hand.

A pack returns raw outputs. They are judged here, like those of the target's own places, and stored in
`imported/<place>-<target>/` for every report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from edgekit import doors
from edgekit.artifact.fact import Code
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import Result
from edgekit.artifact.run_record import REFERENCE
from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, EdgekitError, NotVerifiedHere, RuntimeMissingError, UsageError
from edgekit.evaluate.engine import AGAIN
from edgekit.hosts import command
from edgekit.hosts.catalogue import FurtherPlace, further_place
from edgekit.hosts.pack import archive, write_pack
from edgekit.hosts.run_record import Measurement, PackResults, read_returned_results
from edgekit.model.spec import Array
from edgekit.pipeline.context import RunContext
from edgekit.pipeline.evaluate_step import (
    NOT_HERE,
    EvaluationOutcome,
    answers_in,
    evaluate_in_place,
    files_of,
    finding_of,
    missing_runtime,
    outcome_of_failure,
    record_of,
    run_in_worker,
)
from edgekit.pipeline.outcome import Build, TargetOutcome
from edgekit.pipeline.worker import RunJob, timed_seconds
from edgekit.report.imports import IMPORTED, read_imported, write_imported
from edgekit.report.rows import trials_of
from edgekit.runtime.processor import processor
from edgekit.storage.files import scratch
from edgekit.target import Place

PACK = "pack"


def places_of(names: Sequence[str]) -> tuple[FurtherPlace, ...]:
    """Return places by name, each once.

    Raises:
        UsageError: If a place is unknown.
    """
    return tuple(further_place(name) for name in dict.fromkeys(names))


def judge_places(
    context: RunContext, outcomes: Mapping[str, TargetOutcome], places: Sequence[FurtherPlace], images: int | None
) -> dict[str, TargetOutcome]:
    """Judge artifacts in more places; return the outcomes with the new results.

    Args:
        context: The run.
        outcomes: Outcome of each target so far.
        places: Further places. A place that cannot be reached gives "not verified here".
        images: Number of evaluation inputs to run; None for all.
    """
    manifests = {n: o.manifest for n, o in outcomes.items() if o.manifest is not None}
    target_outcomes: dict[str, TargetOutcome] = {}
    for place in places:
        candidates = {n: manifest for n, manifest in manifests.items() if place.opens(manifest, context.targets[n])}
        results = (
            _by_packs(context, candidates, place, images) if place.apart else _here(context, candidates, place, images)
        )
        for name, result in results.items():
            target_outcomes[name] = with_place(target_outcomes.get(name, outcomes[name]), result)
    reported = (n for n, o in outcomes.items() if n in target_outcomes or o.result is not None or o.error)
    return {n: target_outcomes.get(n, outcomes[n]) for n in reported}


def pack(
    context: RunContext, names: Sequence[str], places: Sequence[FurtherPlace], images: int | None, path: Path
) -> tuple[str, ...]:
    """Write a pack for hosts without remote login; return its targets.

    Raises:
        UsageError: If a place names a host or belongs to a target, or no artifact can be packed.
    """
    if any(place.is_device for place in places):
        raise UsageError("a device takes no carried pack. Plug it in, and name it with `edgekit verify --place`")
    if hosted := [place.name for place in places if place.apart]:
        raise UsageError(f"'{hosted[0]}' names a host, and a pack is carried there by hand. Name the runtime alone")
    if own := [place.name for place in places if not place.runtime]:
        raise UsageError(f"'{own[0]}' runs on this host only. Places for a pack: {', '.join(doors.places.entries())}")
    artifacts = {n: read_artifact(context.folder(n)) for n in names}
    opened = {n for n in names if all(p.opens(artifacts[n], context.targets[n], packed=True) for p in places)}
    folders = {n: context.folder(n) for n in names if n in opened}
    if not folders:
        opens = doors.places.find(places[0].runtime).opens
        raise UsageError(f"nothing to pack: {places[0].name} opens only {', '.join(opens)} files")
    with scratch() as folder:
        context.listener.progress(PACK, 0.3, "collecting inputs and artifacts")
        images = images or next((place.images for place in places if place.images), None)
        write_pack(folder, context.recorded, folders, places, images, timed_seconds())
        context.listener.progress(PACK, 0.6, f"writing '{path}'")
        archive(folder, path)
    context.listener.done(PACK)
    return tuple(folders)


def judge_imported(context: RunContext, path: Path) -> dict[str, TargetOutcome]:
    """Judge the results of a pack.

    Raises:
        ArtifactError: If the result is unusable, or belongs to other artifacts or another reference.
    """
    returned = read_returned_results(path)
    if returned.reference_sha256 != context.recorded.sha256:
        raise ArtifactError(f"the result '{path}' belongs to another reference than this build's. Write a new pack")
    results = {run.run.target: _of_this_build(context, run, path) for run in returned.runs}
    target_outcomes: dict[str, TargetOutcome] = {}
    for run in returned.runs:
        manifest, name = results[run.run.target], run.run.target
        result = _record_result(context, manifest, further_place(run.run.place), run, returned.images)
        target_outcomes[name] = with_place(target_outcomes.get(name, without_verdict(context, manifest)), result)
    return target_outcomes


def judge_shipped(context: RunContext, outcomes: Mapping[str, TargetOutcome], paths: Sequence[Path]) -> None:
    """Judge results that ship with a model, if they belong to the same artifacts and reference."""
    for path in paths:
        returned = read_returned_results(path)
        if returned.reference_sha256 != context.recorded.sha256:
            continue
        for run in returned.runs:
            outcome = outcomes.get(run.run.target)
            manifest = outcome.manifest if outcome is not None else None
            if manifest is not None and manifest.sha256 == run.artifact_sha256 and run.run.device:
                place = further_place(run.run.place)
                if not _is_known(context, manifest, place):
                    _record_result(context, manifest, place, run, returned.images)


def without_verdict(context: RunContext, manifest: Manifest) -> TargetOutcome:
    """Return the outcome of an artifact that did not run anywhere yet."""
    return TargetOutcome(manifest.target, context.folder(manifest.target), "not verified here", manifest=manifest)


def with_place(outcome: TargetOutcome, result: Result) -> TargetOutcome:
    """Return an outcome with one more place; the status is the worst of its places."""
    whole = (outcome.result or result).model_copy(update={"places": (*outcome.places, *result.places)})
    return replace(outcome, result=whole, status=whole.status, reused=False)


def _here(
    context: RunContext, manifests: Mapping[str, Manifest], place: FurtherPlace, images: int | None
) -> dict[str, Result]:
    """Judge artifacts in a place of this host, each in a worker; an artifact that never ran keeps its last result."""
    results = {}
    for name, manifest in manifests.items():
        finding = _outcome_here(context, manifest, place, images)
        results[name] = record_of(context, name, manifest, [finding])
        if finding.verdict.device:
            hardware = {"hardware": processor()} if place.runtime else {}
            host = {**results[name].host, **hardware}
            _keep(context, manifest, place, results[name].model_copy(update={"host": host}), finding)
    context.listener.done(place.name)
    return results


def _outcome_here(
    context: RunContext, manifest: Manifest, place: FurtherPlace, images: int | None
) -> EvaluationOutcome:
    if not place.runtime:
        own = context.targets[manifest.target].place(place.name)
        return evaluate_in_place(
            context, manifest.target, manifest, own if images is None else replace(own, sample=images)
        )
    images = images or place.images
    where = _place(context, manifest, place, images)

    def progress(share: float, text: str) -> None:
        context.listener.progress(place.name, share, f"{manifest.target}: {text}")

    with scratch() as out:
        request = RunJob(
            target=manifest.target,
            folder=context.folder(manifest.target),
            place=place.name,
            runtime=place.runtime,
            reference=context.folder(REFERENCE),
            out=out,
            images=images,
        )
        try:
            measured = run_in_worker(context, request, progress)
        except RuntimeMissingError as missing:
            return missing_runtime(where, f"{missing}. Install it with {doors.places.find(place.runtime).install}")
        except NOT_HERE as missing:
            return missing_runtime(where, missing)
        except EdgekitError as error:
            return outcome_of_failure(where, str(error))
        return _judge(context, place.manifest_at(manifest), where, answers_in(out), measured)


def _by_packs(
    context: RunContext, manifests: Mapping[str, Manifest], place: FurtherPlace, images: int | None
) -> dict[str, Result]:
    """Send artifacts in packs: a phone gets one pack per artifact, since an artifact may crash its app."""
    packs = [{name: manifest} for name, manifest in manifests.items()] if place.is_device else [manifests]
    return {n: result for pack_runs in packs for n, result in _by_pack(context, pack_runs, place, images).items()}


def _by_pack(
    context: RunContext, manifests: Mapping[str, Manifest], place: FurtherPlace, images: int | None
) -> dict[str, Result]:
    """Return one result per target; a result without a run is not stored."""
    if not manifests:
        return {}
    images = images or place.images

    def progress(text: str) -> None:
        context.listener.progress(place.name, 0.5, text)

    with scratch() as folder:
        progress("collecting inputs and artifacts")
        folders = {name: context.folder(name) for name in manifests}
        identity = write_pack(folder, context.recorded, folders, (place,), images, timed_seconds())
        try:
            answered = (
                doors.resolve(place.record.answer_pack) if place.record and place.is_device else command.answer_pack
            )
            returned = read_returned_results(answered(place, folder, progress))
            if returned.pack_id != identity:
                raise ArtifactError(f"the result from {place.name} belongs to another pack than the one that was sent")
        except (NotVerifiedHere, ArtifactError) as lost:
            return {name: _missing(context, manifest, place, str(lost)) for name, manifest in manifests.items()}
        finally:
            context.listener.done(place.name)
    by_target = {run.run.target: run for run in returned.runs}
    results = {}
    for name, artifact in manifests.items():
        answers = by_target.get(name)
        if answers is None:
            results[name] = _missing(context, artifact, place, "the runner there returned no result")
        else:
            results[name] = _record_result(context, artifact, place, answers, images)
    return results


def _record_result(
    context: RunContext, manifest: Manifest, place: FurtherPlace, run: PackResults, images: int | None
) -> Result:
    """Judge one run and record its result; an artifact that never ran keeps its last result."""
    finding = _finding(context, manifest, place, run, images)
    result = record_of(context, manifest.target, manifest, [finding])
    # A GPU is followed by its driver.
    parts = run.run.device.split(", ")
    hardware = next((part for part in parts if part.startswith("NVIDIA")), parts[-1])
    host = {"said by": f"the runner in {place.name}", "hardware": hardware}
    result = result.model_copy(update={"host": host})
    if run.run.device:
        _keep(context, manifest, place, result, finding)
    return result


def _keep(
    context: RunContext, manifest: Manifest, place: FurtherPlace, result: Result, finding: EvaluationOutcome
) -> None:
    folder = _home(context, manifest, place)
    write_imported(folder, files_of(result, [finding]))


def _finding(
    context: RunContext, manifest: Manifest, place: FurtherPlace, run: PackResults, images: int | None
) -> EvaluationOutcome:
    where = _place(context, manifest, place, images)
    if run.run.missing:
        return missing_runtime(where, run.run.missing)
    if run.run.error:
        return outcome_of_failure(where, run.run.error)
    # The result comes from another host, so its row numbers are not trusted.
    rows = {f"{batch.name} {AGAIN}": len(batch.names) for batch in context.recorded.batches}
    for name, numbers in run.run.again.items():
        if name not in rows or any(not 0 <= number < rows[name] for number in numbers):
            raise ArtifactError(
                f"the result of {run.run.target} in {run.run.place} names rows that were never run. Write a new pack"
            )
    # A slow or emulated place has no start-up time that means anything.
    unlike: dict[str, object] = {} if place.has_timings else {"start_up": None}
    if place.beside:
        unlike["device"] = f"{run.run.device}, started by {place.python[0]}"
    return _judge(context, place.manifest_at(manifest), where, run.answers, run.run.model_copy(update=unlike))


def _judge(
    context: RunContext, manifest: Manifest, where: Place, answers: Mapping[str, Array], measured: Measurement
) -> EvaluationOutcome:
    """Judge outputs without the note on sampling: the user chose the sample, and the evidence shows it."""
    finding = finding_of(context, manifest, where, answers, measured)
    notes = tuple(note for note in finding.verdict.notes if note.code is not Code.SAMPLED)
    return replace(finding, verdict=finding.verdict.model_copy(update={"notes": notes}))


def _missing(context: RunContext, manifest: Manifest, place: FurtherPlace, why: str) -> Result:
    return record_of(context, manifest.target, manifest, [missing_runtime(_place(context, manifest, place, None), why)])


def _place(context: RunContext, manifest: Manifest, place: FurtherPlace, images: int | None) -> Place:
    """Return the place as a `Place` of the judge."""
    tolerance = place.tolerance(manifest, context.targets[manifest.target])
    return Place(name=place.name, tolerance=tolerance, settings=place.settings, sample=images or 0)


def _of_this_build(context: RunContext, run: PackResults, path: Path) -> Manifest:
    artifact = read_artifact(context.folder(run.run.target)) if run.run.target in context.targets else None
    if artifact is None or artifact.sha256 != run.artifact_sha256:
        raise ArtifactError(
            f"the result '{path}' belongs to another {run.run.target} than this build's. Write a new pack"
        )
    return artifact


def _is_known(context: RunContext, manifest: Manifest, place: FurtherPlace) -> bool:
    """Return whether this artifact has a result there from the same reference and judge."""
    try:
        then = read_imported(_home(context, manifest, place))
    except ArtifactError:
        return False
    now = record_of(context, manifest.target, manifest, [missing_runtime(_place(context, manifest, place, None), "")])
    return all(
        getattr(then, name) == getattr(now, name) for name in ("artifact_sha256", "reference_sha256", "judge_sha256")
    )


def _home(context: RunContext, manifest: Manifest, place: FurtherPlace) -> Path:
    # A place may contain a host's address, with characters that a folder's name must not have.
    return context.root / IMPORTED / f"{re.sub(r'[^A-Za-z0-9.@-]', '-', place.name)}-{manifest.target}"


def search_until_verified(
    export: Callable[..., Build],
    target: str,
    options: Mapping[str, object],
    places: Sequence[str],
    fresh: bool,
) -> Build:
    """Export with rank 0, 1, ... until the artifact is not rejected in a place, or no recipe is left.

    Args:
        export: Exports with `options` by target and judges in the places; `fresh` ignores stored artifacts.
        target: The quantizing target.
        options: Its options, without the rank.
        places: Names of places; if empty, rank 0 is returned.
        fresh: For the first export.
    """
    names = {further_place(place).name for place in places}
    build, rank = export(options={target: options}, fresh=fresh), 0
    while names and any(p.place in names and p.status == "rejected" for p in build[target].places):
        rank += 1
        if rank >= sum("rank" in trial for trial in trials_of(build.path, target)):
            break
        build = export(options={target: {**options, "rank": rank}}, fresh=False)
    return build
