"""A model of parts: each exported and judged as a model of its own, then the whole, driven with their artifacts.

Everything lies in `build/<model>/`: a build a part, and parts.json, which says which artifacts make the whole and what
was found of it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from edgekit import registry
from edgekit.artifact.fact import EVALUATION, Code, fact
from edgekit.artifact.result import Evidence, Result, Verdict
from edgekit.artifact.run_record import PARTS
from edgekit.artifact.store import read_artifact
from edgekit.errors import EdgekitError, NotVerifiedHere
from edgekit.judge import metrics, verdict
from edgekit.judge.deviation import spreads
from edgekit.judge.metrics import Comparison
from edgekit.model.parts import Parts
from edgekit.model.spec import Array, ModelSpec
from edgekit.pipeline.driven import Driven, answered, driven
from edgekit.pipeline.loaded import LoadedArtifact, load
from edgekit.pipeline.outcome import ENDED, Build, TargetOutcome
from edgekit.reference.record import host
from edgekit.storage.door import RefusedError, read_record, sealed
from edgekit.storage.files import digest_file, digest_text, staging, write_text
from edgekit.storage.host_errors import as_sentences
from edgekit.target import Place, Target

Answer = dict[str, Array]
HUB, ONNX = "hub", ".onnx"
SUFFIXES = {"fp16": "_fp16", "int8": "_quantized"}
"""Behind the name of an ONNX file, by its precision, as transformers.js and optimum look for it."""


@as_sentences()
def export(parts: Parts, root: Path, one: Callable[[str, ModelSpec], Build]) -> Build:
    """Export a model's parts, judge each, and judge the whole.

    Args:
        parts: The model.
        root: Its build folder.
        one: Exports a part by its name into the build folder of that name.

    Raises:
        EdgekitError: For what concerns all targets: the driver, a part, an unknown target or option.
    """
    found = driven(parts)
    builds = {name: one(name, spec) for name, spec in found.specs.items()}
    targets, _ = registry.loadable()
    first = next(iter(builds.values()))
    outcomes = tuple(_outcome(parts, found, builds, name, targets[name], root) for name in first)
    build = Build(outcomes, root, found.device, parts=builds)
    before = _earlier(root)
    made = {outcome.target: _of_target(outcome, builds) for outcome in outcomes}
    valid = {name: one for name, one in before.get("targets", {}).items() if _holds(root, one, found)}
    record = _record(parts, found, valid | made)
    files = _hub(parts, root, record["targets"], before.get(HUB, ())) if parts.files else {}
    write_text(root / PARTS, sealed(record | {HUB: files}))
    return build


def _earlier(root: Path) -> dict[str, Any]:
    """What an earlier run wrote into parts.json."""
    try:
        return read_record(root, PARTS)
    except RefusedError:
        return {}


def _holds(root: Path, one: Mapping[str, Any], found: Driven) -> bool:
    """Whether what was found of a target's artifacts is still of these, of these parts and by these answers."""
    try:
        there = {part: read_artifact(root / part / one["target"]).sha256 for part in one["artifacts"]}
        alike = there == one["artifacts"] and there.keys() == found.specs.keys()
        return bool(alike and one["result"]["reference_sha256"] == _digest(found.answers))
    except (EdgekitError, LookupError, TypeError):
        return False


def _hub(parts: Parts, root: Path, targets: Mapping[str, Any], written: Collection[str]) -> dict[str, str]:
    """Write the folder that a hub of models has of it; the hash of each file by its path there."""
    with staging(root / HUB, lambda _: written) as staged:
        for name, path in parts.files.items():
            shutil.copyfile(path, staged / name)
        for target, part in product(
            (name for name, one in targets.items() if one["status"] == "verified"), parts.parts
        ):
            made = read_artifact(root / part / target)
            path = staged / "onnx" / f"{part}{SUFFIXES.get(made.precision, '')}{ONNX}"
            if made.entry.endswith(ONNX) and not path.exists():  # of two in one precision the first
                path.parent.mkdir(exist_ok=True)
                shutil.copyfile(root / part / target / made.entry, path)
        paths = sorted(path for path in staged.rglob("*") if path.is_file())
        return {path.relative_to(staged).as_posix(): digest_file(path) for path in paths}


