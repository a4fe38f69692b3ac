"""A build folder -> rows: one for each artifact, precision and place, each with a verdict of its own.

Nothing is taken on trust: an artifact whose files are damaged, or whose result is of other files, has no verdict, and
says so. Artifacts that were never judged and results that came from phones are rows as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from edgekit.artifact.fact import EVALUATION, Code, Fact, fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.metric import metric_info
from edgekit.artifact.result import CANDIDATE, RESULT, Measure, PlaceResult, Ratio, Result, Timing
from edgekit.artifact.store import MANIFEST, read_artifact, result_of
from edgekit.errors import ArtifactError, UsageError
from edgekit.model.spec import Array
from edgekit.reference.info import ReferenceInfo, read_info, tensors
from edgekit.report.imports import IMPORTED, read_imported

RowStatus = Literal["verified", "rejected", "not verified here", "not judged yet", "unreadable"]
STATUSES: tuple[RowStatus, ...] = ("verified", "rejected", "not verified here", "not judged yet", "unreadable")

TRIALS = Path("cache"), "trials.json"  # what a quantizing target tried, in its own cache


@dataclass(frozen=True, eq=False)
class ReportRow:
    """One artifact at one precision in one place.

    Attributes:
        target: What made the artifact.
        precision: Of this variant.
        place: Where it ran; empty where it never did.
        status: The verdict, or why there is none.
        reasons: Why it is not verified.
        found: Everything that was found there.
        size: Bytes of the entry file; None where unknown.
        origin: Folder of an imported result; empty for this host's own.
        processor: Of the host that judged, with its threads; empty where unknown.
        scores: Outputs with the role "scores" over the evaluation images, [n, N] each, where they were kept.
    """

    target: str
    precision: str
    place: str
    status: RowStatus
    reasons: tuple[Fact, ...] = ()
    found: PlaceResult | None = None
    size: int | None = None
    origin: str = ""
    processor: str = ""
    scores: Mapping[str, Array] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Target and place, unique in a report."""
        return " · ".join(part for part in (self.target, self.place, self.origin) if part)

    @property
    def device(self) -> str:
        """What ran it, in words."""
        return self.found.device if self.found else ""

    @property
    def qualifier(self) -> str:
        """What must stand beside the word verified; empty where the model has an evaluation set."""
        return self.found.qualifier if self.found else ""

    @property
    def notes(self) -> tuple[Fact, ...]:
        """What a reader should know."""
        return self.found.notes if self.found else ()

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Every number."""
        return self.found.measures if self.found else ()

    @property
    def failed(self) -> tuple[Measure, ...]:
        """The numbers that did not hold."""
        return tuple(measure for measure in self.measures if not measure.passed)

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """Against each baseline."""
        return self.found.ratios if self.found else ()

    @property
    def timing(self) -> Timing | None:
        """Its own latency."""
        return self.found.timings.get(CANDIDATE) if self.found else None

    @property
    def slower(self) -> bool:
        """Whether it was measured to be slower than the artifact it was made from."""
        return any(note.code is Code.SLOWER for note in self.notes)

    def worst(self, *metrics: str) -> Measure | None:
        """The evaluation measure of the first of these metrics that was measured: of scores before other outputs."""
        ranked = {measure.output for measure in self.measures if measure.metric == "spearman"}
        for metric in metrics:
            found = [m for m in self.measures if m.batch == EVALUATION and m.metric == metric]
            found = [m for m in found if m.output in ranked] or found
            if found:
                sign = metric_info(metric).sign
                return max(found, key=lambda m: (m.value is None, sign * (m.value or 0.0)))
        return None

    @property
    def error(self) -> Measure | None:
        """The largest error: of scores absolute, of other outputs relative to their peak."""
        largest = self.worst("max abs")
        if largest is not None and largest.limit is None and not any(m.metric == "spearman" for m in self.measures):
            return self.worst("relative") or largest
        return largest

    @property
    def drop(self) -> Measure | None:
        """The drop of the task metric's mean, whatever the metric's name."""
        return next((m for m in self.measures if m.batch == EVALUATION and m.metric.endswith(" drop")), None)


@dataclass(frozen=True, eq=False)
class ReportedArtifact:
    """One artifact folder with its rows; the manifest is None where it is damaged."""

    target: str
    manifest: Manifest | None
    rows: tuple[ReportRow, ...]
    results: tuple[Result, ...] = ()
    trials: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, eq=False)
class Study:
    """One build folder."""

    name: str
    artifacts: tuple[ReportedArtifact, ...]
    reference: ReferenceInfo

    @property
    def rows(self) -> tuple[ReportRow, ...]:
        """Every row, in order of target, origin and place."""
        return tuple(row for found in self.artifacts for row in found.rows)

    def count(self, status: RowStatus) -> int:
        """How many rows have a status."""
        return sum(row.status == status for row in self.rows)


def read_study(folder: Path) -> Study:
    """Read a build folder.

    Raises:
        UsageError: If there is no such folder or no artifact in it.
    """
    if not folder.is_dir():
        raise UsageError(f"'{folder}' is not a folder: name a build, for example 'build/arr-coc-tiny'")
    homes = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}") if not path.parent.name.startswith("."))
    imported = sorted(path for path in folder.glob(f"{IMPORTED}/*") if os.path.lexists(path / RESULT))
    if not homes and not imported:
        raise UsageError(f"there is no artifact in '{folder}': make one with `edgekit export`")
    recorded = read_info(folder / "reference")
    artifacts = [_artifact(home, recorded.sha256) for home in homes]
    return Study(folder.name, tuple(_with_imports(artifacts, imported, recorded.sha256)), recorded)


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


def _row(manifest: Manifest | None, found: Result, place: PlaceResult, home: Path, origin: str = "") -> ReportRow:
    variants = manifest.variants if manifest else ()
    precision = next((v.precision for v in variants if v.name == place.variant), found.precision)
    outputs = [o.name for o in manifest.outputs if o.role == "scores"] if manifest else []
    safe = place.place.replace("/", "-").replace("\0", "-")
    file = f"scores-{safe}.safetensors"
    known = bool(origin) or (manifest is not None and manifest.named(file) is not None)
    scores = tensors(home / file, {name: name for name in outputs if known})
    threads = found.host.get("threads", "")
    processor = found.host.get("processor", "") + (f", {threads} threads" if threads else "")
    return ReportRow(
        found.target, precision, place.place, place.status, place.reasons, place, found.size, origin, processor, scores
    )


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


def _imported(manifest: Manifest | None, found: Result, place: PlaceResult, home: Path, recorded: str) -> ReportRow:
    why = _stale(manifest, found, recorded, "measure again on that device")
    if not why:
        return _row(manifest, found, place, home, home.name)
    return ReportRow(found.target, found.precision, place.place, "not verified here", why, origin=home.name)


def trials_of(root: Path, target: str) -> tuple[Mapping[str, Any], ...]:
    """What a quantizing target of a build tried; empty where nothing is known."""
    path = root / TRIALS[0] / target / TRIALS[1]
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ()
    return tuple(item for item in found if isinstance(item, dict)) if isinstance(found, list) else ()


def _text(sentence: str) -> Fact:
    return fact(Code.TEXT, text=sentence)


def _local(error: ArtifactError, home: Path) -> str:
    """The sentence without the path of this machine: reports are the same wherever a build lies."""
    return str(error).replace(f"{home.parent}/", "")
