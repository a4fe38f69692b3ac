"""A build folder -> rows: one for each artifact, precision and place, each with a verdict of its own.

Nothing is taken on trust: an artifact whose files are damaged, or whose result is of other files, has no verdict, and
says so. Artifacts that were never judged and results that came from phones are rows as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit.artifact.fact import Code, Fact, fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import RESULT, Result, Verdict
from edgekit.artifact.run_record import AskedTarget, RunRecord, read_run
from edgekit.artifact.store import MANIFEST, read_artifact, result_of
from edgekit.errors import ArtifactError, UsageError
from edgekit.model.spec import Array
from edgekit.reference.info import read_info, tensors
from edgekit.report.imports import IMPORTED, read_imported
from edgekit.report.study import ReportedArtifact, ReportRow, RowStatus, Study
from edgekit.storage import door

TRIALS = Path("cache"), "trials.json"  # what a quantizing target tried, in its own cache


def read_study(folder: Path) -> Study:
    """Read a build folder.

    Raises:
        UsageError: If there is no such folder or no artifact in it.
    """
    if not folder.is_dir():
        raise UsageError(f"'{folder}' is not a folder: name a build, for example 'build/arr-coc-tiny'")
    homes = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}") if not path.parent.name.startswith("."))
    imported = sorted(path for path in folder.glob(f"{IMPORTED}/*") if os.path.lexists(path / RESULT))
    run = read_run(folder)
    if not homes and not imported and not run.targets:
        raise UsageError(f"there is no artifact in '{folder}': make one with `edgekit export`")
    recorded = read_info(folder / "reference")
    artifacts = [_artifact(home, recorded.sha256) for home in homes]
    found = _with_imports(artifacts, imported, recorded.sha256)
    return Study(folder.name, tuple(_with_asked(found, run)), recorded, run)


def _with_asked(artifacts: Sequence[ReportedArtifact], run: RunRecord) -> list[ReportedArtifact]:
    """The artifacts, and what a run asked for and could not make: whatever an earlier run left of it is out of date."""
    found = list(artifacts)
    for target, asked in run.targets.items():
        if asked.status in ("failed", "skipped", "not installed"):
            old = [row for each in found if each.target == target for row in each.rows if row.origin]
            row = ReportRow(target, "", "", asked.status, (_text(asked.error or asked.status),))
            found = [each for each in found if each.target != target]
            found.append(ReportedArtifact(target, None, (row, *old)))
        elif asked.over:
            found = [_held(each, asked) if each.target == target else each for each in found]
    return sorted(found, key=lambda each: each.target)


def _held(found: ReportedArtifact, asked: AskedTarget) -> ReportedArtifact:
    """An artifact with what the last run found over budget; where it is not verified, that comes first."""

    def held(row: ReportRow) -> ReportRow:
        over = asked.over.get(row.place, ())
        status: RowStatus = "over budget" if over and row.status == "verified" else row.status
        return replace(row, status=status, reasons=(*row.reasons, *over))

    return replace(found, rows=tuple(held(row) for row in found.rows))


def _artifact(home: Path, recorded: str) -> ReportedArtifact:
    try:
        manifest = read_artifact(home)
    except ArtifactError as error:
        return ReportedArtifact(
            home.name, None, (ReportRow(home.name, "", "", "unreadable", (_text(_local(error, home)),)),)
        )
    trials = trials_of(home.parent, home.name)
    try:
        found = result_of(home, manifest)
    except ArtifactError as error:
        return ReportedArtifact(
            manifest.target, manifest, (_waiting(manifest, (_text(_local(error, home)),)),), trials=trials
        )
    why = _stale(manifest, found, recorded, "run `edgekit verify` again") if found else ()
    if found is None or why:
        return ReportedArtifact(manifest.target, manifest, (_waiting(manifest, why),), trials=trials)
    rows = tuple(_row(manifest, found, place, home) for place in found.places)
    return ReportedArtifact(manifest.target, manifest, rows or (_waiting(manifest, ()),), (found,), trials)


def _stale(manifest: Manifest | None, found: Result, recorded: str, cure: str) -> tuple[Fact, ...]:
    if manifest is None or found.artifact_sha256 != manifest.sha256:
        return (_text(f"its result is of other files than are here: {cure}"),)
    if recorded and found.reference_sha256 != recorded:
        return (_text(f"it was judged by another reference than the one that is here: {cure}"),)
    return ()


def _waiting(manifest: Manifest, why: tuple[Fact, ...]) -> ReportRow:
    size = next((file.size for file in manifest.files if file.path == manifest.entry), None)
    why = why or (_text("it was exported but not judged: run `edgekit verify`"),)
    return ReportRow(manifest.target, manifest.precision, "", "not judged yet", why, size=size)


def _row(manifest: Manifest | None, found: Result, place: Verdict, home: Path, origin: str = "") -> ReportRow:
    variants = manifest.bundle.variants if manifest else ()
    precision = next((v.precision for v in variants if v.name == place.variant), found.precision)
    outputs = manifest.outputs if manifest else ()
    scores = _arrays("scores", [o.name for o in outputs if o.role == "scores"], manifest, place, home, bool(origin))
    errors = {} if scores else _arrays("errors", [o.name for o in outputs], manifest, place, home)
    threads = found.host.get("threads", "")
    processor = found.host.get("processor", "") + (f", {threads} threads" if threads else "")
    return ReportRow(
        target=found.target,
        precision=precision,
        place=place.place,
        status=place.status,
        reasons=place.reasons,
        found=place,
        size=found.size,
        origin=origin,
        processor=processor,
        scores=scores,
        errors=errors,
    )


def _arrays(
    kind: str, outputs: Sequence[str], manifest: Manifest | None, place: Verdict, home: Path, imported: bool = False
) -> Mapping[str, Array]:
    """Arrays of the evaluation images that lie beside a result, by output: only from a file that the manifest names."""
    safe = place.place.replace("/", "-").replace("\0", "-")
    file = f"{kind}-{safe}.safetensors"
    known = imported or (manifest is not None and manifest.named(file) is not None)
    return tensors(home / file, {name: name for name in outputs if known})


def _with_imports(artifacts: list[ReportedArtifact], imported: list[Path], recorded: str) -> list[ReportedArtifact]:
    joined = list(artifacts)
    for home in imported:
        try:
            found = read_imported(home)
        except ArtifactError as error:
            row = ReportRow(home.name, "", "", "unreadable", (_text(_local(error, home)),), origin=home.name)
            joined.append(ReportedArtifact(home.name, None, (row,)))
        else:
            _join(joined, found, home, recorded)
    return sorted(joined, key=lambda each: each.target)


def _join(artifacts: list[ReportedArtifact], found: Result, home: Path, recorded: str) -> None:
    """Give a result's rows to the artifact that it measured: of its target, and best of its very files."""
    same = [i for i, each in enumerate(artifacts) if each.target == found.target]
    exact = [i for i in same if (m := artifacts[i].manifest) is not None and m.sha256 == found.artifact_sha256]
    where = next(iter(exact or same), None)
    own = artifacts[where] if where is not None else ReportedArtifact(found.target, None, ())
    rows = own.rows + tuple(_imported(own.manifest, found, place, home, recorded) for place in found.places)
    joined = ReportedArtifact(own.target, own.manifest, rows, (*own.results, found), own.trials)
    if where is None:
        artifacts.append(joined)
    else:
        artifacts[where] = joined


def _imported(manifest: Manifest | None, found: Result, place: Verdict, home: Path, recorded: str) -> ReportRow:
    why = _stale(manifest, found, recorded, "measure again on that device")
    origin = found.host.get("hardware") or home.name
    if not why:
        return _row(manifest, found, place, home, origin)
    return ReportRow(found.target, found.precision, place.place, "not verified here", why, origin=origin)


def trials_of(root: Path, target: str) -> tuple[Mapping[str, Any], ...]:
    """What a quantizing target of a build tried; empty where nothing is known."""
    try:
        found = json.loads(door.read_bytes(root, (TRIALS[0] / target / TRIALS[1]).as_posix()))
    except (OSError, ValueError, RecursionError):
        return ()
    return tuple(item for item in found if isinstance(item, dict)) if isinstance(found, list) else ()


def _text(sentence: str) -> Fact:
    return fact(Code.TEXT, text=sentence)


def _local(error: ArtifactError, home: Path) -> str:
    """The sentence without the path of this machine: reports are the same wherever a build lies."""
    return str(error).replace(f"{home.parent}/", "")