def _outcome(
    parts: Parts, found: Driven, builds: Mapping[str, Build], name: str, target: Target, root: Path
) -> TargetOutcome:
    """What became of the whole in one target's artifacts."""
    each = {part: build[name] for part, build in builds.items()}
    bad = {part: outcome for part, outcome in each.items() if outcome.bad}
    if bad:
        part, outcome = next(iter(bad.items()))
        why = f": {outcome.sentences[0]}" if outcome.sentences else ""
        return TargetOutcome(name, root, outcome.status, f"its part '{part}' {ENDED[outcome.status]}{why}")
    asked = {verdict.place for outcome in each.values() for verdict in outcome.places}
    places = [place for place in target.places if place.name in asked]
    result = Result(
        name=parts.name,
        target=name,
        precision=_precision(each),
        artifact_sha256=digest_text("\n".join(f"{p} {o.manifest.sha256}" for p, o in each.items() if o.manifest)),
        reference_sha256=_digest(found.answers),
        reference_device=found.device,
        size=sum(outcome.size or 0 for outcome in each.values()),
        host=host(),
        places=tuple(_judged(parts, found, each, p).model_copy(update={"place": p.name}) for p in places),
    )
    return TargetOutcome(name, root, result.status, result=result)


def _judged(parts: Parts, found: Driven, each: Mapping[str, TargetOutcome], place: Place) -> Verdict:
    """Drive the whole with a target's artifacts in one place, and compare what it answers."""
    for part, outcome in each.items():
        if not any(one.place == place.name and one.status == "verified" for one in outcome.places):
            return verdict.not_verified(fact(Code.TEXT, text=f"its part '{part}' is not verified here"))
    try:
        with _opened(each, place) as sessions:
            device = next(iter(sessions.values())).device
            answers = [answered(parts, sessions, given) for given in parts.inputs]
    except NotVerifiedHere as error:
        return verdict.not_verified(fact(Code.RUNTIME_MISSING, text=str(error)))
    except EdgekitError as error:
        return verdict.failed(fact(Code.RUNTIME_FAILED, text=str(error)))
    passed = verdict.judge(place.tolerance_of(_precision(each)), {}, evaluation=_compared(found, answers))
    evidence = Evidence(inputs={EVALUATION: len(answers)}, place=device, answered_by={found.device: len(answers)})
    asked = fact(Code.ASKED, text=f"the whole driven from end to end, {evidence}")
    more = {"device": device, "evidence": evidence, "notes": (asked, *passed.notes)}
    return passed.model_copy(update=more)


def _precision(each: Mapping[str, TargetOutcome]) -> str:
    """Of the artifacts of a target: the first part's."""
    return next(o.manifest.precision for o in each.values() if o.manifest is not None)


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
        filled = [o for o in found.outputs if any(o.name not in a or a[o.name].size for a in (reference, candidate))]
        some = [names[row] for row in rows]
        compared.append(metrics.compare(filled, reference, candidate, some, scales=scales))
    return compared


def _shapes(answer: Answer) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, array.shape) for name, array in sorted(answer.items()))


def _stacked(answers: Sequence[Answer]) -> Answer:
    return {name: np.stack([answer[name] for answer in answers]) for name in answers[0]}


def _digest(answers: Sequence[Answer]) -> str:
    return digest_text("\n".join(f"{name} {array.tolist()}" for one in answers for name, array in one.items()))


def _record(parts: Parts, found: Driven, targets: Mapping[str, Any]) -> dict[str, Any]:
    """parts.json: the driver, its parts, and of each target the artifacts' hashes and what was found of the whole."""
    driver = f"{parts.driver.__module__}:{getattr(parts.driver, '__qualname__', type(parts.driver).__name__)}"
    return {
        "schema_version": 1,
        "name": parts.name,
        "driver": driver,
        "inputs": len(parts.inputs),
        "parts": {name: {"folder": name, "calls": count} for name, count in found.calls.items()},
        "targets": dict(targets),
    }


def _of_target(outcome: TargetOutcome, builds: Mapping[str, Build]) -> dict[str, Any]:
    each = {part: build[outcome.target].manifest for part, build in builds.items()}
    result = outcome.result.model_dump(mode="json") if outcome.result is not None else None
    hashes = {part: made.sha256 for part, made in each.items() if made is not None}
    facts = {"target": outcome.target, "status": outcome.status, "error": outcome.error}
    return {**facts, "artifacts": hashes, "result": result}
