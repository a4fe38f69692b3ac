"""An artifact is a folder with a manifest; the manifest's rename is the commit, and only what it names is trusted.

Writing: a staged folder (`edgekit.storage.files`), every file hashed and read again, the manifest last.

Reading: every file the manifest names is hashed before a runtime sees a byte, since runtimes do not notice damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from edgekit.artifact.manifest import File, Manifest, VerdictInfo
from edgekit.errors import ArtifactError
from edgekit.storage.files import digest_file, dump_json, write_text

MANIFEST = "manifest.json"
_LARGEST_MANIFEST = 4 << 20  # bytes; a real one is a few KiB


def read_artifact(folder: Path, check: bool = True) -> Manifest:
    """Read an artifact's manifest and, unless told otherwise, check every file that it names.

    Raises:
        ArtifactError: If there is no artifact, the manifest is damaged, or a file differs from it.
    """
    path = folder / MANIFEST
    try:
        if path.stat().st_size > _LARGEST_MANIFEST:
            raise ArtifactError(f"the manifest '{path}' is larger than {_LARGEST_MANIFEST} bytes: export again")
        manifest = Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ArtifactError(f"no artifact in '{folder}': it has no {MANIFEST}; make it with `edgekit export`") from None
    except (OSError, ValidationError, ValueError) as error:
        raise ArtifactError(f"the manifest '{path}' is damaged ({_first_line(error)}): export again") from error
    if check:
        for file in manifest.files:
            _check_file(folder, file)
    return manifest


def commit(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest of a staged folder, naming every file in it, and read all of it back."""
    files = tuple(describe_file(folder, path) for path in _files(folder) if path.name != MANIFEST)
    complete = manifest.model_copy(update={"files": files})
    write_text(folder / MANIFEST, dump_json(complete.model_dump(mode="json")))
    return read_artifact(folder)


def amend(folder: Path, verdicts: Iterable[VerdictInfo], proof: Iterable[Mapping[str, int]]) -> Manifest:
    """Enter the verdicts and the proved shapes in a finished artifact's manifest, atomically."""
    manifest = read_artifact(folder, check=False)
    update = {"verdicts": tuple(verdicts), "proof": tuple(dict(sizes) for sizes in proof)}
    amended = manifest.model_copy(update=update)
    if amended != manifest:
        write_text(folder / MANIFEST, dump_json(amended.model_dump(mode="json")))
    return amended


def describe_file(folder: Path, path: Path) -> File:
    """Size and hash of one file of a folder, and the sizes of its precompressed siblings."""
    return File(
        path=path.relative_to(folder).as_posix(),
        size=path.stat().st_size,
        sha256=digest_file(path),
        gzip=_size(path.with_name(path.name + ".gz")),
        brotli=_size(path.with_name(path.name + ".br")),
    )


def _check_file(folder: Path, file: File) -> None:
    path = folder / file.path
    if path.is_symlink() or not path.is_file():
        raise ArtifactError(f"'{path}' is missing or no plain file although the manifest names it: export again")
    if path.stat().st_size != file.size or digest_file(path) != file.sha256:
        raise ArtifactError(f"'{path}' is damaged: its content is not what the manifest names; export again")


def _files(folder: Path) -> list[Path]:
    return sorted((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.relative_to(folder).as_posix())


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
