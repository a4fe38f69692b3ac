"""Difference of two builds of a model, as text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from edgekit.artifact.metric import share
from edgekit.artifact.run_record import MODEL, PROGRAM
from edgekit.errors import EdgekitError
from edgekit.reference.info import OUTPUTS, ReferenceInfo
from edgekit.report.change import SUBJECTS, AllowedChange, Change, Side, changes
from edgekit.report.rows import read_study
from edgekit.report.study import STATUSES, BuildReport
from edgekit.report.text import escape_markdown

SCHEMA_VERSION = 1
# Most changes of one artifact in text and Markdown; the JSON has all.
MOST = 6
ABSENT = "not in the build"
WHOLE = "as it was written"
# A status that makes no claim about the artifact.
NOT_INSTALLED = "not installed"
# Drop of the task metric's mean that fp32 artifacts may have from their model (`edgekit.judge.limits`).
MODEL_DROP = 0.002


@dataclass(frozen=True)
class Difference:
    """Changes between two builds: the worse first, verdicts before measures, the largest change first.

    `notes` are sentences on why the two are hard to compare.
    """

    before: Path
    after: Path
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    @property
    def worse(self) -> tuple[Change, ...]:
        """Changes for the worse."""
        return tuple(change for change in self.changes if not change.better)

    @property
    def better(self) -> tuple[Change, ...]:
        """Changes for the better."""
        return tuple(change for change in self.changes if change.better)

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines for the terminal: at most MOST of each artifact and direction, then the number of the others."""
        if not self.changes:
            return (*self.notes, "nothing became better or worse")
        lines = list(self.notes)
        for artifact, better, listed in self._sorted_changes():
            lines += [f"{'better' if better else 'WORSE'}\t{change.sentence}" for change in listed[:MOST]]
            lines += [f"\t{artifact}: and {len(listed) - MOST} more, in --json"] if len(listed) > MOST else []
        return (*lines, f"{len(self.worse)} worse, {len(self.better)} better")

    def as_record(self) -> dict[str, Any]:
        """Return the record that `edgekit diff --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "before": str(self.before),
            "after": str(self.after),
            "worse": len(self.worse),
            "better": len(self.better),
            "notes": list(self.notes),
            "changes": [change.as_record() for change in self.changes],
        }

    def as_markdown(self) -> str:
        """Return a table for a pull request, the worse first."""
        if not self.changes:
            return "Nothing became better or worse.\n"
        lines = [f"**{len(self.worse)} worse, {len(self.better)} better** than `{self.before}`", ""]
        lines += [f"> {escape_markdown(note)}\n" for note in self.notes]
        lines += ["| | artifact | what | before | after | limit | image |", "|---|---|---|---:|---:|---:|---|"]
        listed_changes = [change for _, _, listed in self._sorted_changes() for change in listed[:MOST]]
        for change in listed_changes:
            what = " ".join(part for part in (change.subject, change.what) if part)
            cells = (change.artifact, what, change.before, change.after, change.limit, change.image)
            lines.append(f"| {'✅' if change.better else '❌'} | {' | '.join(map(escape_markdown, cells))} |")
        hidden = len(self.changes) - len(listed_changes)
        lines += [f"\nand {hidden} more in `edgekit diff --json`"] if hidden else []
        return "\n".join(lines) + "\n"

    def _sorted_changes(self) -> Iterator[tuple[str, bool, list[Change]]]:
        """Yield artifact, direction and changes, the worse first."""
        for (better, artifact), listed in groupby(self.changes, lambda change: (change.better, change.artifact)):
            yield artifact, better, list(listed)


def compare_builds(before: Path, after: Path, allowed: AllowedChange | None = None) -> Difference:
    """Compare two builds by artifact, place, image and metric; leave out changes within `allowed`.

    Raises:
        UsageError: If one of them is not a build.
    """
    old, new = read_study(before), read_study(after)
    ordered = [*_damages(_damage(before, old), _damage(after, new)), *_changes(old, new, allowed or AllowedChange())]
    ordered.sort(key=lambda c: (c.better, c.artifact, SUBJECTS.index(c.subject), -c.extent, c.image))
    return Difference(before, after, tuple(ordered), tuple(_notes(old, new)))


def _damages(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for part in old.keys() | new.keys():
        was, now = (damage.get(part, WHOLE) for damage in (old, new))
        if was != now:
            yield Change(part, "verdict", now == WHOLE, "", was, now)


def _damage(folder: Path, study: BuildReport) -> dict[str, str]:
    """Return the damage of the parts that a build's artifacts rest on, one sentence each."""
    from edgekit.model.records import read_config, require_whole

    damage = {"the reference": study.reference.damage} if study.reference.damage else {}
    for part, check, home in (("the model", read_config, MODEL), ("the program", require_whole, PROGRAM)):
        try:
            if (folder / home).exists():
                check(folder / home)
        except EdgekitError as error:
            damage[part] = str(error).replace(f"{folder}/", "")
    return damage


def _changes(old: BuildReport, new: BuildReport, allowed: AllowedChange) -> Iterator[Change]:
    yield from _model(old.reference, new.reference)
    was, now = _sides(old), _sides(new)
    for label, side in was.items():
        counterparts = _counterparts(side, now)
        for counterpart in counterparts:
            yield from changes(side, counterpart, allowed)
        if not counterparts and side.row.status != NOT_INSTALLED:
            yield Change(label, "verdict", False, "", side.row.status, ABSENT)
    for label, side in now.items():
        if not _counterparts(side, was) and side.row.status != NOT_INSTALLED:
            good = STATUSES[side.row.status].rank < STATUSES["rejected"].rank
            yield Change(label, "verdict", good, "", ABSENT, side.row.status)


def _counterparts(side: Side, others: Mapping[str, Side]) -> list[Side]:
    """Return the same place in the other build; an unjudged artifact without a place matches all places."""
    row = side.row
    if row.label in others:
        return [others[row.label]]
    same = [other for other in others.values() if (other.row.target, other.row.origin) == (row.target, row.origin)]
    return same if not row.place else [other for other in same if not other.row.place]


def _model(old: ReferenceInfo, new: ReferenceInfo) -> Iterator[Change]:
    """Yield a change of the model's own task metric: artifacts are only compared with their own model."""
    before, after = old.evaluation, new.evaluation
    if before.metric != after.metric or before.mean is None or after.mean is None:
        return
    moved = after.mean - before.mean
    if abs(moved) > MODEL_DROP:
        words = share(before.mean), share(after.mean), f"{-MODEL_DROP:+g}"
        yield Change("the model itself", "accuracy", moved > 0, before.metric, *words, extent=abs(moved) / MODEL_DROP)


def _sides(study: BuildReport) -> Mapping[str, Side]:
    reference = study.reference_outputs()
    return {row.label: Side(row, study.reference, reference) for row in study.rows}


def _notes(old: BuildReport, new: BuildReport) -> Iterator[str]:
    if old.reference.weights_sha256 != new.reference.weights_sha256:
        yield "the weights differ, so each build is compared with its own model's outputs"
    if old.reference.device != new.reference.device:
        yield f"the references were made by different devices: {old.reference.device} and {new.reference.device}"
    elif old.reference.files.get(OUTPUTS) != new.reference.files.get(OUTPUTS):
        yield "the references hold different outputs from the same device"
    hosts = [sorted({row.processor for row in study.rows if row.processor}) for study in (old, new)]
    if all(hosts) and hosts[0] != hosts[1]:
        hosts_text = f"{'; '.join(hosts[0])} and {'; '.join(hosts[1])}"
        yield f"the builds were judged on different hosts, so their speeds are not compared: {hosts_text}"
