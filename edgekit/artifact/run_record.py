"""What was asked of a build and what became of each target: `run.json` in the build folder.

An artifact that could not be made leaves no folder, so that only this record knows it was asked for. It holds the
command and the time of the last run, belongs to no artifact, and carries a hash of itself. What it says was not made is
shown as such, whatever an earlier run left; what it says is verified is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from edgekit.artifact.fact import Fact
from edgekit.errors import ArtifactError
from edgekit.storage import door
from edgekit.storage.files import write_text

RUN = "run.json"
PARTS = "parts.json"
"""Of a model of several graphs, whose folder holds a build a part."""
MODEL, PROGRAM, REFERENCE, CACHE = "model", "program", "reference", "cache"
"""Folders of a build beside those of its targets."""
NOT_MADE = ("failed", "skipped", "not installed")
"""States of a target that this record alone knows of: a report shows them whatever artifact an earlier run left."""
State = Literal["verified", "rejected", "not verified here", "failed", "skipped", "not installed", "over budget"]


class AskedTarget(BaseModel):
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
    targets: dict[str, AskedTarget] = {}


def read_run(folder: Path) -> RunRecord:
    """The record of a build; an empty one where there is none.

    Raises:
        ArtifactError: If it is not as it was written.
    """
    try:
        return RunRecord.model_validate(door.read_record(folder, RUN))
    except door.MissingError:
        return RunRecord()
    except (door.RefusedError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise ArtifactError(f"'{folder / RUN}' {why}: run `edgekit export` or `edgekit verify` again") from error


def earlier_run(folder: Path) -> RunRecord:
    """The record that a new run goes on from: an empty one where the last one cannot be used."""
    try:
        return read_run(folder)
    except ArtifactError:
        return RunRecord()


def write_run(folder: Path, record: RunRecord, targets: Mapping[str, AskedTarget]) -> None:
    """Write a run's record, atomically; what earlier runs asked for stays in it, unless it was not installed then."""
    earlier = {name: one for name, one in earlier_run(folder).targets.items() if one.status != "not installed"}
    joined = {**earlier, **targets}
    record = record.model_copy(update={"targets": dict(sorted(joined.items()))})
    write_text(folder / RUN, door.sealed(record.model_dump(mode="json")))
