"""The single entry for files of a build: everything is checked here before use.

A name must be a plain relative path. Its file must lie in its folder, not behind a link, and be a regular file with the
recorded size and sha256. The first record of such a chain (manifest.json, config.json, program.json, reference.json)
contains its own hash and is canonical JSON, so that no byte of it can change unnoticed.
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
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any

from edgekit.storage.files import digest_stream, load_json

SEAL = "content_sha256"
"""Field of a record that holds its own hash."""
# In bytes. Real ones have some KiB.
LARGEST_RECORD = 16 << 20
_ITS_OWN = {errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO}
"""Errors of the file itself; any other error is the host's (no handles, a broken disk) and does not mean damage."""


class RefusedError(ValueError):
    """Reason to refuse a file; the text continues a sentence that begins with its path."""


class MissingError(RefusedError):
    """A missing file."""


class ChangedError(RefusedError):
    """A record that has changed since it was written."""


def require_plain(name: str) -> str:
    """Check that a name is a plain relative path (POSIX, no `..`, no NUL, no drive).

    Raises:
        RefusedError: If it is not.
    """
    pure = PurePosixPath(name)
    bad = pure.is_absolute() or ".." in pure.parts or any(sign in name for sign in "\\\0:")
    if bad or not pure.parts or str(pure) != name or not name.isprintable():
        raise RefusedError(f"is not a plain relative path: {name!r}")
    return name


def check_file(folder: Path, name: str, size: int | None, sha256: str, alone: bool = False) -> Path:
    """Check a file before a library opens it by its path.

    Args:
        folder: Folder that must contain it.
        name: Its path in the folder.
        size: In bytes; None if only the hash was recorded.
        sha256: In hex.
        alone: True to refuse a second name in the file system (hard link).

    Returns:
        Its path.

    Raises:
        RefusedError: If anything differs.
    """
    with _open_regular(folder, name, alone) as stream:
        if size is not None and os.fstat(stream.fileno()).st_size != size:
            raise RefusedError("is damaged: its size differs from the record")
        digest = digest_stream(stream)
    if digest != sha256:
        raise RefusedError("is damaged: its content differs from the record")
    return folder / name


def read_file(folder: Path, name: str, size: int, sha256: str, alone: bool = False) -> bytes:
    """Return the bytes of a file, checked as `check_file` does.

    Raises:
        RefusedError: If anything differs.
    """
    with _open_regular(folder, name, alone) as stream:
        if os.fstat(stream.fileno()).st_size != size:
            raise RefusedError("is damaged: its size differs from the record")
        data = stream.read(size + 1)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RefusedError("is damaged: its content differs from the record")
    return data


def read_bytes(folder: Path, name: str, largest: int = LARGEST_RECORD, alone: bool = False) -> bytes:
    """Return the bytes of a file without a recorded hash: it contains its own, or comes from another device.

    Raises:
        MissingError: If it does not exist.
        RefusedError: If it is not a regular file in its folder, or larger than `largest` bytes.
    """
    with _open_regular(folder, name, alone) as stream:
        data = stream.read(largest + 1)
    if len(data) > largest:
        raise RefusedError(f"is larger than {largest} bytes")
    return data


def read_named(path: Path, largest: int) -> bytes:
    """Return the bytes of a small file that the user names, such as a mounted secret, which may be a link.

    Raises:
        RefusedError: If it is missing, not a regular file, or larger than `largest` bytes.
    """
    path = path.resolve()
    return read_bytes(path.parent, path.name, largest)


def read_record(folder: Path, name: str, alone: bool = False) -> dict[str, Any]:
    """Return a record that contains its own hash.

    Raises:
        MissingError: If it does not exist.
        RefusedError: If it has changed since it was written.
    """
    return parse_record(read_bytes(folder, name, alone=alone))


def parse_record(data: bytes) -> dict[str, Any]:
    """Return a record that contains its own hash, from its bytes.

    Raises:
        RefusedError: If it has changed since it was written.
    """
    try:
        record = load_json(data)
    except ValueError as error:
        raise RefusedError(f"is damaged ({str(error).splitlines()[0]})") from error
    if not isinstance(record, dict):
        raise RefusedError("is damaged (no record)")
    if not isinstance(record.get(SEAL), str) or not record[SEAL]:
        raise ChangedError("lacks its own hash: an earlier edgekit wrote it, or somebody changed it")
    try:
        same = record[SEAL] == seal_of(record) and _canonical(record).encode() == data
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise ChangedError("is damaged: it has changed since it was written")
    return record


def named_files(folder: Path, name: str, *always: str) -> frozenset[str]:
    """Return the files named in a record under `files` or `results`, damaged or not, with the record and some others.

    Use it only to decide who wrote a folder's files, never to read them. Empty if the folder has no such record.
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
    """Return a record in the form that `read_record` reads: canonical JSON with its own hash."""
    return _canonical({**record, SEAL: seal_of(record)})


def seal_of(record: Mapping[str, Any], seal: str = SEAL) -> str:
    """Return the sha256 over a record without its seal field."""
    rest = {name: value for name, value in record.items() if name != seal}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _canonical(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


@contextlib.contextmanager
def _open_regular(folder: Path, name: str, alone: bool) -> Iterator[BufferedReader]:
    """Yield a regular file in a folder, not behind a link; never wait for a pipe or follow a link."""
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
            raise RefusedError("has a second name in the file system (hard link). Copy the folder")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            yield stream
    finally:
        os.close(descriptor)


_UNSHOWN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories: controls (ESC starts terminal commands), formats (they can reverse the writing direction),
halves of surrogate pairs (no file can hold them), line separators."""


def visible(text: str, allowed: str = "") -> str:
    r"""Escape non-printable characters as `\x1b` or `\u202e`, except those in `allowed`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter if letter in allowed or (unicodedata.category(letter) not in _UNSHOWN) else _escape(letter)
        for letter in text
    )


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
