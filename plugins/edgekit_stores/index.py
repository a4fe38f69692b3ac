"""The index of a build: every file that edgekit wrote in it, by path, size and sha256. Its own sha256 is the version.

It holds no date or host path of its pushing, so that the same build has the same version wherever it is pushed.
It leaves out files that edgekit did not write (notes, keys), and the `cache` of a build.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from edgekit.artifact.manifest import File, Manifest, Name
from edgekit.artifact.result import Status
from edgekit.artifact.run_record import (
    CACHE,
    HUB,
    MODEL,
    PARTS,
    PROGRAM,
    REFERENCE,
    RUN,
    PartsRecord,
    check_hub,
    read_parts,
    read_run,
)
from edgekit.artifact.store import MANIFEST, read_artifact
from edgekit.errors import ArtifactError, reason
from edgekit.model import records
from edgekit.reference.info import read_info
from edgekit.storage import verified_io
from edgekit.storage.files import digest_bytes, digest_file, dump_json, load_json

BESIDE = {
    "": (RUN, "report.html", "report.json", "report.md", "report.csv", "bom.cdx.json"),
    REFERENCE: ("reference.json", "inputs.safetensors", "outputs.safetensors"),
}
"""Files without a record that names them, by folder."""
HEADS = {MODEL: records.CONFIG, PROGRAM: records.INFO, "imported/*": "seal.json"}
"""Records that name the files of their folder."""
SIGNATURE = "signature"
"""Folder of a build's signature, all of which belongs to it."""
LONGEST_NAME = 200
_PART = r"[A-Za-z0-9_][\w .+@=,()-]*"
# Such as `.git/config` or `.envrc`, which other tools run when they see them.
PLAIN = re.compile(rf"{_PART}(/{_PART})*", re.ASCII)
MOST_FILES, MOST_BYTES = 50_000, 256 << 30


class Index(BaseModel):
    """The contents of a build.

    Attributes:
        name: Name of the model, and of the build's folder.
        began: Start of the last run over it, as in run.json.
        verdicts: The status of each artifact, by target.
        files: Files by path in the build.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=LONGEST_NAME)
    began: Annotated[str, Field(max_length=40)] = ""
    verdicts: dict[Name, Status] = {}
    files: Annotated[tuple[File, ...], Field(max_length=MOST_FILES)]

    @model_validator(mode="after")
    def _one_tree(self) -> Self:
        paths = {file.path for file in self.files}
        folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
        twins = {path.casefold() for path in paths}
        if len(twins) != len(self.files) or paths & folders:
            raise ValueError("it names one path twice")
        if odd := next((path for path in sorted(paths) if not PLAIN.fullmatch(path)), ""):
            raise ValueError(f"it names the hidden or unusual file {odd!r}")
        # No signature covers a cache, in the build or in a part.
        if odd := next((path for path in sorted(paths) if CACHE in path.split("/")[:2]), ""):
            raise ValueError(f"it names the file {odd!r} of a cache")
        if self.size > MOST_BYTES:
            raise ValueError(f"its files have more than {MOST_BYTES >> 30} GiB")
        return self

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def data(self) -> bytes:
        """The stored form of the index."""
        return dump_json(self.model_dump(mode="json", exclude_none=True)).encode()

    @property
    def version(self) -> str:
        """The sha256 of the stored index, in hex."""
        return digest_bytes(self.data)


def read_index(data: bytes) -> Index:
    """Parse a stored index.

    Raises:
        RefusedError: If it is not an index, or names a file outside the build.
    """
    try:
        index = Index.model_validate(load_json(data))
        if index.data != data:
            raise verified_io.RefusedError("is not an index of a build (it has changed since it was written)")
        return index
    except verified_io.RefusedError:
        raise
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise verified_io.RefusedError(f"is not an index of a build ('{where}': {first['msg']})") from error
    except ValueError as error:
        raise verified_io.RefusedError(f"is not an index of a build ({reason(error)})") from error


def index_of(build: Path) -> tuple[Index, tuple[str, ...]]:
    """Return the checked index of a build folder, and the files that are not in it.

    Raises:
        ArtifactError: If the build is missing, or a file is damaged.
    """
    if not (build / MODEL / records.CONFIG).is_file() and os.path.lexists(build / PARTS):
        return _of_whole(build, read_parts(build))
    if not (build / MODEL / records.CONFIG).is_file():
        raise ArtifactError(f"no build in '{build}'. Make one with `edgekit export`")
    artifacts = {
        folder.name: read_artifact(folder)
        for folder in sorted(build.iterdir())
        if not folder.is_symlink() and (folder / MANIFEST).is_file()
    }
    paths = {
        f"{name}/{path}"
        for name, manifest in artifacts.items()
        for path in (MANIFEST, *(file.path for file in (*manifest.files, *manifest.results)))
    }
    paths |= {path for pattern, head in HEADS.items() for path in _of_record(build, pattern, head)}
    beside = (f"{folder}/{name}".lstrip("/") for folder, names in BESIDE.items() for name in names)
    paths |= {path for path in beside if _is_regular(build / path) or (build / path).is_symlink()}
    if damage := read_info(build / REFERENCE).damage if (build / REFERENCE).is_dir() else "":
        raise ArtifactError(f"the reference of '{build}' is damaged: {damage}. Export again")
    paths |= set(_of_signature(build))
    index = Index(
        name=str(records.read_config(build / MODEL)["name"]),
        began=read_run(build).began,
        verdicts={name: _state(manifest) for name, manifest in artifacts.items()},
        files=tuple(_file(build, path) for path in sorted(paths)),
    )
    return index, tuple(path for path in _build_files(build) if path not in paths)


def _of_whole(build: Path, record: PartsRecord) -> tuple[Index, tuple[str, ...]]:
    """Return the index of a composite model: its parts' files, and its verdicts with these artifacts."""
    folders = [part.folder for part in record.parts.values()]
    if link := next((folder for folder in folders if (build / folder).is_symlink()), ""):
        raise ArtifactError(f"'{build / link}' is a link. Put the part itself into the build")
    each, left_out = {}, []
    for folder in folders:
        each[folder], others = index_of(build / folder)
        left_out += [f"{folder}/{path}" for path in others]
    for target, whole in record.targets.items():
        for part, sha256 in whole.artifacts.items():
            if read_artifact(build / record.parts[part].folder / target).sha256 != sha256:
                raise ArtifactError(
                    f"the part '{part}' in '{build}' is not the '{target}' of the whole model's verdict. Export again"
                )
    check_hub(build, record)
    files = [
        file.model_copy(update={"path": f"{folder}/{file.path}"}) for folder, i in each.items() for file in i.files
    ]
    hub = (f"{HUB}/{path}" for path in record.hub)
    files += [_file(build, path) for path in (PARTS, *hub, *_of_signature(build))]
    paths = {file.path for file in files}
    left_out += [path for path in _build_files(build) if path not in paths and path.partition("/")[0] not in folders]
    index = Index(
        name=record.name,
        began=max(record.began for record in each.values()),
        verdicts=_of_targets(record),
        files=tuple(sorted(files, key=lambda file: file.path)),
    )
    return index, tuple(sorted(left_out))


