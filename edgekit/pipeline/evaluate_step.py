"""Evaluation of one artifact: run it in each of its places, compare with the reference, judge, record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from edgekit import registry
from edgekit.artifact.fact import EVALUATION, Code, fact
from edgekit.artifact.manifest import Manifest, VerdictSummary
from edgekit.artifact.result import RESULT, EvaluationResult, Result, result_text
from edgekit.artifact.run_record import MODEL, REFERENCE
from edgekit.artifact.store import MANIFEST, amend, read_file, result_of
from edgekit.errors import ArtifactError, DependencyError, EdgekitError, HostError, ModelError, NotVerifiedHere
from edgekit.hosts import process
from edgekit.hosts.run_record import Measurement
from edgekit.judge import verdict
from edgekit.judge.deviation import relative_errors
from edgekit.model.spec import Array
from edgekit.pipeline import worker
from edgekit.pipeline.context import RunContext
from edgekit.pipeline.fresh_inputs import judge_fresh_inputs
from edgekit.pipeline.judge_step import judge_answers, sample_of
from edgekit.pipeline.worker import ANSWERS
from edgekit.reference.record import host
from edgekit.reference.store import Reference, arrays_of
from edgekit.storage.files import digest_text, scratch
from edgekit.target import Place

# Errors of a resource that this host may have in the next run: time, memory, disk space, a library.
CHANGING = (HostError, DependencyError)
# Errors that concern this host and not the artifact.
NOT_HERE = (NotVerifiedHere, *CHANGING)


@dataclass(frozen=True)
class EvaluationOutcome:
    """A verdict, and the arrays for the report's plots.

    Attributes:
        verdict: The record.
        scores: Score maps of the evaluation set, [n, N] each.
        errors: For a model without scores: the largest error of each output in each row of the evaluation set, over the
            peak of the output's reference, [n] each.
        variant_target: The target of the judged variant; empty if the artifact is not a bundle.
    """

    verdict: EvaluationResult
    scores: Mapping[str, Array] = field(default_factory=dict)
    errors: Mapping[str, Array] = field(default_factory=dict)
    variant_target: str = ""


def evaluate(context: RunContext, name: str, manifest: Manifest) -> Result:
    """Judge an artifact in every place; write result.json, the score maps and the manifest's verdicts."""
    return conclude(
        context,
        name,
        manifest,
        [evaluate_in_place(context, name, manifest, p) for p in context.targets[name].places_of(manifest)],
    )


def evaluate_in_place(context: RunContext, name: str, manifest: Manifest, place: Place) -> EvaluationOutcome:
    """Run an artifact in one place and judge it there."""
    places = [each.name for each in context.targets[name].places]

    def progress(share: float, text: str) -> None:
        context.listener.progress(name, 0.6 + 0.4 * (places.index(place.name) + share) / len(places), text)

    made_by = variant_target(manifest, place)
    with scratch() as out:
        try:
            measured = run_in_worker(context, _request(context, name, manifest, place, out), progress)
        except EdgekitError as error:
            return _of_error(place, error, made_by)
        answers = answers_in(out)
    # In a target's own place all nodes run on one provider, so the facts about nodes are dropped.
    finding = finding_of(context, manifest, place, answers, measured.model_copy(update={"facts": {}}))
    if sample_of(manifest, place) and any(r.code is Code.TOO_FEW_ROWS for r in finding.verdict.reasons):
        return evaluate_in_place(context, name, manifest, replace(place, sample=0))
    if context.fresh_inputs is None or finding.verdict.status != "verified":
        return finding
    try:
        judgement = judge_fresh_inputs(context, manifest, place, finding.verdict, context.fresh_inputs)
        return replace(finding, verdict=judgement)
    except EdgekitError as error:
        return _of_error(place, error, made_by)


def run_in_worker(context: RunContext, request: worker.RunJob, progress: process.Progress) -> Measurement:
    """Run an artifact in a worker; its outputs are in the request's folder (`answers_in`).

    Raises:
        EdgekitError: As in the worker; NotVerifiedHere if this host lacks a requirement.
    """
    arguments = {"request": request.model_dump(mode="json")}
    return Measurement.model_validate(
        process.call(worker.run_artifact, arguments, progress, context.limits, worker.RUN_MODULES)
    )


