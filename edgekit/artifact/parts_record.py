"""What a model of several graphs is made of and what was found of it: `parts.json` in its build folder.

Each part is a build of its own in the folder of its name. The record carries a hash of itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgekit.artifact.result import Result
from edgekit.artifact.run_record import PARTS
from edgekit.errors import ArtifactError
from edgekit.storage import door
from edgekit.storage.files import write_text

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
        record = PartsRecord.model_validate(door.read_record(folder, PARTS))
        for name in (*record.hub, *(part.folder for part in record.parts.values())):
            door.require_plain(name)
    except (door.RefusedError, ValidationError) as error:
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
            door.check_file(build / HUB, path, None, sha256)
        except door.RefusedError as error:
            raise ArtifactError(f"'{build / HUB / path}' {error}; export again") from error


def refuse_parts(folder: Path) -> None:
    """Refuse the build of a model of several graphs where that of one graph is needed.

    Raises:
        ArtifactError: Naming a part, or if the record is damaged.
    """
    if os.path.lexists(folder / PARTS):
        part = folder / next(iter(read_parts(folder).parts.values())).folder
        raise ArtifactError(f"'{folder}' holds a model of parts, each a build of its own: name one, as '{part}'")


def rejected_whole(build: Path, target: str) -> bool:
    """Whether a build is a part, and the whole that it belongs to was rejected in a target."""
    if not os.path.lexists(build.parent / PARTS):
        return False
    record = read_parts(build.parent)
    found = record.targets.get(target) if build.name in record.parts else None
    return found is not None and found.status == "rejected"


def write_parts(folder: Path, record: PartsRecord) -> None:
    """Write the record, atomically."""
    write_text(folder / PARTS, door.sealed(record.model_dump(mode="json")))
