"""Crash-safe files: hashes, atomic writes, staging folders, and removal of stopped processes' leftovers.

Writing: a temporary sibling, every file fsynced, one rename, the parent fsynced. A crash or a kill at any point leaves
the old file or folder, or none; the next writer removes a stopped process's leftovers. Correctness depends on renames
only, never on a lock.

A temporary's name contains its writer's host and process: `.<name>.<where>.<process>.<token>.tmp`. If that process can
be checked (same boot, same process namespace), the temporary is removed as soon as the process is gone. Otherwise, for
example in another container, it is removed after a day without a change.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import io
import json
import math
import os
import platform
import re
import secrets
import shutil
import stat
import time
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from edgekit.errors import ArtifactError, UsageError

# Nanoseconds, several ticks of a file system's clock.
_TICKS = 100_000_000
_digests: dict[tuple[int, ...], str] = {}
# Seconds without a change, after which an unknown writer counts as gone.
_FORGOTTEN = 24 * 3600.0
# Seconds; the two renames of a swap take milliseconds.
_STEPPED_ASIDE = 60.0
# Tries against other writers of the same folder; each loses to one that has finished.
_SWAPS = 100
# Files that a system adds to folders.
_NOBODYS = {".DS_Store"}
_LOCKS = Path("/tmp")  # noqa: S108 - the same for all processes of a host: a worker has its own TMPDIR
_SCRATCH = "edgekit-scratch"
_AT_FDCWD, _EXCHANGE = -100, 2  # of <fcntl.h> and <linux/fs.h>
# Of the hash that identifies a writer's host.
_DIGITS = 8


def digest_text(text: str) -> str:
    """Return the sha256 of a text's UTF-8 bytes, in hex."""
    return digest_bytes(text.encode())


def digest_bytes(data: bytes) -> str:
    """Return the sha256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    """Return the sha256 of a file, in hex, as `digest_stream` does."""
    with path.open("rb") as stream:
        return digest_stream(stream)


def digest_stream(stream: io.BufferedReader) -> str:
    """Return the sha256 of an open file, in hex; a file that this run hashed before and nobody changed is not read.

    A file is the same if its device, inode, size and times are. A system stamps a change with the clock's last tick,
    so the hash of a file that changed within `_TICKS` is not kept: a second change could have the same stamp.
    """
    status, began = os.fstat(stream.fileno()), time.time_ns()
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if (digest := _digests.get(key)) is not None:
        return digest
    digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if began - max(status.st_mtime_ns, status.st_ctime_ns) > _TICKS:
        _digests[key] = digest
    return digest


def hashed_files() -> list[list[int | str]]:
    """Return the files that this run has hashed, for `trust_hashes` in its worker: JSON values."""
    return [[*key, digest] for key, digest in _digests.items()]


def trust_hashes(rows: Iterable[Sequence[Any]]) -> None:
    """Take over the hashes of the process that started this one."""
    _digests.update({tuple(key): digest for *key, digest in rows})


def dump_json(value: object) -> str:
    """Return a value as edgekit's JSON: sorted keys, two spaces, a newline at the end, no NaN."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """Return a value for JSON: None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def load_json(text: str | bytes, **hooks: Any) -> Any:
    """Parse a JSON text; `hooks` are those of `json.loads`.

    Raises:
        ValueError: If it is not JSON, or nested deeper than Python reads.
    """
    try:
        return json.loads(text, **hooks)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def user_folder(name: str, variable: str = "") -> Path:
    """Return edgekit's folder of this name in the user's cache, or the one that an environment variable names."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get(variable) or Path(home) / "edgekit" / name)


def every_path(folder: Path) -> Collection[str]:
    """Return the relative paths of everything in a folder, for a folder that may be replaced as a whole."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def no_files(folder: Path) -> Collection[str]:
    """Return no paths, for a folder that edgekit never replaces."""
    return ()


