"""Files that survive a crash: hashes, atomic writes, staging folders, and sweeping what dead processes left.

Writing: a temporary sibling, every file fsynced, one rename, the parent fsynced. A crash or a kill at any point leaves
the old file or folder, or none; what a dead process left is swept by the next writer. Correctness depends on renames
only, never on a lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from edgekit.errors import UsageError

_CHUNK = 1 << 20


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
