"""Rows of a build folder: one for each artifact, precision and place, each with its verdict.

Nothing is trusted: an artifact with damaged files, or with a result of other files, gets no verdict but a reason.
Artifacts that were never judged and results from phones are rows as well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit.artifact.fact import Code, Fact, fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.profile import read_profile
from edgekit.artifact.result import RESULT, EvaluationResult, Result
from edgekit.artifact.run_record import CACHE, NOT_MADE, RunRecord, TargetStatus, read_run, refuse_parts
from edgekit.artifact.store import MANIFEST, read_artifact, require_build, result_of
from edgekit.errors import ArtifactError, UsageError
from edgekit.model.spec import Array
from edgekit.reference.info import read_info, tensors
from edgekit.report.imports import IMPORTED, read_imported
from edgekit.report.study import BuildReport, ReportedArtifact, ReportRow, RowStatus
from edgekit.storage import verified_io
from edgekit.storage.files import load_json

# File in a quantizing target's cache with the tried recipes.
TRIALS = "trials.json"


def read_study(folder: Path) -> BuildReport:
    """Return the report of a build folder.

    Raises:
        UsageError: If the folder or its artifacts are missing.
        ArtifactError: If it is the build of a model of parts.
    """
    require_build(folder)
    homes = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}") if not path.parent.name.startswith("."))
    imported = sorted(path for path in folder.glob(f"{IMPORTED}/*") if os.path.lexists(path / RESULT))
    run = read_run(folder)
    if not homes and not imported and not run.targets:
        refuse_parts(folder)
        raise UsageError(f"no artifact in '{folder}'. Export one with `edgekit export`")
    reference = read_info(folder / "reference")
    artifacts = [_artifact(home, reference.sha256) for home in homes]
    present = {
        home.name: artifact.manifest.sha256
        for home, artifact in zip(homes, artifacts, strict=True)
        if artifact.manifest
    }
    for home in imported:
        _join(artifacts, home, reference.sha256)
    return BuildReport(
        folder.name, tuple(_with_missing_targets(artifacts, run)), reference, run, read_profile(folder, present)
    )


def _with_missing_targets(artifacts: Sequence[ReportedArtifact], run: RunRecord) -> list[ReportedArtifact]:
    """Return the artifacts, and those that the last run could not export instead of their outdated results."""
    rows = list(artifacts)
    for target, status in run.targets.items():
        same = [each for each in rows if each.target == target]
        if status.status in NOT_MADE:
            old = [row for each in same for row in each.rows if row.origin]
            row = ReportRow(target, "", "", status.status, (_text(status.error or status.status),))
            rows = [each for each in rows if each.target != target]
            rows.append(ReportedArtifact(target, None, (row, *old)))
        elif status.over:
            rows = [_with_budgets(each, status) if each in same else each for each in rows]
    latest = run.began in {target.began for target in run.targets.values()} - {""}
    rows = [
        replace(
            each, earlier=latest and (run.targets[each.target].began if each.target in run.targets else "") != run.began
        )
        for each in rows
    ]
    return sorted(
        rows, key=lambda each: (all(row.status == "not installed" for row in each.rows), each.earlier, each.target)
    )


def _with_budgets(artifact: ReportedArtifact, target_status: TargetStatus) -> ReportedArtifact:
    """Return an artifact with its budget violations after the other reasons."""

    def row_with_budgets(row: ReportRow) -> ReportRow:
        over = target_status.over.get(row.place, ())
        status: RowStatus = "over budget" if over and row.status == "verified" else row.status
        return replace(row, status=status, reasons=(*row.reasons, *over))

    return replace(artifact, rows=tuple(row_with_budgets(row) for row in artifact.rows))


def _artifact(home: Path, reference_digest: str) -> ReportedArtifact:
    try:
        manifest = read_artifact(home)
    except ArtifactError as error:
        return ReportedArtifact(home.name, None, (_unreadable(home, error),))
    result: Result | None = None
    why: tuple[Fact, ...] = ()
    try:
        result = result_of(home, manifest)
        why = _stale(manifest, result, reference_digest, "run `edgekit verify` again") if result else ()
    except ArtifactError as error:
        why = (_local(error, home),)
    results = (result,) if result is not None and not why else ()
    rows = tuple(_row(manifest, each, place, home) for each in results for place in each.places)
    trials = trials_of(home.parent, home.name)
    return ReportedArtifact(manifest.target, manifest, rows or (_waiting(manifest, why),), results, trials)


def _stale(manifest: Manifest | None, result: Result, reference_digest: str, cure: str) -> tuple[Fact, ...]:
    if manifest is None or result.artifact_sha256 != manifest.sha256:
        return (_text(f"its result belongs to other files than this build's: {cure}"),)
    if reference_digest and result.reference_sha256 != reference_digest:
        return (_text(f"its result belongs to another reference than this build's: {cure}"),)
    return ()


def _unreadable(home: Path, error: ArtifactError, origin: str = "") -> ReportRow:
    return ReportRow(home.name, "", "", "unreadable", (_local(error, home),), origin=origin)


def _waiting(manifest: Manifest, why: tuple[Fact, ...]) -> ReportRow:
    why = why or (_text("it was exported but not judged: run `edgekit verify`"),)
    return ReportRow(manifest.target, manifest.precision, "", "not judged yet", why, size=manifest.size)


def _row(manifest: Manifest, result: Result, place: EvaluationResult, home: Path, origin: str = "") -> ReportRow:
    threads = result.host.get("threads", "")
    arrays = _arrays("scores", [o.name for o in manifest.outputs if o.role == "scores"], manifest, place, home, origin)
    errors = {} if arrays else _arrays("errors", [o.name for o in manifest.outputs], manifest, place, home)
    return ReportRow(
        target=result.target,
        precision=next((v.precision for v in manifest.bundle.variants if v.name == place.variant), result.precision),
        place=place.place,
        status=place.status,
        reasons=place.reasons,
        verdict=place,
        size=result.size,
        first_visit=result.first_visit,
        origin=origin,
        processor=result.host.get("processor", "") + (f", {threads} threads" if threads else ""),
        scores=arrays,
        errors=errors,
    )


def _arrays(
    kind: str, outputs: Sequence[str], manifest: Manifest, place: EvaluationResult, home: Path, origin: str = ""
) -> Mapping[str, Array]:
    """Return arrays of a result's evaluation images by output; on this host only files that the manifest names."""
    safe = place.place.replace("/", "-").replace("\0", "-")
    file = f"{kind}-{safe}.safetensors"
    has_file = bool(origin) or manifest.entry_of(file) is not None
    return tensors(home / file, {name: name for name in outputs if has_file})