def link(source: Path, target: Path) -> None:
    """Give a file a second name; copy it if the file system does not support hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@contextlib.contextmanager
def staging(final: Path, own_files: Callable[[Path], Collection[str]] = no_files) -> Iterator[Path]:
    """Yield a temporary sibling of `final` that replaces it on success and is removed on failure.

    Args:
        final: The folder.
        own_files: Returns the relative paths of the files that edgekit wrote into the existing folder. The folder is
            replaced only if it holds no other file.

    Raises:
        UsageError: If the folder cannot be written, or contains a file that edgekit did not write.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        sweep(final.parent)
        require_own(final, own_files)
        temporary = final.parent / _temporary(final.name, "tmp")
        temporary.mkdir()
    except OSError as error:
        why = f"cannot write to '{final.parent}' ({error.strerror}). Choose another folder with -o"
        raise UsageError(why) from error
    try:
        yield temporary
        for path in temporary.rglob("*"):
            _fsync(path)
        _fsync(temporary)
        require_own(final, own_files)
        _swap(temporary, final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def require_own(final: Path, own_files: Callable[[Path], Collection[str]]) -> None:
    """Check that a folder can be replaced: it does not exist, is empty, or holds only edgekit's files.

    Raises:
        UsageError: Naming the other file.
    """
    try:
        kind = final.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(kind):
        raise UsageError(f"'{final}' exists and edgekit did not write it. Move it or choose another folder")
    own: Collection[str] | None = None
    for path in _list_folder(final):
        if (path.is_dir() and not path.is_symlink()) or path.name in _NOBODYS or _parts(path) is not None:
            continue
        own = own_files(final) if own is None else own
        if path.relative_to(final).as_posix() not in own:
            raise UsageError(
                f"'{path}' exists and edgekit did not write it. Move it, or remove '{final}' to make it again"
            )


def _list_folder(folder: Path) -> list[Path]:
    """Return everything in a folder, even while other writers replace it."""
    for _ in range(_SWAPS):
        with contextlib.suppress(FileNotFoundError):
            return sorted(folder.rglob("*"))
    return []


def write_text(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old or the new one, even after a crash."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old or the new one, even after a crash."""
    with aside(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling of a file, which replaces the file if the block succeeds."""
    temporary = path.parent / _temporary(path.name, "tmp")
    try:
        yield temporary
        _fsync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _fsync(path.parent)


def write_together(texts: dict[Path, str]) -> None:
    """Write files of one folder so that a reader never sees old and new ones together.

    A kill leaves all old ones, all new ones, or fewer of either: the old ones are removed before the new ones appear.
    """
    for folder in {path.parent for path in texts}:
        sweep(folder)
    if all(_holds(path, text) for path, text in texts.items()):
        return
    with contextlib.ExitStack() as stack:
        for path, text in texts.items():
            temporary = stack.enter_context(aside(path))
            temporary.write_bytes(text.encode())
            # Before the first old file is removed.
            _fsync(temporary)
        for path in texts:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Yield an empty temporary folder, removed at the end; first remove those of stopped processes."""
    for path in Path(gettempdir()).glob(f".{_SCRATCH}.*.tmp"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid == os.getuid() and _is_abandoned(path, _FORGOTTEN):
                _remove(path)
    folder = Path(gettempdir()) / _temporary(_SCRATCH, "tmp")
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove temporary folders and files of stopped processes from a folder; put a half-swapped folder back."""
    for path in parent.glob(".*.tmp"):
        if _is_abandoned(path, _FORGOTTEN):
            _remove(path)
    for path in parent.glob(".*.old"):
        if (parts := _parts(path)) is None:
            continue
        final = parent / parts[0]
        if final.exists():
            if _is_abandoned(path, _FORGOTTEN):
                _remove(path)
        elif _is_abandoned(path, _STEPPED_ASIDE):
            # Another writer may be quicker.
            with contextlib.suppress(OSError):
                path.replace(final)


def _swap(temporary: Path, final: Path) -> None:
    # A folder cannot be renamed over a full one. If the system can exchange two names, one always exists. Otherwise
    # the old one is moved away first and comes back on failure; after a kill between the two renames, `sweep` puts it
    # back. If others write the same folder, the last one wins.
    asides: list[Path] = []
    for _ in range(_SWAPS):
        try:
            temporary.replace(final)
            break
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                _put_back(asides, final)
                raise
        if exchange_names(temporary, final):
            break
        asides.append(final.parent / _temporary(final.name, "old"))
        # Another writer may move it.
        with contextlib.suppress(FileNotFoundError):
            final.replace(asides[-1])
    else:
        raise UsageError(f"cannot replace '{final}': other processes keep writing it. Run one at a time")
    _fsync(final.parent)
    for aside in asides:
        _remove(aside)


def exchange_names(path: Path, other: Path) -> bool:
    """Exchange two names at once (Linux's renameat2(2)); return False if the system cannot."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here = ctypes.c_int(_AT_FDCWD)
    return call is not None and call(here, os.fsencode(path), here, os.fsencode(other), _EXCHANGE) == 0


def _put_back(asides: list[Path], final: Path) -> None:
    for aside in reversed(asides):
        # Another writer may be quicker.
        with contextlib.suppress(OSError):
            if not final.exists():
                aside.replace(final)


def _temporary(name: str, kind: str) -> str:
    return f".{name}.{_where()}.{os.getpid()}.{secrets.token_hex(4)}.{kind}"


def _parts(path: Path) -> tuple[str, str, int] | None:
    """Return the final name, the writer's host and its process; None if the name is not a temporary's."""
    parts = path.name.split(".")
    if len(parts) < 5 or parts[0] or parts[-1] not in ("tmp", "old") or not parts[-3].isdigit():
        return None
    # Earlier versions did not write the host.
    where = parts[-4] if len(parts) > 5 and len(parts[-4]) == _DIGITS else ""
    return ".".join(parts[1 : -4 if where else -3]), where, int(parts[-3])


def _is_abandoned(path: Path, forgotten: float) -> bool:
    """Return whether a temporary has no writer any more."""
    if (parts := _parts(path)) is None:
        return False
    _, where, process = parts
    if where == _where() and not _alive(process):
        return True
    try:
        # Seconds since anything in a file or folder changed.
        stats = [path_in_tree.lstat() for path_in_tree in (path, *path.rglob("*"))]
        age = time.time() - max(max(status.st_mtime, status.st_ctime) for status in stats)
        return age > forgotten
    # It was removed meanwhile.
    except OSError:
        return False


@functools.cache
def _where() -> str:
    """Return a hash of the host, its boot and the process namespace: it identifies the visible processes."""
    facts = [platform.node()]
    with contextlib.suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        facts.append(str(Path("/proc/self/ns/pid").readlink()))
    return digest_text("\n".join(facts))[:_DIGITS]


def _holds(path: Path, text: str) -> bool:
    with contextlib.suppress(OSError):
        return path.read_bytes() == text.encode()
    return False


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    # A process of another user is alive too.
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def lock(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a folder's lock: a file among the host's temporary files, so that the folder itself stays clean.

    The operating system holds the lock and frees it when a process dies. Correctness does not depend on the
    lock: every write is a rename.

    Args:
        folder: The folder, which may not exist yet.
        waiting: Called once if another process holds the lock, before waiting for it.
    """
    from filelock import FileLock, Timeout

    locks = _LOCKS / f"edgekit-{os.getuid()}"
    with contextlib.ExitStack() as stack:
        try:
            locks.mkdir(mode=0o700, exist_ok=True)
            file_lock = FileLock(locks / f"{digest_text(str(folder.resolve()))}.lock")
            try:
                stack.enter_context(file_lock.acquire(timeout=0))
            except Timeout:
                waiting()
                stack.enter_context(file_lock.acquire())
        except (OSError, NotImplementedError):
            # A file system without locks, or another user's folder.
            pass
        yield


# In bytes, as PyTorch's own writer aligns.
ALIGNMENT = 64
DEBUG = ".debug_pkl"
IDENTITY = ".data/serialization_id"
CODE = "code/"
_LOCAL_HEADER = 30  # bytes of a zip entry before its name


def rewrite(archive: bytes, code: bool) -> bytes:
    """Return a TorchScript archive without debug records.

    Args:
        archive: The file as PyTorch saved it.
        code: True to keep the source form of the program; the lite interpreter reads bytecode only.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            record, data = name.partition("/")[2], old.read(name)
            if record.endswith(DEBUG) or record == IDENTITY or (record.startswith(CODE) and not code):
                continue
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            start = out.tell() + _LOCAL_HEADER + len(name.encode())
            length = -(start + 4) % ALIGNMENT
            entry.extra = b"FB" + length.to_bytes(2, "little") + b"Z" * length
            new.writestr(entry, data)
    return out.getvalue()


def without(archive: bytes, endings: tuple[str, ...]) -> bytes:
    """Return a PyTorch package with its records sorted by name, without those with some endings.

    Args:
        archive: A `.pt2` file as PyTorch saved it.
        endings: Endings of the names of unused records, or of records of the place and time of the export.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for name in sorted(old.namelist()):
            if not name.endswith(endings):
                # Without a date: a ZipInfo's default is 1980.
                new.writestr(zipfile.ZipInfo(name), old.read(name))
    return out.getvalue()


def require_whole(path: Path, kind: str = "a TorchScript archive") -> None:
    """Check the checksum of every record of a zip that PyTorch wrote; PyTorch's own reader does not.

    Raises:
        ArtifactError: If the file is not an archive, or is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
        raise ArtifactError(f"'{path}' is not {kind} or damaged ({error}). Export again") from error
    if bad is not None:
        raise ArtifactError(f"'{path}' is damaged in its record '{bad}'. Export again")


_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.DOTALL)


def url_of(place: str | Path) -> str:
    """Return the URL in a text or a path; empty for a plain path. `Path("s3://a/b")` is `s3:/a/b`, which counts too."""
    match = _URL.fullmatch(str(place))
    return f"{match[1]}://{'/' if match[1] in ('file', 'memory') else ''}{match[2]}" if match else ""


def require_folder(place: str | Path, doing: str) -> None:
    """Check that an output is a folder of this host.

    Raises:
        UsageError: If it is a URL.
    """
    if url := url_of(place):
        raise UsageError(
            f"'{url}' is not a folder: {doing} locally. To upload them afterwards, run "
            f"`edgekit push BUILD {url.rstrip('/')}/NAME`"
        )
