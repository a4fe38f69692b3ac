"""Judging one artifact: run it in each of its places, compare with the reference, pass the verdict, write it down."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.artifact.manifest import Manifest, VerdictInfo
from edgekit.artifact.result import Measure, Place, Ratio, Result, Timing, read_result, write_result
from edgekit.artifact.store import amend
from edgekit.errors import ArtifactError, EdgekitError, NotVerifiedHere
from edgekit.judge import latency, metrics, verdict
from edgekit.judge.metrics import Comparison
from edgekit.judge.tolerance import Tolerance
from edgekit.judge.verdict import Check, Verdict
from edgekit.model.spec import Array, Output
from edgekit.pipeline import process, worker
from edgekit.pipeline.context import MODEL, REFERENCE, WORKER_TIMEOUT, Build
from edgekit.pipeline.worker import ANSWERS
from edgekit.reference.batches import EVALUATION, STRESS, Batch, applicable_batches, arrays_of
from edgekit.reference.record import host
from edgekit.reference.store import Reference
from edgekit.storage.code import code_of, joined
from edgekit.storage.files import digest_text, write_bytes
from edgekit.target import Target

SLOWER = "slower: not recommended"


@dataclass(frozen=True)
class Finding:
    """What was found in one place: the record, the score maps of the evaluation images, the proved shapes.

    `made_by` is the target of the variant that was judged; empty where the artifact is no bundle.
    """

    place: Place
    scores: Mapping[str, Array]
    proof: tuple[Mapping[str, int], ...]
    made_by: str = ""


def judge(build: Build, name: str, made: Manifest) -> Result:
    """Judge an artifact in every place; writes result.json, the score maps and the manifest's verdicts."""
    return conclude(build, name, made, find(build, name, made))


def find(build: Build, name: str, made: Manifest, before: Sequence[Finding] = ()) -> list[Finding]:
    """Judge in every place; what was found before counts where the same variant is still there, or none is."""
    findings = []
    for number, place in enumerate(build.targets[name].places):
        known = next((f for f in before if f.place.place == place), None)
        made_by = _made_by(made, place)
        if known is not None and made_by in ("", known.made_by):
            findings.append(known)
            continue
        finding = replace(_find(build, name, made, place, number), made_by=made_by)
        if known is not None:
            note = f"'{known.made_by}' was rejected here and left out: {'; '.join(known.place.reasons[:1])}"
            noted = finding.place.model_copy(update={"notes": (note, *finding.place.notes)})
            finding = replace(finding, place=noted)
        findings.append(finding)
    return findings


def unfit(made: Manifest, findings: Sequence[Finding]) -> list[str]:
    """The targets of variants that were rejected and that the bundle can do without: all but the first."""
    spare = {variant.target for variant in made.variants[1:]}
    return sorted({f.made_by for f in findings if f.place.status == "rejected"} & spare)


def conclude(build: Build, name: str, made: Manifest, findings: Sequence[Finding]) -> Result:
    """Write down what was found: result.json, the score maps and the manifest's verdicts."""
    folder = build.folder(name)
    found = Result(
        name=build.spec.name,
        target=name,
        precision=made.precision,
        artifact_sha256=made.sha256,
        reference_sha256=build.recorded.sha256,
        reference_device=build.recorded.device,
        judge_sha256=_code(build.targets[name], made),
        size=sum(f.size for f in made.files if f.path == made.entry or f.path.startswith(f"{made.entry}/")),
        host=host(),
        places=tuple(finding.place for finding in findings),
        proof=tuple(dict(sizes) for sizes in findings[0].proof),
    )
    for finding in findings:
        _write_scores(folder, finding)
    write_result(folder, found)
    amend(folder, [_info(made, finding) for finding in findings], found.proof)
    return found


def _made_by(made: Manifest, place: str) -> str:
    return next((v.target for v in made.variants if v.name == place.rpartition("-")[2]), "")


