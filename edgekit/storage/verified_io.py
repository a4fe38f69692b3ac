"""The one way in: whatever edgekit reads of a build is checked here before any byte of it is used.

A name must be a plain relative path; what it names must lie in its folder, through no link, and be a regular file of
the size and the sha256 that whoever names it says. The record at the head of such a chain (manifest.json, config.json,
program.json, reference.json) carries a hash of itself and is canonical JSON, so that no byte of it can change unseen.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from edgekit.storage.files import load_json

SEAL = "content_sha256"
"""Field of a record that holds its own hash."""
LARGEST_RECORD = 16 << 20  # bytes; real ones are some KiB
_CHUNK = 1 << 20
_ITS_OWN = {errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO}
"""What is wrong with a file itself; any other error is the host's (no handles, a broken disk) and damages nothing."""


class RefusedError(ValueError):
    """Why a file is not read; the text goes on after its path."""


class MissingError(RefusedError):
    """There is no such file."""


class ChangedError(RefusedError):
    """A record is not as it was written."""


def require_plain(name: str) -> str:
    """See that a name is a plain relative path (POSIX, no `..`, no NUL, no drive).

    Raises:
        RefusedError: If it is not.
    """
    pure = PurePosixPath(name)
    bad = pure.is_absolute() or ".." in pure.parts or any(sign in name for sign in "\\\0:")
    if bad or not pure.parts or str(pure) != name or not name.isprintable():
        raise RefusedError(f"is not a plain relative path: {name!r}")
    return name


def check_file(folder: Path, name: str, size: int | None, sha256: str, alone: bool = False) -> Path:
    """Check one file that a library is going to open by its path.

    Args:
        folder: Where it must lie.
        name: Its path in the folder.
        size: In bytes; None where only the hash was recorded.
        sha256: In hex.
        alone: Whether it may have no second name in the file system (hard link).

    Returns:
        Its path.

    Raises:
        RefusedError: If anything differs.
    """
    with _open_regular(folder, name, alone) as stream:
        if size is not None and os.fstat(stream.fileno()).st_size != size:
            raise RefusedError("is damaged: its size is not what was recorded")
        hashed = hashlib.sha256()
        while chunk := stream.read(_CHUNK):
            hashed.update(chunk)
    if hashed.hexdigest() != sha256:
        raise RefusedError("is damaged: its content is not what was recorded")
    return folder / name


def read_file(folder: Path, name: str, size: int, sha256: str, alone: bool = False) -> bytes:
    """The bytes of a file, checked as `check_file` does.

    Raises:
        RefusedError: If anything differs.
    """
    with _open_regular(folder, name, alone) as stream:
        if os.fstat(stream.fileno()).st_size != size:
            raise RefusedError("is damaged: its size is not what was recorded")
        data = stream.read(size + 1)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RefusedError("is damaged: its content is not what was recorded")
    return data


def read_bytes(folder: Path, name: str, largest: int = LARGEST_RECORD, alone: bool = False) -> bytes:
    """The bytes of a file that nothing names with a hash: a record that carries its own, or one from another device.

    Raises:
        MissingError: If there is none.
        RefusedError: If it is no regular file in its folder, or larger than `largest` bytes.
    """
    with _open_regular(folder, name, alone) as stream:
        data = stream.read(largest + 1)
    if len(data) > largest:
        raise RefusedError(f"is larger than {largest} bytes")
    return data


def read_record(folder: Path, name: str, alone: bool = False) -> dict[str, Any]:
    """A record that carries a hash of itself.

    Raises:
        MissingError: If there is none.
        RefusedError: If it is not as it was written.
    """
    return parse_record(read_bytes(folder, name, alone=alone))


def parse_record(data: bytes) -> dict[str, Any]:
    """A record that carries a hash of itself, from its bytes.

    Raises:
        RefusedError: If it is not as it was written.
    """
    try:
        record = load_json(data)
    except ValueError as error:
        raise RefusedError(f"is damaged ({str(error).splitlines()[0]})") from error
    if not isinstance(record, dict):
        raise RefusedError("is damaged (no record)")
    if not isinstance(record.get(SEAL), str) or not record[SEAL]:
        raise ChangedError("has no hash of itself: an earlier edgekit wrote it, or somebody changed it")
    try:
        same = record[SEAL] == seal_of(record) and _canonical(record).encode() == data
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise ChangedError("is damaged: it is not as it was written")
    return record


def named_files(folder: Path, name: str, *always: str) -> frozenset[str]:
    """The files that a record names under `files` or `results`, damaged or not, with its own and some others.

    For telling whose a folder's files are, never for reading them. Empty where the folder has no such record.
    """
    try:
        record = load_json(read_bytes(folder, name))
        groups = [record["files"], record.get("results", ())]
        paths = {str(row["path"] if isinstance(row, dict) else row) for group in groups for row in group}
    except MissingError:
        return frozenset()
    except (RefusedError, ValueError, KeyError, TypeError, AttributeError):
        paths = set()
    return frozenset({name, *always, *paths})


def seal_record(record: Mapping[str, Any]) -> str:
    """A record as `read_record` takes it: canonical JSON with a hash of itself."""
    return _canonical({**record, SEAL: seal_of(record)})


def seal_of(record: Mapping[str, Any], seal: str = SEAL) -> str:
    """sha256 over all of a record but the field that holds it."""
    rest = {name: value for name, value in record.items() if name != seal}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _canonical(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


@contextlib.contextmanager
def _open_regular(folder: Path, name: str, alone: bool) -> Iterator[BinaryIO]:
    """A regular file in a folder, which no link leads to; opening neither waits for a pipe nor follows a link."""
    require_plain(name)
    path = folder / name
    try:
        if any((folder / parent).is_symlink() for parent in list(PurePosixPath(name).parents)[:-1]):
            raise RefusedError("lies behind a link")
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        if path.is_symlink():
            raise RefusedError("is missing or not a regular file")
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingError("is missing or not a regular file") from None
    except OSError as error:
        if error.errno in _ITS_OWN:
            raise RefusedError(f"cannot be read ({error.strerror})") from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError("is missing or not a regular file")
        if alone and status.st_nlink > 1:
            raise RefusedError("has a second name in the file system (hard link): copy the folder")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            yield stream
    finally:
        os.close(descriptor)


_UNSHOWN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of Unicode: controls (ESC starts a terminal's commands), formats (they can turn the direction of writing
around), halves of surrogate pairs (no file can hold them), separators of lines."""


def visible(text: str, allowed: str = "") -> str:
    r"""Escape non-printable characters as `\x1b` or `\u202e`, but for those in `allowed`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter if letter in allowed or (unicodedata.category(letter) not in _UNSHOWN) else _escape(letter)
        for letter in text
    )


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
