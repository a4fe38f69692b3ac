"""Records of the engine for one artifact in one place, and results of packs, checked before they are judged."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from edgekit.artifact.result import StartUp
from edgekit.errors import ArtifactError, reason
from edgekit.model.spec import Array
from edgekit.storage.files import load_json
from edgekit.storage.verified_io import seal_of

RESULT = "result.json"
LARGEST_RECORD = 8 << 20
LARGEST_ANSWERS = 2 << 30
"""Bytes, unpacked: result.json, and all answers of one artifact in one place."""
# Characters of a text.
LONGEST = 1000
NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$"


def _printable(text: str) -> str:
    if len(text) > LONGEST or not text.isprintable():
        raise ValueError("a text is too long, or has characters that cannot be printed")
    return text


Text = Annotated[str, AfterValidator(_printable)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Measurement(_Record):
    """The engine's record of one artifact in one place, without its answers (`edgekit.evaluate.engine.evaluate`).

    Attributes:
        device: The device, in that host's words.
        failures: The runtime's error for each batch that it could not answer.
        again: Rows with a different second answer, by "<batch> again".
        repeated: Rows that ran twice.
        timed_answers: Answers of timed runs that were compared.
        milliseconds: Every timed run, by the kind of run, or by the baseline that ran in turn with it.
        devices: The device of each of them.
        load: Of the host when the timing began: processes that wanted to run, on average over a minute.
        facts: Further texts, by name.
        notes: Notes of a runtime that timed itself.
        start_up: Needs of a fresh process; None if not measured.
    """

    device: Text = ""
    failures: dict[Text, Text] = {}
    again: dict[Text, tuple[int, ...]] = {}
    repeated: int = Field(default=0, ge=0)
    timed_answers: int = Field(default=0, ge=0)
    milliseconds: dict[Text, tuple[float, ...]] = {}
    devices: dict[Text, Text] = {}
    load: float | None = None
    facts: dict[Text, Text] = {}
    notes: tuple[Text, ...] = ()
    start_up: StartUp | None = None


class Run(Measurement):
    """A run of one artifact of a pack in one of its places.

    `missing` is missing on the host, `error` is the failure; `answers` names the answers in the archive, with sha256.
    """

    place: str = Field(pattern=NAME)
    target: str = Field(pattern=NAME)
    missing: Text = ""
    error: Text = ""
    answers: str = ""
    answers_sha256: str = ""


class _LooseRecord(BaseModel):
    """A part of a pack's record, of which only these fields are used."""

    model_config = ConfigDict(frozen=True)


class _Artifact(_LooseRecord):
    sha256: str


class _Pack(_LooseRecord):
    id: str
    reference_sha256: str
    images: int | None = Field(gt=0)
    artifacts: dict[str, _Artifact]


class _Result(_Record):
    schema_version: Literal[1]
    pack: _Pack
    runs: tuple[Run, ...]
    sha256: str


@dataclass(frozen=True)
class PackResults:
    """A run reported by the other host, its artifact, and answers by `<batch>/<output>`, rows first."""

    run: Run
    artifact_sha256: str
    answers: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class ReturnedResults:
    """A complete result: its pack and reference, the number of images (None: all), and all runs."""

    pack_id: str
    reference_sha256: str
    images: int | None
    runs: tuple[PackResults, ...]


def read_returned_results(path: Path) -> ReturnedResults:
    """Read and check a result archive.

    Raises:
        ArtifactError: If it is damaged, has changed since it was made, or holds an invalid answer.
    """
    if path.exists() and not path.is_file():
        raise ArtifactError(f"'{path}' is not a regular file. Name the result.zip that a pack's runner wrote")
    try:
        with zipfile.ZipFile(path) as archive:
            record = _record(_read_bounded(archive, RESULT, LARGEST_RECORD))
            pack = record.pack
            runs = tuple(
                PackResults(run, pack.artifacts[run.target].sha256, _answers(archive, run) if run.device else {})
                for run in record.runs
            )
            return ReturnedResults(pack.id, pack.reference_sha256, pack.images, runs)
    except FileNotFoundError:
        raise ArtifactError(f"no file '{path}'. Name the result.zip that a pack's runner wrote") from None
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise ArtifactError(f"the result '{path}' cannot be used ({why}). Run the pack again") from error
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError) as error:
        raise ArtifactError(f"the result '{path}' cannot be used ({reason(error)}). Run the pack again") from error


def _record(data: bytes) -> _Result:
    raw = load_json(data)
    if not isinstance(raw, dict):
        raise ValueError("it is not a result")
    record = _Result.model_validate_json(data)
    if seal_of(raw, "sha256") != record.sha256:
        raise ValueError("it has changed since it was made")
    if seal_of(raw["pack"], "id") != record.pack.id:
        raise ValueError("its pack has changed since it was made")
    return record


def _answers(archive: zipfile.ZipFile, run: Run) -> dict[str, Array]:
    data = _read_bounded(archive, run.answers, LARGEST_ANSWERS)
    if hashlib.sha256(data).hexdigest() != run.answers_sha256:
        raise ValueError(f"the answers of {run.target} in {run.place} have changed since they were made")
    with zipfile.ZipFile(io.BytesIO(data)) as inner:
        if sum(entry.file_size for entry in inner.infolist()) > LARGEST_ANSWERS:
            raise ValueError(f"the answers of {run.target} in {run.place} are larger than {LARGEST_ANSWERS} bytes")
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        answers = {name: stored[name] for name in stored.files}
    for name, array in answers.items():
        if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and not np.isfinite(array).all()):
            raise ValueError(f"'{name}' of {run.target} in {run.place} contains a non-numeric value")
    return answers


def _read_bounded(archive: zipfile.ZipFile, name: str, largest: int) -> bytes:
    # Unpacking stops at the declared size.
    if archive.getinfo(name).file_size > largest:
        raise ValueError(f"'{name}' is larger than {largest} bytes")
    return archive.read(name)
