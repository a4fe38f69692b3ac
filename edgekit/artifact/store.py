"""Artifacts on disk: folders with a manifest, committed by a rename; only files in the manifest are read.

Writing: a staged folder (`edgekit.storage.files`), every file hashed and read back, the manifest last. A verdict is
committed with its evidence: a copy of the folder with both replaces the old one.

Reading: the manifest carries its own hash, and every file in it is hashed before a runtime opens it, since runtimes do
not detect damage.
"""

from __future__ import annotations

import functools
import mmap
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from edgekit.artifact.manifest import File, Manifest, VerdictSummary
from edgekit.artifact.result import RESULT, Result, parse_result
from edgekit.artifact.run_record import refuse_parts
from edgekit.errors import ArtifactError, UsageError
from edgekit.model.onnx_check import BYTES, RefusalError, Walk
from edgekit.storage import verified_io
from edgekit.storage.files import digest_file, every_path, staging, write_text

MANIFEST = "manifest.json"
ONNX = ".onnx"


def require_build(folder: Path) -> None:
    """Raise unless a folder may be a build: it exists, and is not an artifact.

    Raises:
        UsageError: If it is missing.
        ArtifactError: If it is an artifact.
    """
    if not folder.is_dir():
        raise UsageError(f"'{folder}' is not a folder. Pass a build, for example 'build/arr-coc-tiny'")
    if (folder / MANIFEST).is_file():
        raise ArtifactError(f"'{folder}' is an artifact. Pass its build folder, '{folder.parent}'")


def read_artifact(folder: Path) -> Manifest:
    """Read an artifact's manifest and check every file that it names.

    Raises:
        ArtifactError: If the artifact is missing, its manifest is damaged, or a file differs from it.
    """
    manifest = read_manifest(folder)
    for file in (*manifest.files, *manifest.results):
        try:
            verified_io.check_file(folder, file.path, file.size, file.sha256, alone=True)
        except verified_io.MissingError as error:
            raise ArtifactError(
                f"'{folder / file.path}' {error} although it is in the manifest. Export again"
            ) from error
        except verified_io.RefusedError as error:
            raise ArtifactError(f"'{folder / file.path}' {error}. Export again") from error
    _check_entry(folder, manifest)
    _check_external_data(folder, manifest)
    return manifest


def contents(build: Path) -> dict[str, str]:
    """Return the sha256 of each artifact of a build, by folder."""
    return {home.name: read_artifact(home).sha256 for home in sorted(p.parent for p in build.glob(f"*/{MANIFEST}"))}


def read_file(folder: Path, manifest: Manifest, path: str) -> bytes:
    """Return the bytes of one file of an artifact, checked once more.

    Raises:
        ArtifactError: If it is not in the manifest, or differs from it.
    """
    file = manifest.entry_of(path)
    if file is None:
        raise ArtifactError(f"'{folder / path}' is not in the manifest. Export again")
    try:
        return verified_io.read_file(folder, path, file.size, file.sha256, alone=True)
    except verified_io.RefusedError as error:
        raise ArtifactError(f"'{folder / path}' {error}. Export again") from error


def result_of(folder: Path, manifest: Manifest) -> Result | None:
    """Return an artifact's result; None if it was never judged.

    Raises:
        ArtifactError: If it is damaged.
    """
    if manifest.entry_of(RESULT) is None:
        return None
    return parse_result(read_file(folder, manifest, RESULT), folder / RESULT)


