"""Artifacts in places that are not their target's own: other runtimes, settings and hosts, now or with a pack.

What comes back are raw answers; they are judged here, as those of the target's own places are, and kept in
`imported/<place>-<target>/`, where every report finds them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from edgekit.artifact.fact import Code
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import CANDIDATE, Result, Timing, read_result
from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, NotVerifiedHere, UsageError
from edgekit.judge import latency
from edgekit.judge.latency import Latency
from edgekit.pipeline.context import RunContext
from edgekit.pipeline.evaluate_step import (
    Finding,
    failed_runtime,
    files_of,
    finding_of,
    missing_runtime,
    record_of,
)
from edgekit.pipeline.outcome import TargetOutcome
from edgekit.pipeline.repeats import AGAIN
from edgekit.pipeline.worker import Measured, timed_seconds
from edgekit.places.catalogue import RUNTIMES, Elsewhere, elsewhere
from edgekit.places.hosts import answered
from edgekit.places.pack import archive, packable, write_pack
from edgekit.places.result import Answered, read_returned
from edgekit.report.imports import IMPORTED
from edgekit.storage.files import scratch, write_bytes
from edgekit.target import Place

PACK = "pack"
EMULATED_IMAGES = 8
"""Evaluation inputs that an emulated host is asked, unless the user says how many."""
CANDIDATES = ("bound buffers", "run")
"""Kinds of timed runs that stand for an artifact, the first that is there."""


def places_of(names: Sequence[str]) -> tuple[Elsewhere, ...]:
    """Places by name, each once.

    Raises:
        UsageError: If one is no place.
    """
    return tuple(elsewhere(name) for name in dict.fromkeys(names))


def asked(
    context: RunContext, outcomes: Mapping[str, TargetOutcome], places: Sequence[Elsewhere], images: int | None
) -> dict[str, TargetOutcome]:
    """Judge artifacts in more places; returns the outcomes with what was found there.

    Args:
        context: The run.
        outcomes: What is known of each target.
        places: Where to ask those that run there. A place that cannot be reached gives "not verified here".
        images: How many evaluation inputs to ask; None for all.
    """
    manifests = {n: o.manifest for n, o in outcomes.items() if o.manifest is not None and packable(o.manifest)}
    chosen = {name: outcomes[name] for name in manifests}
    for place in places if manifests else ():
        for name, result in _asked_in(context, manifests, place, images).items():
            chosen[name] = joined(chosen[name], result)
    known = (n for n, o in outcomes.items() if n in chosen or o.result is not None or o.error)
    return {n: chosen.get(n, outcomes[n]) for n in known}


def pack(
    context: RunContext, names: Sequence[str], places: Sequence[Elsewhere], images: int | None, path: Path
) -> tuple[str, ...]:
    """Write a pack for hosts that nobody can log in to; returns the targets in it.

    Raises:
        UsageError: If a place names a host, or none of the artifacts can be packed.
    """
    if hosted := [place.name for place in places if place.host or place.emulated]:
        raise UsageError(f"'{hosted[0]}' names a host: a pack is carried there, so name the runtime alone")
    chosen = {n: context.folder(n) for n in names if packable(read_artifact(context.folder(n)))}
    if not chosen:
        raise UsageError("nothing to pack: packs take ONNX artifacts, such as onnx or onnx-fp16")
    with scratch() as folder:
        context.listener.progress(PACK, 0.3, "collecting questions and artifacts")
        write_pack(folder, context.recorded, chosen, places, images, timed_seconds())
        context.listener.progress(PACK, 0.6, f"writing '{path}'")
        archive(folder, path)
    context.listener.done(PACK)
    return tuple(chosen)


def imported(context: RunContext, path: Path) -> dict[str, TargetOutcome]:
    """Judge what a pack's runner brought back.

    Raises:
        ArtifactError: If the result cannot be used, or is of other artifacts or another reference.
    """
    returned = read_returned(path)
    if returned.reference_sha256 != context.recorded.sha256:
        raise ArtifactError(f"the result '{path}' answers another reference than the one that is here: pack again")
    made = {run.run.target: _of_this_build(context, run, path) for run in returned.runs}
    found: dict[str, TargetOutcome] = {}
    for run in returned.runs:
        manifest, name = made[run.run.target], run.run.target
        result = _kept(context, manifest, elsewhere(run.run.place), run, returned.images)
        found[name] = joined(found.get(name, unasked(context, manifest)), result)
    return found


def adopted(context: RunContext, outcomes: Mapping[str, TargetOutcome], paths: Sequence[Path]) -> None:
    """Judge results that ship with a model, as far as they are of the very artifacts and reference that are here."""
    for path in paths:
        returned = read_returned(path)
        if returned.reference_sha256 != context.recorded.sha256:
            continue
        for run in returned.runs:
            outcome = outcomes.get(run.run.target)
            made = outcome.manifest if outcome is not None else None
            if made is not None and made.sha256 == run.artifact_sha256 and run.run.device:
                place = elsewhere(run.run.place)
                if not _known(context, made, place):
                    _kept(context, made, place, run, returned.images)


def unasked(context: RunContext, made: Manifest) -> TargetOutcome:
    """An artifact before it was asked anywhere: no verdict."""
    return TargetOutcome(made.target, context.folder(made.target), "not verified here", manifest=made)


def joined(outcome: TargetOutcome, result: Result) -> TargetOutcome:
    """An outcome with one more place; the status is the worst of its places."""
    whole = (outcome.result or result).model_copy(update={"places": (*outcome.places, *result.places)})
    return replace(outcome, result=whole, status=whole.status, reused=False)


def _asked_in(
    context: RunContext, manifests: Mapping[str, Manifest], place: Elsewhere, images: int | None
) -> dict[str, Result]:
    """One result a target; where nothing came back, one that is not written down."""
    images = images or (EMULATED_IMAGES if place.emulated else None)

    def progress(text: str) -> None:
        context.listener.progress(place.name, 0.5, text)

    with scratch() as folder:
        progress("collecting questions and artifacts")
        write_pack(
            folder,
            context.recorded,
            {name: context.folder(name) for name in manifests},
            (place,),
            images,
            timed_seconds(),
        )
        try:
            returned = read_returned(answered(place, folder, progress))
        except (NotVerifiedHere, ArtifactError) as lost:
            return {name: _missing(context, made, place, str(lost)) for name, made in manifests.items()}
        finally:
            context.listener.done(place.name)
    by_target = {run.run.target: run for run in returned.runs}
    found = {}
    for name, made in manifests.items():
        run = by_target.get(name)
        if run is None:
            found[name] = _missing(context, made, place, "the runner there gave no answer")
        else:
            found[name] = _kept(context, made, place, run, images)
    return found


def _kept(context: RunContext, made: Manifest, place: Elsewhere, run: Answered, images: int | None) -> Result:
    """Judge one run and write down what was found; what never ran leaves the last result as it is."""
    finding = _finding(context, made, place, run, images)
    result = record_of(context, made.target, made, [finding])
    host = {"said by": f"the runner in {place.name}", "hardware": _hardware(run.run.device)}
    result = result.model_copy(update={"host": host})
    if run.run.device:
        folder = _home(context, made, place)
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files_of(result, [finding]).items():
            write_bytes(folder / name, data)
    return result


def _finding(context: RunContext, made: Manifest, place: Elsewhere, run: Answered, images: int | None) -> Finding:
    where = _place(context, made, place, images)
    if run.run.missing:
        install = RUNTIMES[place.runtime].install
        return missing_runtime(where, f"{run.run.missing}: install it there with {install}")
    if run.run.error:
        return failed_runtime(where, run.run.error)
    _check_again(context, run)
    times = {name: _timing(run.run.device, taken) for name, taken in run.run.milliseconds.items() if taken}
    candidate = next((name for name in CANDIDATES if name in times), None)
    timings = {CANDIDATE if name == candidate else name: timing for name, timing in times.items()}
    told = "; ".join(f"{name}: {value}" for name, value in run.run.facts.items())
    beside = f"latency is that of {candidate}" if candidate not in (None, "run") else ""
    emulated = ", arm64 emulated by qemu" if place.emulated else ""
    measured = Measured(
        device=run.run.device + emulated,
        failures=run.run.failures,
        timings=timings,
        notes=(told, beside),
        repeated=run.run.repeated,
        timed_answers=run.run.timed_answers,
        again=run.run.again,
        start_up=None if place.emulated else run.run.start_up,
    )
    found = finding_of(context, made, where, run.answers, measured)
    # Whoever asked chose how many; what was left out stands in the evidence.
    notes = tuple(note for note in found.place.notes if note.code is not Code.SAMPLED)
    return replace(found, place=found.place.model_copy(update={"notes": notes}))


def _missing(context: RunContext, made: Manifest, place: Elsewhere, why: str) -> Result:
    return record_of(context, made.target, made, [missing_runtime(_place(context, made, place, None), why)])


def _place(context: RunContext, made: Manifest, place: Elsewhere, images: int | None) -> Place:
    """The place as the judge knows places, with the tolerance of the target's first one."""
    first = context.targets[made.target].places[0]
    return Place(name=place.name, tolerance=first.tolerance, settings=place.settings, sample=images or 0)


