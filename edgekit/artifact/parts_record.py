"""What a model of several graphs is made of and what was found of it: `parts.json` in its build folder.

Each part is a build of its own in the folder of its name. The record carries a hash of itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgekit.artifact.result import Result
from edgekit.artifact.run_record import PARTS
from edgekit.errors import ArtifactError
from edgekit.storage import door
from edgekit.storage.files import write_text


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
        inputs: How many the whole was judged on.
        parts: By name.
        targets: What was found, by target.
        hub: Hashes of the files in the folder `hub`, by path there.
    """

    schema_version: Literal[1] = 1
    name: str
    driver: str
    factory: str = ""
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


def write_parts(folder: Path, record: PartsRecord) -> None:
    """Write the record, atomically."""
    write_text(folder / PARTS, door.sealed(record.model_dump(mode="json")))
