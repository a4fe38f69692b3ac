"""A model of parts: each exported and judged as a model of its own, then the whole, driven with their artifacts.

Everything lies in `build/<model>/`: a build a part, and parts.json, which says which artifacts make the whole and what
was found of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from edgekit import doors, registry
from edgekit.artifact.fact import EVALUATION, Code, fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import Evidence, Result, Verdict
from edgekit.artifact.run_record import (
    HUB,
    PARTS,
    PartRecord,
    PartsRecord,
    WholeRecord,
    check_hub,
    read_parts,
    write_parts,
)
from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, EdgekitError, HostError, NotVerifiedHere, UsageError
from edgekit.judge import metrics, verdict
from edgekit.judge.deviation import spreads
from edgekit.judge.metrics import Comparison
from edgekit.model.folder import CHANGED, code_digest, code_of
from edgekit.model.parts import Parts, Session
from edgekit.model.spec import Array, ModelSpec
from edgekit.pipeline.driven import Driven, answered, driven
from edgekit.pipeline.loaded import LoadedArtifact, load
from edgekit.pipeline.outcome import ENDED, Build, TargetOutcome
from edgekit.pipeline.plan import made_in_memory
from edgekit.reference.record import host
from edgekit.storage.files import digest_text
from edgekit.storage.host_errors import as_sentences
from edgekit.target import Place, Target

Answer = dict[str, Array]
DRIVEN_BY = "its parts are judged by answers of the code of then, and the whole was driven by that of today"


@as_sentences()
def export(
    parts: Parts,
    wanted: tuple[str, ...],
    root: Path,
    one: Callable[[str, ModelSpec, tuple[str, ...]], Build],
    factory: str = "",
) -> Build:
    """Export a model's parts, judge each, and judge the whole.

    Args:
        parts: The model.
        wanted: Names and groups of targets; empty means those that every part can be made for.
        root: Its build folder.
        one: Exports a part by its name for some targets into the build folder of that name.
        factory: The name of what makes the model again, where it has one.

    Raises:
        EdgekitError: For what concerns all targets: the driver, a part, an unknown target or option.
    """
    targets, _ = registry.loadable()
    found = driven(parts)
    names = wanted or made_in_memory(targets, found.specs.values())
    builds = {name: one(name, spec, names) for name, spec in found.specs.items()}
    shared = [name for name in next(iter(builds.values())) if all(name in build for build in builds.values())]
    outcomes = tuple(_outcome(parts, found, builds, name, targets[name], root) for name in shared)
    build = Build(outcomes, root, found.device, parts=builds)
    before = _earlier(root)
    made = {outcome.target: _of_target(outcome, builds) for outcome in outcomes}
    valid = {name: one for name, one in before.targets.items() if _holds(root, one, found)} if before else {}
    record = _record(parts, found, factory, valid | made)
    hub = {}
    if parts.files:
        verified = [name for name, one in record.targets.items() if one.status == "verified"]
        hub = doors.hook("write_hub")(
            parts, root, verified, before.hub if before else (), partial(_holds_with, parts, found, root)
        )
    write_parts(root, record.model_copy(update={HUB: hub}))
    return build


@as_sentences()
def verify(
    root: Path,
    only: Collection[str],
    one: Callable[[Path], Build],
    signed: bool = False,
    again: Callable[[str], Parts] | None = None,
) -> Build:
    """Check a whole's files, judge each of its parts again, and drive it again where its factory may run.

    Where it may not, or there is none, what was found of the whole holds for the artifacts that it was found of.

    Args:
        root: The whole's build folder.
        only: Targets; empty means all that are there.
        one: Judges a part's build folder again.
        signed: Whether a signature of each part is asked for, which says nothing of the whole's own files.
        again: Makes the model by its factory's name; None where the build's code may not run.

    Raises:
        EdgekitError: If a record, a part's build or a file of the hub's folder is missing or damaged, or the factory
            fails or makes other parts.
    """
    record = read_parts(root)
    check_hub(root, record)
    builds = {name: one(root / part.folder) for name, part in record.parts.items()}
    there = [name for name in record.targets if all(name in build for build in builds.values())]
    if lacking := [name for name in only if name in registry.available() and name not in there]:
        raise ArtifactError(f"'{root / PARTS}' does not say what became of the whole in '{lacking[0]}': export again")
    held = {name: _again(root, record.targets[name], {p: build[name] for p, build in builds.items()}) for name in there}
    outcomes, note = tuple(held.values()), ""
    if again is not None and record.factory:
        outcomes, note = _driven_again(root, record, builds, held, again(record.factory))
    unsigned = (PARTS, *([HUB] if record.hub else [])) if signed else ()
    return Build(outcomes, root, next(iter(builds.values())).reference, unsigned, parts=builds, note=note)


def _driven_again(
    root: Path, record: PartsRecord, builds: Mapping[str, Build], held: Mapping[str, TargetOutcome], made: Parts
) -> tuple[tuple[TargetOutcome, ...], str]:
    """Drive the whole with its artifacts once more, and write what was found; says where its code is another."""
    parts = replace(made, name=record.name)
    if parts.parts.keys() != record.parts.keys():
        raise ArtifactError(f"'{record.factory}' makes other parts than '{root / PARTS}' names: export again")
    found, targets = driven(parts), registry.loadable()[0]
    outcomes = tuple(
        one if one.bad and one.result is None else _outcome(parts, found, builds, name, targets[name], root)
        for name, one in held.items()
    )
    again = {outcome.target: _of_target(outcome, builds) for outcome in outcomes}
    write_parts(root, record.model_copy(update={"targets": record.targets | again}))
    alike = record.code_sha256 == _code(parts, found, record.factory)
    return outcomes, "" if alike else CHANGED.format(factory=record.factory, what=DRIVEN_BY)


def _again(root: Path, found: WholeRecord, each: Mapping[str, TargetOutcome]) -> TargetOutcome:
    """What was found of the whole, where its parts are those that it was found of and hold again."""
    if bad := _bad_part(found.target, root, each):
        return bad
    for part, outcome in each.items():
        made = outcome.manifest.sha256 if outcome.manifest is not None else ""
        if made != found.artifacts.get(part):
            why = f"its part '{part}' is not the artifact that the whole was judged with: export again"
            return TargetOutcome(found.target, root, "failed", why)
    if found.result is None or found.result.status != found.status:
        return TargetOutcome(found.target, root, "failed", "the whole was not judged: export again")
    return TargetOutcome(found.target, root, found.status, result=found.result, reused=True)


def _earlier(root: Path) -> PartsRecord | None:
    """What an earlier run wrote into parts.json."""
    with contextlib.suppress(ArtifactError):
        return read_parts(root)
    return None


def _holds(root: Path, one: WholeRecord, found: Driven) -> bool:
    """Whether what was found of a target's artifacts is still of these, of these parts and by these answers."""
    try:
        there = {part: read_artifact(root / part / one.target).sha256 for part in one.artifacts}
    except EdgekitError:
        return False
    alike = there == one.artifacts and there.keys() == found.specs.keys()
    return alike and one.result is not None and one.result.reference_sha256 == _digest(found.answers)


