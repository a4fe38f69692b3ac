"""Log of a run in its build: the command, the version, the time, and how each target ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from edgekit import registry
from edgekit.artifact.run_record import RunRecord, TargetStatus, earlier_run, write_run
from edgekit.artifact.store import read_artifact
from edgekit.errors import DISTRIBUTION, ArtifactError
from edgekit.pipeline.outcome import TargetOutcome
from edgekit.pipeline.request import Criteria
from edgekit.target import Target


def start_record(command: str, criteria: Criteria = Criteria()) -> RunRecord:
    """Return the record of a run that begins now."""
    from importlib.metadata import version

    began = datetime.now(UTC).isoformat(timespec="seconds")
    budget, limits = tuple(criteria.budget), criteria.limits
    return RunRecord(command=command, edgekit=version(DISTRIBUTION), began=began, budget=budget, limits=limits)


def finish_record(
    root: Path, record: RunRecord, outcomes: Iterable[TargetOutcome], left_out: Mapping[str, str]
) -> None:
    """Write each target's status and the targets not tried; earlier budget facts of other places stay.

    A run that changed nothing and was asked the same leaves the record of the earlier one.
    """
    outcomes, earlier = tuple(outcomes), earlier_run(root)
    targets = earlier.targets
    statuses = {o.target: _status_of(o, targets.get(o.target), record.began) for o in outcomes}
    new = {
        name: why for name, why in left_out.items() if name not in targets or targets[name].status == "not installed"
    }
    missing = {n: TargetStatus(status="not installed", error=why, began=record.began) for n, why in new.items()}
    statuses |= missing
    if not any(o.is_new for o in outcomes):
        last = {n: target for n, target in targets.items() if target.began == earlier.began}
        then = {n: target.model_copy(update={"began": earlier.began}) for n, target in statuses.items()}
        if last == then and record.model_copy(update={"began": earlier.began, "targets": targets}) == earlier:
            return
    write_run(root, record, statuses)


def _status_of(outcome: TargetOutcome, before: TargetStatus | None, began: str) -> TargetStatus:
    places = {place.place for place in outcome.places}
    over = {place: facts for place, facts in before.over.items() if place not in places} if before else {}
    for placed in outcome.over:
        over[placed.place] = (*over.get(placed.place, ()), placed.fact)
    was_reported = before is not None and not before.part_of and before.status != "not installed"
    # A target that an earlier run selected stays selected.
    part_of = "" if was_reported else outcome.part_of
    return TargetStatus.model_validate(
        {"status": outcome.status, "error": outcome.error, "over": over, "part_of": part_of, "began": began}
    )


def part_of(root: Path, name: str, targets: Mapping[str, Target]) -> str:
    """Return the bundle that an artifact was exported for and that leaves it out; empty if selected, or inside.

    The record is not trusted: the bundle must exist, may leave this artifact out, and must not contain it.
    """
    target = earlier_run(root).targets.get(name)
    bundle = target.part_of if target is not None else ""
    if bundle not in targets or name not in targets[bundle].bundle.sources:
        return ""
    try:
        inside = {variant.target for variant in read_artifact(root / bundle).bundle.variants}
    except ArtifactError:
        return ""
    return "" if name in inside else bundle


def missing_requirements(targets: Mapping[str, Target]) -> dict[str, str]:
    """Return the targets that this host cannot export, with the reason of each as a sentence."""
    missing = {}
    for name, target in targets.items():
        needs = registry.missing(target)
        why = "; ".join(f"needs {need.module}: {need.install}" for need in needs) or target.unavailable_reason()
        if why:
            missing[name] = why
    return missing