def commit(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest of a staged folder with every file in it, and read all of it back."""
    files = tuple(describe_file(folder, path) for path in _files(folder) if path.name != MANIFEST)
    write_manifest(folder, manifest.model_copy(update={"files": files, "results": ()}))
    return read_artifact(folder)


def amend(
    folder: Path,
    verdicts: Iterable[VerdictSummary],
    results: Mapping[str, bytes] | None = None,
) -> Manifest:
    """Add verdicts and their evidence to a finished artifact in one commit.

    Args:
        folder: The artifact.
        verdicts: One per place.
        results: Files by path: result.json and score maps; they replace those of an earlier judgement.

    Raises:
        ArtifactError: If the artifact is damaged.
    """
    manifest = read_artifact(folder)
    by_place = results or {}
    with staging(folder, every_path) as staged:
        # A reader sees either the old or the new artifact, never a mixture.
        shutil.copytree(folder, staged, symlinks=True, dirs_exist_ok=True)
        for old in manifest.results:
            (staged / old.path).unlink()
        for path, data in by_place.items():
            (staged / path).write_bytes(data)
        update = {
            "verdicts": tuple(verdicts),
            "results": tuple(describe_file(staged, staged / path) for path in sorted(by_place)),
        }
        write_manifest(staged, manifest.model_copy(update=update))
        return read_artifact(staged)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest with its own hash."""
    write_text(folder / MANIFEST, manifest_text(manifest))


def manifest_text(manifest: Manifest) -> str:
    """Return a manifest as JSON text."""
    return verified_io.seal_record(manifest.model_dump(mode="json"))


def own_files(folder: Path) -> Collection[str]:
    """Return the names of edgekit's files in an artifact's folder, even a damaged or an older one.

    Paths are relative. In a folder without a manifest, no file is edgekit's.
    """
    arrays = [path.name for kind in ("scores", "errors") for path in folder.glob(f"{kind}-*.safetensors")]
    # Older manifests do not list the arrays.
    return verified_io.named_files(folder, MANIFEST, RESULT, *arrays)


def describe_file(folder: Path, path: Path) -> File:
    """Return size and hash of one file of a folder, and the sizes of its precompressed siblings."""
    return File(
        path=path.relative_to(folder).as_posix(),
        size=path.stat().st_size,
        sha256=digest_file(path),
        gzip=_size(path.with_name(path.name + ".gz")),
        brotli=_size(path.with_name(path.name + ".br")),
    )


def read_manifest(folder: Path) -> Manifest:
    """Read an artifact's manifest without looking at the files that it names.

    Raises:
        ArtifactError: If it is missing or damaged.
    """
    path = folder / MANIFEST
    try:
        record = verified_io.read_record(folder, MANIFEST, alone=True)
        current, version = Manifest.model_fields["schema_version"].default, record.get("schema_version")
        if version != current:
            raise ArtifactError(
                f"the manifest '{path}' has schema version {version!r}, and this edgekit reads version {current}. "
                "Export again"
            )
        return Manifest.model_validate(record)
    except verified_io.MissingError:
        if path.exists() or path.is_symlink():
            raise ArtifactError(f"the manifest '{path}' is not a regular file. Export again") from None
        refuse_parts(folder)
        refuse_parts(folder.parent)
        if inner := sorted(folder.glob(f"*/{MANIFEST}")):
            raise ArtifactError(
                f"'{folder}' is a build. Pass one of its artifacts, for example '{inner[0].parent}'"
            ) from None
        raise ArtifactError(
            f"no artifact in '{folder}': {MANIFEST} is missing. Export one with `edgekit export`"
        ) from None
    except verified_io.RefusedError as error:
        raise ArtifactError(f"the manifest '{path}' {error}. Export again") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ArtifactError(f"the manifest '{path}' is damaged ('{where}': {first['msg']}). Export again") from error


def _check_entry(folder: Path, manifest: Manifest) -> None:
    """Raise unless the manifest lists all files that a runtime opens: entry, variants and golden vectors."""
    paths = {file.path for file in manifest.files}
    inside = {path for path in paths if path.startswith(f"{manifest.entry}/")}
    for path in (manifest.entry, manifest.bundle.golden, *(variant.path for variant in manifest.bundle.variants)):
        if path and path not in paths and not (path == manifest.entry and inside):
            raise ArtifactError(f"the manifest of '{folder}' has no file {path!r}. Export again")
    if not manifest.entry:
        raise ArtifactError(f"the manifest of '{folder}' has no entry. Export again")
    if inside:
        for found in _files(folder / manifest.entry):
            if found.relative_to(folder).as_posix() not in paths:
                raise ArtifactError(f"'{found}' is not in the manifest. Remove it or export again")


def _check_external_data(folder: Path, manifest: Manifest) -> None:
    """Raise unless the manifest lists the weight files that an ONNX file refers to."""
    paths = {file.path for file in manifest.files}
    for file in manifest.files:
        if file.path.endswith(ONNX):
            home = Path(file.path).parent
            # ONNX Runtime would open any file that the graph names.
            for name in _external_files(folder / file.path, file.sha256):
                if (home / name).as_posix() not in paths:
                    raise ArtifactError(
                        f"'{folder / file.path}' loads weights from {name!r}, which is not in the manifest. Export "
                        "again"
                    )


def _files(folder: Path) -> list[Path]:
    return sorted((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.relative_to(folder).as_posix())


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
_KEY, _VALUE, _LOCATION = 1, 2, b"location"
# Most levels of nested graphs; real ones have two or three.
DEEPEST = 64


@functools.lru_cache(64)
def _external_files(path: Path, sha256: str) -> tuple[str, ...]:
    """Return `external_files` of a file with this hash."""
    return external_files(path)


def external_files(path: Path) -> tuple[str, ...]:
    """Return the names, as an ONNX file gives them, of its files of weights, each once.

    Raises:
        ArtifactError: If the file is not protobuf, or its graphs are nested too deeply.
    """
    if path.stat().st_size == 0:
        return ()
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return tuple(dict.fromkeys(_external(Walk(data), 0, len(data), "model", 0)))
        except RefusalError as error:
            raise ArtifactError(f"'{path}' is not an ONNX file (it {error}). Export again") from error


def _external(walk: Walk, start: int, end: int, kind: str, depth: int) -> Iterator[str]:
    if depth > DEEPEST:
        raise RefusalError(f"has graphs nested more than {DEEPEST} deep")
    inner = _FIELDS[kind]
    for number, wire, begin, stop in walk.split(start, end):
        of = inner.get(number) if wire == BYTES else None
        if of == "entry":
            fields = ((n, b, s) for n, bytes_, b, s in walk.split(begin, stop) if bytes_ == BYTES)
            # A long key is not "location"; skipping it bounds the memory.
            entry = {n: walk.data[b:s] for n, b, s in fields if s - b < 4096 or n == _VALUE}
            if entry.get(_KEY) == _LOCATION:
                yield entry.get(_VALUE, b"").decode("utf-8", "backslashreplace")
        elif of is not None:
            yield from _external(walk, begin, stop, of, depth + 1)