def _holds_with(parts: Parts, found: Driven, root: Path, target: str, others: Mapping[str, Session]) -> bool:
    """Whether the whole holds in a target's artifacts with other sessions for some parts."""
    folders = {part: root / part / target for part in parts.parts if part not in others}
    with contextlib.ExitStack() as stack:
        rest = {part: stack.enter_context(load(folder, trust_build=True)) for part, folder in folders.items()}
        answers = [answered(parts, {**rest, **others}, given) for given in parts.inputs]
    made = _deciding(read_artifact(root / part / target) for part in parts.parts)
    tolerance = registry.find(target).places[0].tolerance_of(made)
    return verdict.judge(tolerance, {}, evaluation=_compared(found, answers)).status == "verified"


def _outcome(
    parts: Parts, found: Driven, builds: Mapping[str, Build], name: str, target: Target, root: Path
) -> TargetOutcome:
    """What became of the whole in one target's artifacts."""
    each = {part: build[name] for part, build in builds.items()}
    if bad := _bad_part(name, root, each):
        return bad
    places = [p for p in target.places if all(p.name in [v.place for v in o.places] for o in each.values())]
    result = Result(
        name=parts.name,
        target=name,
        precision=_deciding(o.manifest for o in each.values()).precision,
        artifact_sha256=digest_text("\n".join(f"{p} {o.manifest.sha256}" for p, o in each.items() if o.manifest)),
        reference_sha256=_digest(found.answers),
        reference_device=found.device,
        size=sum(outcome.size or 0 for outcome in each.values()),
        host=host(),
        places=tuple(_judged(parts, found, each, p).model_copy(update={"place": p.name}) for p in places),
    )
    return TargetOutcome(name, root, result.status, result=result, part_of=_bundle(each))


def _bad_part(name: str, root: Path, each: Mapping[str, TargetOutcome]) -> TargetOutcome | None:
    """What becomes of the whole where a part is bad."""
    for part, outcome in each.items():
        if outcome.bad:
            why = f": {outcome.sentences[0]}" if outcome.sentences else ""
            error = f"its part '{part}' {ENDED[outcome.status]}{why}"
            return TargetOutcome(name, root, outcome.status, error, part_of=_bundle(each))
    return None


def _bundle(each: Mapping[str, TargetOutcome]) -> str:
    """The bundle that the parts' artifacts of a target were made for, where nobody named the target."""
    return next(iter(each.values())).part_of


