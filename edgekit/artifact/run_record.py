"""Record of a build's runs and of each target's status: `run.json` in the build folder.

A failed export leaves no folder, so only this record knows of it. The record has the command and the time of the last
run, belongs to no artifact, and carries its own hash. A target recorded as not exported is shown as such, whatever an
earlier run left. A target recorded as verified is still checked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgekit.artifact.fact import Fact
from edgekit.artifact.result import Result
from edgekit.errors import ArtifactError
from edgekit.storage import verified_io
from edgekit.storage.files import write_text

RUN = "run.json"
# Record of a model of several graphs, whose folder has one build per part.
PARTS = "parts.json"
# Folders of a build in addition to those of its targets.
MODEL, PROGRAM, REFERENCE, CACHE = "model", "program", "reference", "cache"
# States that only this record knows: a report shows them whatever artifact an earlier run left.
NOT_MADE = ("failed", "skipped", "not installed")
State = Literal["verified", "rejected", "not verified here", "failed", "skipped", "not installed", "over budget"]


class TargetStatus(BaseModel):
    """Status of one target.

    Attributes:
        status: Its status in the last run that selected it.
        error: Sentence why it failed, was skipped or could not be tried.
        over: Budget violations, by place.
        part_of: The bundle that it was exported for; empty if a run selected it.
        began: Start of the last run that selected it, as in `RunRecord.began`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: State
    error: str = ""
    over: dict[str, tuple[Fact, ...]] = {}
    part_of: str = ""
    began: str = ""


class RunRecord(BaseModel):
    """The last run over a build, and the status of every target that any run selected.

    Attributes:
        command: The command that repeats the last run; empty for a call from Python with an object.
        edgekit: Version of edgekit.
        began: Time in UTC, ISO 8601, to the second.
        budget: The user's budgets, as text.
        limits: "all", or "task" if the user's own inputs and metric suffice.
        targets: Status of each target by name.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    command: str = ""
    edgekit: str = ""
    began: str = ""
    budget: tuple[str, ...] = ()
    limits: str = "all"
    targets: dict[str, TargetStatus] = {}


def read_run(folder: Path) -> RunRecord:
    """Return the record of a build; an empty one if there was no run.

    Raises:
        ArtifactError: If it was changed.
    """
    try:
        return RunRecord.model_validate(verified_io.read_record(folder, RUN))
    except verified_io.MissingError:
        return RunRecord()
    except (verified_io.RefusedError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise ArtifactError(f"'{folder / RUN}' {why}. Run `edgekit export` or `edgekit verify` again") from error


def earlier_run(folder: Path) -> RunRecord:
    """Return the record of the last run; an empty one if it is unusable."""
    try:
        return read_run(folder)
    except ArtifactError:
        return RunRecord()


def write_run(folder: Path, record: RunRecord, targets: Mapping[str, TargetStatus]) -> None:
    """Write a run's record, atomically; keep the targets of earlier runs unless they were not installed."""
    earlier = {name: target for name, target in earlier_run(folder).targets.items() if target.status != "not installed"}
    joined = {**earlier, **targets}
    record = record.model_copy(update={"targets": dict(sorted(joined.items()))})
    write_text(folder / RUN, verified_io.seal_record(record.model_dump(mode="json")))


# Folder of a composite build with files for other libraries.
HUB = "hub"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class PartRecord(_Record):
    """A part: its folder in the build, and the driver's number of calls with the modules."""

    folder: str
    calls: int


class WholeRecord(_Record):
    """Result of the whole for one target.

    Attributes:
        target: Its name.
        status: Its status.
        error: Sentence why the result is missing.
        artifacts: The hash of each part's artifact, by part.
        result: The result; None if a part is bad.
    """

    target: str
    status: str
    error: str = ""
    artifacts: dict[str, str]
    result: Result | None = None


class PartsRecord(_Record):
    """Record of a composite model.

    Attributes:
        name: Name of the model.
        driver: Its definition, as module:name.
        factory: `package.module:function` that rebuilds the model; empty for a model in memory.
        code_sha256: Hash of the files of its parts' and its driver's code, and of their libraries' versions.
        inputs: Number of inputs that the whole was judged on.
        parts: Parts by name.
        targets: Results by target.
        hub: Hashes of the files in the folder `hub`, by path.
    """

    schema_version: Literal[1] = 1
    name: str
    driver: str
    factory: str = ""
    code_sha256: str = ""
    inputs: int
    parts: dict[str, PartRecord] = Field(min_length=1)
    targets: dict[str, WholeRecord]
    hub: dict[str, str] = {}


def read_parts(folder: Path) -> PartsRecord:
    """Return the record of a model of several graphs.

    Raises:
        ArtifactError: If it is missing or was changed.
    """
    try:
        record = PartsRecord.model_validate(verified_io.read_record(folder, PARTS))
        for name in (*record.hub, *(part.folder for part in record.parts.values())):
            verified_io.require_plain(name)
    except (verified_io.RefusedError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise ArtifactError(f"'{folder / PARTS}' {why}. Export the model again") from error
    return record


def check_hub(build: Path, record: PartsRecord) -> None:
    """Check that the files in the folder `hub` match a record.

    Raises:
        ArtifactError: If one is missing or differs.
    """
    for path, sha256 in record.hub.items():
        try:
            verified_io.check_file(build / HUB, path, None, sha256)
        except verified_io.RefusedError as error:
            raise ArtifactError(f"'{build / HUB / path}' {error}. Export again") from error


def refuse_parts(folder: Path) -> None:
    """Raise for the build of a composite model if that of a single graph is needed.

    Raises:
        ArtifactError: With a part's folder, or if the record is damaged.
    """
    if os.path.lexists(folder / PARTS):
        part = folder / next(iter(read_parts(folder).parts.values())).folder
        raise ArtifactError(
            f"'{folder}' is the build of a model of parts. Pass the build of one part, for example '{part}'"
        )


def is_whole_rejected(build: Path, target: str) -> bool:
    """Return whether a build is a part of a whole that was rejected for a target."""
    if not os.path.lexists(build.parent / PARTS):
        return False
    record = read_parts(build.parent)
    outcome = record.targets.get(target) if build.name in record.parts else None
    return outcome is not None and outcome.status == "rejected"


def write_parts(folder: Path, record: PartsRecord) -> None:
    """Write the record, atomically."""
    write_text(folder / PARTS, verified_io.seal_record(record.model_dump(mode="json")))
