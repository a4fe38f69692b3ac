"""An artifact is a folder with a manifest; the manifest's rename is the commit, and only what it names is trusted.

Writing: a temporary sibling folder, every file fsynced, hashed and read again, the manifest last, one rename, the
parent fsynced. A crash or a kill at any point leaves the old artifact or none; what a dead process left is swept by the
next writer. Correctness depends on renames only, never on a lock.

Reading: every file the manifest names is hashed before a runtime sees a byte, since runtimes do not notice damage.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from edgekit.errors import ArtifactError, UsageError
from edgekit.manifest import File, Manifest, VerdictInfo

MANIFEST = "manifest.json"
_CHUNK = 1 << 20
_LARGEST_MANIFEST = 4 << 20  # bytes; a real one is a few KiB


def digest_text(text: str) -> str:
    """sha256 of a text's UTF-8 bytes, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_file(path: Path) -> str:
    """sha256 of a file, in hex."""
    hashed = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            hashed.update(chunk)
    return hashed.hexdigest()


def dump_json(value: object) -> str:
    """JSON as edgekit writes it: sorted keys, two spaces, a newline at the end, no NaN."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def read(folder: Path, check: bool = True) -> Manifest:
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


@contextlib.contextmanager
def staging(final: Path) -> Iterator[Path]:
    """A temporary sibling of `final` that replaces it when the block ends well, and vanishes when it does not.

    Raises:
        UsageError: If the folder cannot be written.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        sweep(final.parent)
        temporary = final.parent / f".{final.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
        temporary.mkdir()
    except OSError as error:
        why = f"cannot write to '{final.parent}' ({error.strerror}): choose another folder with -o"
        raise UsageError(why) from error
    try:
        yield temporary
        _fsync_tree(temporary)
        _swap(temporary, final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def commit(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest of a staged folder, naming every file in it, and read all of it back."""
    files = tuple(describe(folder, path) for path in _files(folder) if path.name != MANIFEST)
    complete = manifest.model_copy(update={"files": files})
    write_text(folder / MANIFEST, dump_json(complete.model_dump(mode="json")))
    return read(folder)


def amend(folder: Path, verdicts: Iterable[VerdictInfo], proof: Iterable[Mapping[str, int]]) -> Manifest:
    """Enter the verdicts and the proved shapes in a finished artifact's manifest, atomically."""
    manifest = read(folder, check=False)
    update = {"verdicts": tuple(verdicts), "proof": tuple(dict(sizes) for sizes in proof)}
    amended = manifest.model_copy(update=update)
    if amended != manifest:
        write_text(folder / MANIFEST, dump_json(amended.model_dump(mode="json")))
    return amended


def describe(folder: Path, path: Path) -> File:
    """Size and hash of one file of a folder, and the sizes of its precompressed siblings."""
    return File(
        path=path.relative_to(folder).as_posix(),
        size=path.stat().st_size,
        sha256=digest_file(path),
        gzip=_size(path.with_name(path.name + ".gz")),
        brotli=_size(path.with_name(path.name + ".br")),
    )


def write_text(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old or the new one, also after a crash."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old or the new one, also after a crash."""
    temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _fsync(path.parent)


def sweep(parent: Path) -> None:
    """Remove temporary folders and files that dead processes left in a folder; put a half-swapped artifact back."""
    for left in parent.glob(".*.tmp"):
        parts = left.name.split(".")
        if len(parts) >= 5 and parts[-3].isdigit() and not _alive(int(parts[-3])):
            _remove(left)
    for left in parent.glob(".*.old"):
        parts = left.name.split(".")
        if len(parts) >= 5 and parts[-3].isdigit() and not _alive(int(parts[-3])):
            final = parent / ".".join(parts[1:-3])
            if final.exists():
                _remove(left)
            else:
                left.replace(final)


def _swap(temporary: Path, final: Path) -> None:
    # A folder cannot be renamed over a full one: the old one steps aside first. A kill between the two renames leaves
    # none in place, and `sweep` puts the old one back.
    aside = final.parent / f".{final.name}.{os.getpid()}.{secrets.token_hex(4)}.old"
    if final.exists():
        final.replace(aside)
    temporary.replace(final)
    _fsync(final.parent)
    _remove(aside)


def _check_file(folder: Path, file: File) -> None:
    path = folder / file.path
    if path.is_symlink() or not path.is_file():
        raise ArtifactError(f"'{path}' is missing or no plain file although the manifest names it: export again")
    if path.stat().st_size != file.size or digest_file(path) != file.sha256:
        raise ArtifactError(f"'{path}' is damaged: its content is not what the manifest names; export again")


def _files(folder: Path) -> list[Path]:
    return sorted((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.relative_to(folder).as_posix())


def _fsync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        _fsync(path)
    _fsync(folder)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