def _of_targets(record: PartsRecord) -> dict[str, Status]:
    """Return the composite model's verdicts by target."""
    return {name: target.result.status for name, target in record.targets.items() if target.result is not None}


def check_files(folder: Path, index: Index) -> None:
    """Check that a folder holds every file of an index, and that its artifacts are complete.

    Raises:
        ArtifactError: If anything differs.
    """
    for file in index.files:
        try:
            verified_io.check_file(folder, file.path, file.size, file.sha256, alone=True)
        except verified_io.RefusedError as error:
            raise ArtifactError(f"'{folder / file.path}' {error}. Remove the folder and pull again") from error
    whole = any(file.path == PARTS for file in index.files)
    name = read_parts(folder).name if whole else str(records.read_config(folder / MODEL)["name"])
    # The index is not signed: by its name alone, another signed model could take this one's place.
    if name != index.name:
        raise ArtifactError(
            f"the index of '{folder}' names the model '{index.name}', but its files are of '{name}'. Do not use them"
        )
    heads = (Path(file.path) for file in index.files if file.path.endswith(f"/{MANIFEST}"))
    homes = [head.parent for head in heads if len(head.parts) == (3 if whole else 2)]
    states = {home.as_posix(): _state(read_artifact(folder / home)) for home in homes}
    states = _of_targets(read_parts(folder)) if whole else states
    if states != index.verdicts:
        raise ArtifactError(f"the index of '{folder}' differs from its manifests. Push the build again")


def _of_signature(build: Path) -> Iterator[str]:
    """Yield the files that signing wrote: the signature, and copies of records that later runs change."""
    for path in sorted((build / SIGNATURE).rglob("*")):
        if _is_regular(path):
            yield path.relative_to(build).as_posix()


def _is_regular(path: Path) -> bool:
    """Return whether a path is a file itself, not a link to one or a pipe that nobody writes to."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _of_record(build: Path, pattern: str, head: str) -> Iterator[str]:
    """Yield the files named by the records of some folders, each checked."""
    for folder in sorted(path.parent for path in build.glob(f"{pattern}/{head}")):
        home, name = folder.relative_to(build).as_posix(), head
        try:
            record: dict[str, Any] = verified_io.read_record(folder, head)
            yield f"{home}/{head}"
            for name, sha256 in record["files"].items():
                verified_io.check_file(folder, name, None, sha256)
                yield f"{home}/{name}"
        except (verified_io.RefusedError, KeyError, AttributeError) as error:
            raise ArtifactError(f"'{folder / name}' {error}. Export again") from error


def _file(build: Path, path: str) -> File:
    file = build / path
    if file.is_symlink() or any((build / part).is_symlink() for part in list(PurePosixPath(path).parents)[:-1]):
        raise ArtifactError(f"'{file}' lies behind a link. Put the file itself into the build")
    return File(path=path, size=file.stat().st_size, sha256=digest_file(file))


def _state(manifest: Manifest) -> Status:
    if manifest.rejected:
        return "rejected"
    return "verified" if any(verdict.status == "verified" for verdict in manifest.verdicts) else "not verified here"


def _build_files(build: Path) -> Iterator[str]:
    """Yield all files of a build except those of its cache and unfinished ones."""
    for path in sorted(build.rglob("*")):
        parts = path.relative_to(build).parts
        if not path.is_dir() and parts[0] != CACHE and not any(part.startswith(".") for part in parts):
            yield "/".join(parts)