def _info(made: Manifest, finding: Finding) -> VerdictInfo:
    """The manifest's verdict: what is not in a bundle does not make the bundle a rejected one."""
    place, reason = finding.place, "; ".join(finding.place.reasons)
    if finding.made_by in made.left_out:
        return VerdictInfo(place=place.place, status="not verified here", reason=f"rejected and left out: {reason}")
    return VerdictInfo(place=place.place, status=place.status, reason=reason)


def before(build: Build, name: str, made: Manifest) -> Result | None:
    """The result that is there, if neither the artifact nor the reference nor the judge changed since."""
    try:
        found = read_result(build.folder(name))
    except ArtifactError:
        return None
    if found is None:
        return None
    then = (found.artifact_sha256, found.reference_sha256, found.judge_sha256)
    return found if then == (made.sha256, build.recorded.sha256, _code(build.targets[name], made)) else None


def _find(build: Build, name: str, made: Manifest, place: str, number: int) -> Finding:
    target = build.targets[name]

    def progress(done: float, text: str) -> None:
        build.events.progress(name, 0.6 + 0.4 * (number + done) / len(target.places), text)

    with tempfile.TemporaryDirectory(prefix="edgekit-") as out:
        try:
            answer = process.call(worker.measure, _question(build, name, made, place, out), progress, WORKER_TIMEOUT)
        except NotVerifiedHere as missing:
            return Finding(_place(place, "", verdict.not_verified(str(missing)), {}), {}, ())
        except EdgekitError as error:
            died = Verdict("rejected", (verdict.Reason(str(error)),))
            return Finding(_place(place, "", died, {}), {}, ())
        answers = _read(Path(out) / ANSWERS)
    passed = _verdict(build, target, made, place, answers, answer["failures"])
    named = {o.name for o in build.spec.outputs if o.role == "scores"}
    scores = {n: a for n, a in arrays_of(EVALUATION, answers).items() if n in named}
    return Finding(_place(place, str(answer["device"]), passed, answer), scores, passed.proved)


def _question(build: Build, name: str, made: Manifest, place: str, out: str) -> dict[str, object]:
    target = build.targets[name]
    source = build.targets.get(target.source)
    comparable = source is not None and source.timed and place == "cpu" and "cpu" in source.places
    return {
        "target": name,
        "folder": str(build.folder(name)),
        "place": place,
        "reference_folder": str(build.folder(REFERENCE)),
        "out": out,
        "baseline": [target.source, str(build.folder(target.source))] if comparable else None,
        "model_folder": str(build.folder(MODEL)),
        "timed": target.timed,
        "images": _images(target, made, place),
    }


def _images(target: Target, made: Manifest, place: str) -> int | None:
    """How many evaluation images are judged in a place; None for all."""
    return None if made.options.get("images") == "all" else target.sampled.get(place)


def _verdict(
    build: Build, target: Target, made: Manifest, place: str, answers: Mapping[str, Array], failures: Any
) -> Verdict:
    tolerance = target.tolerance.get(place) or target.tolerance[""]
    evaluation: list[Comparison] = []
    stress: list[Comparison] = []
    grid: list[tuple[Mapping[str, int], Comparison]] = []
    images = _images(target, made, place)
    batches = applicable_batches(build.recorded.batches, made.axes, images)
    for batch in batches:
        if batch.name in failures:
            found = [metrics.failed(batch.names, f"{batch.name}: {failures[batch.name]}")]
        else:
            found = _compared(build, batch, arrays_of(batch.name, answers), tolerance)
        if batch.name == EVALUATION:
            evaluation += found
        elif batch.name == STRESS:
            stress += found
        else:
            grid += [(batch.sizes, one) for one in found]
    judged = build.spec.evaluation() if build.spec.evaluation is not None else None
    name = judged.metric_name if judged is not None else "task metric"
    passed = verdict.judge(
        tolerance, build.recorded.noise, evaluation=evaluation, stress=stress, grid=grid, metric_name=name
    )
    if images is None:
        return passed
    return replace(passed, notes=(_sample(made, batches, build.recorded), *passed.notes))