def _judged(parts: Parts, found: Driven, each: Mapping[str, TargetOutcome], place: Place) -> Verdict:
    """Drive the whole with a target's artifacts in one place, and compare what it answers."""
    for part, outcome in each.items():
        if not any(one.place == place.name and one.status == "verified" for one in outcome.places):
            return verdict.not_verified(fact(Code.TEXT, text=f"its part '{part}' is not verified here"))
    try:
        with _opened(each, place) as sessions:
            device = next(iter(sessions.values())).device
            answers = [answered(parts, sessions, given) for given in parts.inputs]
    except (NotVerifiedHere, HostError) as error:
        return verdict.not_verified(fact(Code.RUNTIME_MISSING, text=str(error)))
    except EdgekitError as error:
        fixed = (
            next(
                (
                    o.target
                    for o in each.values()
                    if (o.manifest is not None and not all(axis.dynamic for axis in o.manifest.axes.values()))
                ),
                "",
            )
            if isinstance(error, UsageError)
            else ""
        )
        hint = (
            f" (an option of '{fixed}' may keep sizes open that it fixed: `edgekit targets {fixed}`)" if fixed else ""
        )
        return verdict.failed(fact(Code.RUNTIME_FAILED, text=f"{error}{hint}"))
    tolerance = place.tolerance_of(_deciding(o.manifest for o in each.values()))
    passed = verdict.judge(tolerance, {}, evaluation=_compared(found, answers))
    evidence = Evidence(inputs={EVALUATION: len(answers)}, place=device, answered_by={found.device: len(answers)})
    asked = fact(Code.ASKED, text=f"the whole driven from end to end, {evidence}")
    more = {"device": device, "evidence": evidence, "notes": (asked, *passed.notes)}
    return passed.model_copy(update=more)


def _deciding(made: Iterable[Manifest | None]) -> Manifest:
    """Of the parts' artifacts of a target the one that says how far the whole may differ: one that rounds itself."""
    there = [one for one in made if one is not None]
    return next((one for one in there if one.export.self_quantized), there[0])


@contextlib.contextmanager
def _opened(each: Mapping[str, TargetOutcome], place: Place) -> Iterator[dict[str, LoadedArtifact]]:
    with contextlib.ExitStack() as stack:
        yield {
            part: stack.enter_context(load(outcome.path, place=place.name, trust_build=True))  # made in this run
            for part, outcome in each.items()
        }


def _compared(found: Driven, answers: Sequence[Answer]) -> list[Comparison]:
    """Answers beside those of the modules, in groups of a shape; one of another shape alone."""
    names = [f"input {number}" for number in range(len(answers))]
    groups: dict[object, list[int]] = {}
    for number, (one, other) in enumerate(zip(found.answers, answers, strict=True)):
        alike = _shapes(one) == _shapes(other)
        groups.setdefault((_shapes(one), None if alike else number), []).append(number)
    scales = spreads(found.outputs, [{n: a[None] for n, a in answer.items()} for answer in found.answers], {})
    compared = []
    for rows in groups.values():
        reference, candidate = (_stacked([side[row] for row in rows]) for side in (found.answers, answers))
        filled = [o for o in found.outputs if not _nothing(o.name, reference, candidate)]
        some = [names[row] for row in rows]
        compared.append(metrics.compare(filled, reference, candidate, some, scales=scales))
    return compared


def _nothing(name: str, reference: Answer, candidate: Answer) -> bool:
    """Whether both found nothing, in an array of the same shape."""
    one, other = reference[name], candidate.get(name)
    return other is not None and not one.size and one.shape == other.shape


def _shapes(answer: Answer) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, array.shape) for name, array in sorted(answer.items()))


def _stacked(answers: Sequence[Answer]) -> Answer:
    return {name: np.stack([answer[name] for answer in answers]) for name in answers[0]}


def _digest(answers: Sequence[Answer]) -> str:
    return digest_text("\n".join(f"{name} {array.tolist()}" for one in answers for name, array in one.items()))


def _record(parts: Parts, found: Driven, factory: str, targets: Mapping[str, WholeRecord]) -> PartsRecord:
    """parts.json: the driver, its parts, and of each target the artifacts' hashes and what was found of the whole."""
    return PartsRecord(
        name=parts.name,
        driver=f"{parts.driver.__module__}:{getattr(parts.driver, '__qualname__', type(parts.driver).__name__)}",
        factory=factory,
        code_sha256=_code(parts, found, factory),
        inputs=len(parts.inputs),
        parts={name: PartRecord(folder=name, calls=count) for name, count in found.calls.items()},
        targets=dict(targets),
    )


def _code(parts: Parts, found: Driven, factory: str) -> str:
    """Hash of the code behind the parts, the driver and what makes them."""
    names = {parts.driver.__module__, *([factory.partition(":")[0]] if factory else [])}
    return code_digest(names.union(*map(code_of, found.specs.values())))


def _of_target(outcome: TargetOutcome, builds: Mapping[str, Build]) -> WholeRecord:
    each = {part: build[outcome.target].manifest for part, build in builds.items()}
    return WholeRecord(
        target=outcome.target,
        status=outcome.status,
        error=outcome.error,
        artifacts={part: made.sha256 for part, made in each.items() if made is not None},
        result=outcome.result,
    )