def _join(artifacts: list[ReportedArtifact], home: Path, reference_digest: str) -> None:
    """Add an imported result's rows to the artifact of its target, preferably of the same files."""
    try:
        result = read_imported(home)
    except ArtifactError as error:
        artifacts.append(ReportedArtifact(home.name, None, (_unreadable(home, error, home.name),)))
        return
    same = [each for each in artifacts if each.target == result.target]
    exact = [each for each in same if each.manifest is not None and each.manifest.sha256 == result.artifact_sha256]
    own = next(iter(exact or same), None) or ReportedArtifact(result.target, None, ())
    rows = own.rows + tuple(
        _imported_row(own.manifest, result, place, home, reference_digest) for place in result.places
    )
    joined = replace(own, rows=rows, results=(*own.results, result))
    artifacts[:] = [joined if each is own else each for each in artifacts] + ([] if same else [joined])


def _imported_row(
    manifest: Manifest | None, result: Result, place: EvaluationResult, home: Path, reference_digest: str
) -> ReportRow:
    why = _stale(manifest, result, reference_digest, "measure again on that device")
    origin = result.host.get("hardware") or home.name
    if manifest is not None and not why:
        return _row(manifest, result, place, home, origin)
    return ReportRow(result.target, result.precision, place.place, "not verified here", why, origin=origin)


def trials_of(root: Path, target: str) -> tuple[Mapping[str, Any], ...]:
    """Return the recipes that a quantizing target tried; empty if unknown."""
    try:
        trials = load_json(verified_io.read_bytes(root, f"{CACHE}/{target}/{TRIALS}"))
    except (OSError, ValueError):
        return ()
    return tuple(item for item in trials if isinstance(item, dict)) if isinstance(trials, list) else ()


def _text(sentence: str) -> Fact:
    return fact(Code.TEXT, text=sentence)


def _local(error: ArtifactError, home: Path) -> Fact:
    """Return the sentence without this machine's path, so that reports do not depend on the folder."""
    return _text(str(error).replace(f"{home.parent}/", ""))