def _sample(made: Manifest, judged: tuple[Batch, ...], recorded: Reference) -> str:
    """What was judged of what there is, in words."""

    def count(batches: tuple[Batch, ...]) -> tuple[int, int]:
        images = sum(len(b.names) for b in batches if b.name == EVALUATION)
        return images, sum(bool(b.sizes) for b in batches)

    (images, shapes), (all_images, all_shapes) = count(judged), count(applicable_batches(recorded.batches, made.axes))
    return (
        f"slow here, so judged on {images} of {all_images} evaluation images and {shapes} of {all_shapes} shapes:"
        f" `-O {made.target}.images=all` judges on all"
    )


def _compared(build: Build, batch: Batch, answers: Mapping[str, Array], tolerance: Tolerance) -> list[Comparison]:
    """All rows without the outputs that were recorded for the first rows only, and those rows with them."""
    outputs = build.spec.outputs
    rows = len(batch.names)
    partly = {o.name for o in outputs if o.name in batch.outputs and len(batch.outputs[o.name]) < rows}
    real = build.spec.evaluation() if batch.name == EVALUATION and build.spec.evaluation is not None else None
    limit = verdict.score_tolerance(tolerance, max(build.recorded.noise.values(), default=0.0))

    def one(chosen: tuple[Output, ...], first: int, task: bool) -> Comparison:
        return metrics.compare(
            chosen,
            {name: array[:first] for name, array in batch.outputs.items()},
            {name: array[:first] for name, array in answers.items()},
            batch.names[:first],
            score_tolerance=limit,
            metric=real.metric if real is not None and task else None,
            truth=real.truth[:first] if real is not None and real.truth is not None and task else None,
        )

    whole = one(tuple(o for o in outputs if o.name not in partly), rows, task=True)
    if not partly:
        return [whole]
    return [whole, one(outputs, min(len(batch.outputs[name]) for name in partly), task=False)]


def _place(place: str, device: str, passed: Verdict, answer: Mapping[str, Any]) -> Place:
    ratios = tuple(Ratio(**ratio) for ratio in answer.get("ratios", ()))
    # Eager PyTorch is shown, not held against an artifact: only what it was made from counts.
    sources = [latency.Ratio(**ratio) for ratio in answer.get("ratios", ()) if ratio["baseline"] != "pytorch"]
    slower = [f"{SLOWER} ({r.value:.2f}x the speed of {r.baseline})" for r in sources if r.slower]
    return Place(
        place=place,
        device=device,
        status=passed.status,
        reasons=tuple(str(reason) for reason in passed.reasons),
        notes=(*passed.notes, *answer.get("notes", ()), *slower),
        measures=tuple(_measure(check) for check in passed.checks),
        timings={name: Timing(**timing) for name, timing in answer.get("timings", {}).items()},
        ratios=ratios,
    )


def _measure(check: Check) -> Measure:
    finite = np.isfinite(check.value)
    return Measure(
        batch=check.batch,
        output=check.output,
        metric=check.metric,
        value=float(check.value) if finite else None,
        limit=check.limit,
        table=check.table,
        noise=check.noise,
        passed=bool(check.passed),
        image=check.image,
        patch=int(check.patch),
    )


def _read(path: Path) -> dict[str, Array]:
    from safetensors.numpy import load_file

    return dict(load_file(path))


def _write_scores(folder: Path, finding: Finding) -> None:
    from safetensors.numpy import save

    if finding.scores:
        data = save({name: np.ascontiguousarray(array) for name, array in sorted(finding.scores.items())})
        write_bytes(folder / f"scores-{finding.place.place}.safetensors", data)


def _code(target: Target, made: Manifest) -> str:
    """Hash of the code that judges and runs, and of the artifact's options: an edited limit judges again."""
    code = joined((code_of(judge), code_of(target.load)))
    tolerances = sorted((place, repr(tolerance)) for place, tolerance in target.tolerance.items())
    parts = (code.digest, dict(code.libraries), tolerances, sorted(made.options.items()))
    return digest_text(json.dumps(parts, sort_keys=True))