def answers_in(folder: Path) -> dict[str, Array]:
    """Return the outputs of a run: arrays by `<batch>/<output>`."""
    with np.load(folder / ANSWERS, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def finding_of(
    context: RunContext, manifest: Manifest, place: Place, answers: Mapping[str, Array], measured: Measurement
) -> EvaluationOutcome:
    """Judge an artifact's outputs in a place."""
    judgement = judge_answers(context.spec, context.recorded, manifest, place, answers, measured, context.task_limits)
    names = {o.name for o in context.spec.outputs if o.role == "scores"}
    arrays = arrays_of(EVALUATION, answers)
    scores = {n: a for n, a in arrays.items() if n in names}
    # Large outputs also have sketches, which are left out here.
    outputs = {o.name for o in context.spec.outputs}
    errors = {} if names else _errors(context.recorded, {n: a for n, a in arrays.items() if n in outputs})
    return EvaluationOutcome(judgement, scores, errors, variant_target(manifest, place))


def missing_runtime(place: Place, why: str | EdgekitError) -> EvaluationOutcome:
    """Return the outcome when an artifact cannot run here: no verdict, and the missing requirement."""
    code = Code.HOST_LIMIT if isinstance(why, CHANGING) else Code.RUNTIME_MISSING
    return _without_answers(place, verdict.not_verified(fact(code, text=str(why))))


def outcome_of_failure(place: Place, why: str) -> EvaluationOutcome:
    """Return the outcome when a runtime refuses an artifact or crashes on it."""
    return _without_answers(place, verdict.failed_verdict(fact(Code.RUNTIME_FAILED, text=why)))


def _of_error(place: Place, error: EdgekitError, made_by: str) -> EvaluationOutcome:
    """Return the outcome of an error.

    Raises:
        ModelError: Again, since the user's code is no fault of the artifact.
    """
    if isinstance(error, ModelError):
        raise error
    finding = missing_runtime(place, error) if isinstance(error, NOT_HERE) else outcome_of_failure(place, str(error))
    return replace(finding, variant_target=made_by)


def _without_answers(place: Place, status: EvaluationResult) -> EvaluationOutcome:
    return EvaluationOutcome(status.model_copy(update={"place": place.name, "variant": place.variant}))


def variant_target(manifest: Manifest, place: Place | EvaluationResult) -> str:
    """Return the target of the variant in a place; empty if the artifact is not a bundle."""
    return next((v.target for v in manifest.bundle.variants if v.name == place.variant), "")


def conclude(context: RunContext, name: str, manifest: Manifest, findings: Sequence[EvaluationOutcome]) -> Result:
    """Record the outcomes in one commit: result.json, the score maps and the manifest's verdicts.

    A limit of this host says nothing against an earlier "verified", also if an earlier edgekit judged: then the whole
    record stays, unless an artifact is rejected now.
    """
    lacking = {finding.verdict.place for finding in findings if _was_unavailable(finding.verdict)}
    stored = _stored(context, name, manifest) if lacking else None
    is_current = stored is not None and stored.judge_sha256 == _code(context, name, manifest)
    verified = {place.place for place in stored.places if place.status == "verified"} if stored is not None else set()
    rejected = any(finding.verdict.status == "rejected" for finding in findings)
    if is_current or rejected or not lacking & verified:
        lasting = _lasting(context, name, manifest, findings, stored if is_current else None)
        record = record_of(context, name, manifest, lasting)
        amend(context.folder(name), [_info(manifest, finding) for finding in lasting], files_of(record, lasting))
    return record_of(context, name, manifest, findings)


def _lasting(
    context: RunContext,
    name: str,
    manifest: Manifest,
    findings: Sequence[EvaluationOutcome],
    stored: Result | None,
) -> list[EvaluationOutcome]:
    """Return the outcomes to store: where this host lacked a resource, the stored "verified" of the same judge."""
    earlier = settled_outcomes(context, name, manifest, stored) if stored is not None else []
    verified = {f.verdict.place: f for f in earlier if f.verdict.status == "verified"}
    return [verified.get(f.verdict.place, f) if _was_unavailable(f.verdict) else f for f in findings]


def record_of(context: RunContext, name: str, manifest: Manifest, findings: Sequence[EvaluationOutcome]) -> Result:
    """Return the outcomes as a result record."""
    return Result(
        name=context.spec.name,
        target=name,
        precision=manifest.precision,
        artifact_sha256=manifest.sha256,
        reference_sha256=context.recorded.sha256,
        reference_device=context.recorded.device,
        judge_sha256=_code(context, name, manifest),
        size=manifest.size,
        first_visit=_first_visit(manifest, findings),
        host=host(),
        places=tuple(finding.verdict for finding in findings),
    )


def _first_visit(manifest: Manifest, findings: Sequence[EvaluationOutcome]) -> int | None:
    if not manifest.bundle.variants:
        return None
    return manifest.model_copy(update={"verdicts": tuple(_info(manifest, finding) for finding in findings)}).first_visit


def files_of(result: Result, findings: Sequence[EvaluationOutcome]) -> dict[str, bytes]:
    """Return result.json, the score maps, and the errors of models without scores, by name."""
    files = {RESULT: result_text(result).encode()}
    for finding in findings:
        files |= _arrays("scores", finding.verdict, finding.scores) | _arrays("errors", finding.verdict, finding.errors)
    return files


def previous(context: RunContext, name: str, manifest: Manifest) -> Result | None:
    """Return the stored result if the artifact, the reference and the judge are unchanged, else None."""
    result = _stored(context, name, manifest)
    return result if result is not None and result.judge_sha256 == _code(context, name, manifest) else None


def _stored(context: RunContext, name: str, manifest: Manifest) -> Result | None:
    """Return the stored result if the artifact and the reference are unchanged, else None."""
    try:
        result = result_of(context.folder(name), manifest)
    except ArtifactError:
        return None
    then = (manifest.sha256, context.recorded.sha256)
    return result if result is not None and then == (result.artifact_sha256, result.reference_sha256) else None


def settled_outcomes(context: RunContext, name: str, manifest: Manifest, result: Result) -> list[EvaluationOutcome]:
    """Return the outcomes of an earlier run, except those where this host lacked a resource."""
    # The result does not say which variant was left out.
    if manifest.bundle.left_out:
        return []
    return [
        EvaluationOutcome(
            place,
            _read_arrays(context, name, manifest, "scores", place),
            _read_arrays(context, name, manifest, "errors", place),
            variant_target(manifest, place),
        )
        for place in result.places
        if not _was_unavailable(place)
    ]


def is_settled(result: Result) -> bool:
    """Return whether judging again changes nothing: no place lacked a resource of this host."""
    return not any(map(_was_unavailable, result.places))


def _was_unavailable(place: EvaluationResult) -> bool:
    return any(reason.code is Code.HOST_LIMIT for reason in place.reasons)


def _info(manifest: Manifest, finding: EvaluationOutcome) -> VerdictSummary:
    """Return the manifest's verdict; a rejected variant that is left out does not reject its bundle."""
    place, reason = finding.verdict, "; ".join(str(reason) for reason in finding.verdict.reasons)
    if finding.variant_target in manifest.bundle.left_out:
        return VerdictSummary(place=place.place, status="not verified here", reason=f"rejected and left out: {reason}")
    return VerdictSummary(
        place=place.place, status=place.status, reason=reason, evidence=place.evidence, proof=place.proof
    )


def _request(context: RunContext, name: str, manifest: Manifest, place: Place, out: Path) -> worker.RunJob:
    target = context.targets[name]
    source = context.targets.get(target.source)
    baseline = context.folder(target.source)
    # A speed ratio needs both artifacts in the same place.
    same = next((p for p in source.places if p.name == place.name and p.timed), None) if source is not None else None
    return worker.RunJob(
        target=name,
        folder=context.folder(name),
        place=place.name,
        reference=context.folder(REFERENCE),
        out=out,
        baseline=(target.source, baseline) if same is not None and (baseline / MANIFEST).is_file() else None,
        model=context.folder(MODEL),
        images=sample_of(manifest, place),
    )


def _errors(recorded_reference: Reference, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the largest error of each float output in each evaluation image over the reference's peak, float32 [n]."""
    batch = next((batch for batch in recorded_reference.batches if batch.name == EVALUATION), None)
    if batch is None:
        return {}
    errors: dict[str, Array] = {}
    for name, reference in batch.outputs.items():
        answer = arrays.get(name)
        if answer is None or reference.dtype.kind != "f" or not reference.size or reference.shape != answer.shape:
            continue
        # An output of one row for several images is not per image.
        if len(reference) > 1 or len(batch.names) == 1:
            errors[name] = relative_errors(reference, answer).astype(np.float32)
    return errors


def _arrays(kind: str, place: EvaluationResult, arrays: Mapping[str, Array]) -> dict[str, bytes]:
    """Return the file with one kind of arrays of one place; empty without arrays."""
    from safetensors.numpy import save

    if not arrays:
        return {}
    data = save({name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())})
    return {f"{kind}-{place.place}.safetensors": data}


def _read_arrays(
    context: RunContext, name: str, manifest: Manifest, kind: str, place: EvaluationResult
) -> dict[str, Array]:
    """Return the arrays that `_arrays` wrote; empty without a file."""
    from safetensors.numpy import load

    path = f"{kind}-{place.place}.safetensors"
    return load(read_file(context.folder(name), manifest, path)) if manifest.entry_of(path) is not None else {}


def _code(context: RunContext, name: str, manifest: Manifest) -> str:
    """Return the hash of code, libraries and the artifact's options: an edited limit judges again."""
    target = context.targets[name]
    places, options = [repr(place) for place in target.places], sorted(manifest.export.options.items())
    parts = (registry.code_digest(target), registry.versions(target), places, options, context.task_limits)
    return digest_text(json.dumps(parts, sort_keys=True))