def _check_again(context: RunContext, run: Answered) -> None:
    rows = {f"{batch.name} {AGAIN}": len(batch.names) for batch in context.recorded.batches}
    for name, numbers in run.run.again.items():
        if name not in rows or any(not 0 <= number < rows[name] for number in numbers):
            raise ArtifactError(f"the result of {run.run.target} in {run.run.place} names rows that were never asked")


def _of_this_build(context: RunContext, run: Answered, path: Path) -> Manifest:
    made = read_artifact(context.folder(run.run.target)) if run.run.target in context.targets else None
    if made is None or made.sha256 != run.artifact_sha256:
        raise ArtifactError(f"the result '{path}' is of another {run.run.target} than the one that is here: pack again")
    return made


def _known(context: RunContext, made: Manifest, place: Elsewhere) -> bool:
    """Whether the same artifact was judged there, by the same reference and the same judge."""
    try:
        then = read_result(_home(context, made, place))
    except ArtifactError:
        return False
    now = record_of(context, made.target, made, [missing_runtime(_place(context, made, place, None), "")])
    return then is not None and _identity(then) == _identity(now)


def _identity(result: Result) -> tuple[str, str, str]:
    return result.artifact_sha256, result.reference_sha256, result.judge_sha256


def _home(context: RunContext, made: Manifest, place: Elsewhere) -> Path:
    return context.root / IMPORTED / f"{re.sub(r'[^A-Za-z0-9.@-]', '-', place.name)}-{made.target}"


def _hardware(device: str) -> str:
    """The GPU or the processor among a runner's words for its device: a GPU's driver stands behind it."""
    parts = device.split(", ")
    return next((part for part in parts if part.startswith("NVIDIA")), parts[-1])


def _timing(device: str, taken: Sequence[float]) -> Timing:
    return Timing.model_validate({**Latency(device, tuple(taken)).as_record(), "warm_ups": latency.WARM_UP})
