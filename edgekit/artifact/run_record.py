"""What was asked of a build and what became of each target: `run.json` in the build folder.

An artifact that could not be made leaves no folder, so that only this record knows it was asked for. It holds the
command and the time of the last run, belongs to no artifact, and carries a hash of itself. What it says was not made is
shown as such, whatever an earlier run left; what it says is verified is not.
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
PARTS = "parts.json"
"""Of a model of several graphs, whose folder holds a build a part."""
MODEL, PROGRAM, REFERENCE, CACHE = "model", "program", "reference", "cache"
"""Folders of a build beside those of its targets."""
NOT_MADE = ("failed", "skipped", "not installed")
"""States of a target that this record alone knows of: a report shows them whatever artifact an earlier run left."""
State = Literal["verified", "rejected", "not verified here", "failed", "skipped", "not installed", "over budget"]


class TargetStatus(BaseModel):
    """What became of one target.

    Attributes:
        status: How it ended when it was last asked for.
        error: Why it failed, was skipped or could not be tried, in a sentence.
        over: What is over the user's budget, by place.
        part_of: The bundle that it was made for, where no run named it.
        began: When the run began that asked for it last, as `RunRecord.began`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: State
    error: str = ""
    over: dict[str, tuple[Fact, ...]] = {}
    part_of: str = ""
    began: str = ""


class RunRecord(BaseModel):
    """The last run over a build, and what became of every target that any run asked for.

    Attributes:
        command: The command that repeats the last run; empty where it was called from Python with an object.
        edgekit: The version.
        began: Time in UTC, ISO 8601, to the second.
        targets: By name.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    command: str = ""
    edgekit: str = ""
    began: str = ""
    targets: dict[str, TargetStatus] = {}


def read_run(folder: Path) -> RunRecord:
    """The record of a build; an empty one where there is none.

    Raises:
        ArtifactError: If it is not as it was written.
    """
    try:
        return RunRecord.model_validate(verified_io.read_record(folder, RUN))
    except verified_io.MissingError:
        return RunRecord()
    except (verified_io.RefusedError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise ArtifactError(f"'{folder / RUN}' {why}: run `edgekit export` or `edgekit verify` again") from error


def earlier_run(folder: Path) -> RunRecord:
    """The record that a new run goes on from: an empty one where the last one cannot be used."""
    try:
        return read_run(folder)
    except ArtifactError:
        return RunRecord()


def write_run(folder: Path, record: RunRecord, targets: Mapping[str, TargetStatus]) -> None:
    """Write a run's record, atomically; what earlier runs asked for stays in it, unless it was not installed then."""
    earlier = {name: target for name, target in earlier_run(folder).targets.items() if target.status != "not installed"}
    joined = {**earlier, **targets}
    record = record.model_copy(update={"targets": dict(sorted(joined.items()))})
    write_text(folder / RUN, verified_io.seal_record(record.model_dump(mode="json")))


HUB = "hub"
"""Folder of a whole's build with its files for other libraries."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class PartRecord(_Record):
    """A part: its folder in the build, and how often the driver called it with the modules."""

    folder: str
    calls: int


class WholeRecord(_Record):
    """What was found of the whole in a target's artifacts.

    Attributes:
        target: Its name.
        status: How it ended.
        error: Why there is no result, in a sentence.
        artifacts: The hash of each part's artifact, by part.
        result: What was measured; None where a part is bad.
    """

    target: str
    status: str
    error: str = ""
    artifacts: dict[str, str]
    result: Result | None = None


class PartsRecord(_Record):
    """The whole.

    Attributes:
        name: Of the model.
        driver: Where it is defined, as module:name.
        factory: `package.module:function` that makes the model again; empty where it was given in memory.
        code_sha256: Hash of the files of its parts' and its driver's code, and of their libraries' versions.
        inputs: How many the whole was judged on.
        parts: By name.
        targets: What was found, by target.
        hub: Hashes of the files in the folder `hub`, by path there.
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
    """The record of a model of several graphs.

    Raises:
        ArtifactError: If there is none, or it is not as it was written.
    """
    try:
        record = PartsRecord.model_validate(verified_io.read_record(folder, PARTS))
        for name in (*record.hub, *(part.folder for part in record.parts.values())):
            verified_io.require_plain(name)
    except (verified_io.RefusedError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise ArtifactError(f"'{folder / PARTS}' {why}: export the model again") from error
    return record


def check_hub(build: Path, record: PartsRecord) -> None:
    """See that the files in the folder `hub` are those that a record names.

    Raises:
        ArtifactError: If one is missing or differs.
    """
    for path, sha256 in record.hub.items():
        try:
            verified_io.check_file(build / HUB, path, None, sha256)
        except verified_io.RefusedError as error:
            raise ArtifactError(f"'{build / HUB / path}' {error}; export again") from error


def refuse_parts(folder: Path) -> None:
    """Refuse the build of a model of several graphs where that of one graph is needed.

    Raises:
        ArtifactError: Naming a part, or if the record is damaged.
    """
    if os.path.lexists(folder / PARTS):
        part = folder / next(iter(read_parts(folder).parts.values())).folder
        raise ArtifactError(f"'{folder}' holds a model of parts, each a build of its own: name one, as '{part}'")


def is_whole_rejected(build: Path, target: str) -> bool:
    """Whether a build is a part, and the whole that it belongs to was rejected in a target."""
    if not os.path.lexists(build.parent / PARTS):
        return False
    record = read_parts(build.parent)
    outcome = record.targets.get(target) if build.name in record.parts else None
    return outcome is not None and outcome.status == "rejected"


def write_parts(folder: Path, record: PartsRecord) -> None:
    """Write the record, atomically."""
    write_text(folder / PARTS, verified_io.seal_record(record.model_dump(mode="json")))
