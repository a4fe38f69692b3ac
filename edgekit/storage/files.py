"""Files that survive a crash: hashes, atomic writes, staging folders, and sweeping what stopped processes left.

Writing: a temporary sibling, every file fsynced, one rename, the parent fsynced. A crash or a kill at any point leaves
the old file or folder, or none; what a stopped process left is swept by the next writer. Correctness depends on renames
only, never on a lock.

A temporary's name says where its writer runs and its process: `.<name>.<where>.<process>.<token>.tmp`. Where the
writer can be looked for (same boot, same process namespace) it goes as soon as that process is gone; anywhere else, for
example in another container, it goes when nothing in it has changed for a day.
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
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from edgekit.errors import ArtifactError, UsageError

_CHUNK = 1 << 20
_FORGOTTEN = 24 * 3600.0  # seconds without a change, after which a writer that cannot be looked for is gone
_STEPPED_ASIDE = 60.0  # seconds; the two renames of a swap take milliseconds
_SWAPS = 100  # tries against other writers of the same folder; each loses to one that has finished
_NOBODYS = {".DS_Store"}  # what a system puts into folders by itself
_LOCKS = Path("/tmp")  # noqa: S108 - the same for all processes of a host: a worker has a TMPDIR of its own
_SCRATCH = "edgekit-scratch"
_AT_FDCWD, _EXCHANGE = -100, 2  # of <fcntl.h> and <linux/fs.h>
_DIGITS = 8  # of the hash that says where a writer runs


def digest_text(text: str) -> str:
    """sha256 of a text's UTF-8 bytes, in hex."""
    return digest_bytes(text.encode())


def digest_bytes(data: bytes) -> str:
    """sha256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


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


def finite(value: Any) -> Any:
    """A value as JSON can hold it: None in place of NaN and infinity, which JSON has not."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def load_json(text: str | bytes, **hooks: Any) -> Any:
    """What a JSON text holds; `hooks` are those of `json.loads`.

    Raises:
        ValueError: If it is no JSON, or nested deeper than Python reads.
    """
    try:
        return json.loads(text, **hooks)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def user_folder(name: str, variable: str = "") -> Path:
    """A folder of edgekit's in the user's cache, or the one that an environment variable names."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get(variable) or Path(home) / "edgekit" / name)


def every_path(folder: Path) -> Collection[str]:
    """All that is in a folder, as relative paths: what may go where a folder is replaced by a copy of it."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def no_files(folder: Path) -> Collection[str]:
    """What is known of a folder that edgekit never writes twice: nothing."""
    return ()


def link(source: Path, target: Path) -> None:
    """A second name of a file; a copy where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@contextlib.contextmanager
def staging(final: Path, own_files: Callable[[Path], Collection[str]] = no_files) -> Iterator[Path]:
    """A temporary sibling of `final` that replaces it when the block ends well, and vanishes when it does not.

    Args:
        final: The folder.
        own_files: Return the relative paths of the files that edgekit wrote into the existing folder. The folder is
            replaced only if it holds no other file.

    Raises:
        UsageError: If the folder cannot be written, or something is there that edgekit did not write.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        sweep(final.parent)
        require_own(final, own_files)
        temporary = final.parent / _temporary(final.name, "tmp")
        temporary.mkdir()
    except OSError as error:
        why = f"cannot write to '{final.parent}' ({error.strerror}): choose another folder with -o"
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
    """See that a folder can be replaced: it is not there, is empty, or holds only what edgekit wrote.

    Raises:
        UsageError: Naming what is in the way.
    """
    try:
        kind = final.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(kind):
        raise UsageError(f"'{final}' is in the way and edgekit did not write it: move it or choose another folder")
    own: Collection[str] | None = None
    for path in _list_folder(final):
        if (path.is_dir() and not path.is_symlink()) or path.name in _NOBODYS or _parts(path) is not None:
            continue
        own = own_files(final) if own is None else own
        if path.relative_to(final).as_posix() not in own:
            raise UsageError(
                f"'{path}' is in the way and edgekit did not write it: move it, or remove '{final}' to make it again"
            )


def _list_folder(folder: Path) -> list[Path]:
    """All that is in a folder, also while other writers replace it."""
    for _ in range(_SWAPS):
        with contextlib.suppress(FileNotFoundError):
            return sorted(folder.rglob("*"))
    return []


def write_text(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old or the new one, also after a crash."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old or the new one, also after a crash."""
    with aside(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A temporary sibling of a file to write to, which takes its place when the block ends well."""
    temporary = path.parent / _temporary(path.name, "tmp")
    try:
        yield temporary
        _fsync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _fsync(path.parent)


def write_together(texts: dict[Path, str]) -> None:
    """Write files of one folder of which no reader may ever see some old and some new.

    A kill leaves all the old ones, all the new ones, or fewer of either: the old ones go before the new ones come.
    """
    if all(_holds(path, text) for path, text in texts.items()):
        return
    with contextlib.ExitStack() as stack:
        for path, text in texts.items():
            temporary = stack.enter_context(aside(path))
            temporary.write_bytes(text.encode())
            _fsync(temporary)  # before the first old one goes
        for path in texts:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder among the host's temporary files, which goes at the end; those of stopped processes go first."""
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
    """Remove temporary folders and files that stopped processes left in a folder; put a half-swapped folder back."""
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
            with contextlib.suppress(OSError):  # another writer was quicker
                path.replace(final)


def _swap(temporary: Path, final: Path) -> None:
    # A folder cannot be renamed over a full one. Where the system exchanges two names, no moment is without one; else
    # the old one steps aside first, comes back if the new one cannot take its place, and `sweep` puts it back after a
    # kill between the two renames. Where others write the same folder the last one wins.
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
        with contextlib.suppress(FileNotFoundError):  # another writer moved it
            final.replace(asides[-1])
    else:
        raise UsageError(f"cannot replace '{final}': other processes write it all the time; run one at a time")
    _fsync(final.parent)
    for aside in asides:
        _remove(aside)


def exchange_names(path: Path, other: Path) -> bool:
    """Exchange two names at once; return False where the system or the file system cannot (renameat2(2) of Linux)."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here = ctypes.c_int(_AT_FDCWD)
    return call is not None and call(here, os.fsencode(path), here, os.fsencode(other), _EXCHANGE) == 0


def _put_back(asides: list[Path], final: Path) -> None:
    for aside in reversed(asides):
        with contextlib.suppress(OSError):  # another writer was quicker
            if not final.exists():
                aside.replace(final)


def _temporary(name: str, kind: str) -> str:
    return f".{name}.{_where()}.{os.getpid()}.{secrets.token_hex(4)}.{kind}"


def _parts(path: Path) -> tuple[str, str, int] | None:
    """The final name, where its writer runs and its process; None where the name is not a temporary's."""
    parts = path.name.split(".")
    if len(parts) < 5 or parts[0] or parts[-1] not in ("tmp", "old") or not parts[-3].isdigit():
        return None
    where = parts[-4] if len(parts) > 5 and len(parts[-4]) == _DIGITS else ""  # earlier versions did not say it
    return ".".join(parts[1 : -4 if where else -3]), where, int(parts[-3])


def _is_abandoned(path: Path, forgotten: float) -> bool:
    """Whether nobody writes a temporary any more."""
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
    except OSError:  # it has gone meanwhile
        return False


@functools.cache
def _where() -> str:
    """Which processes this one can see: a hash over the host, its boot and the process namespace."""
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
    except OSError as error:  # one of another user's is alive too
        return not isinstance(error, ProcessLookupError)
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def lock(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a folder's lock: a file among the host's temporary files, so that none is left in the folder itself.

    A process that dies gives its lock back, since the operating system holds it. Correctness does not depend on the
    lock: every write is a rename.

    Args:
        folder: It need not be there yet.
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
            pass  # a file system without locks, or a folder that is not ours
        yield


ALIGNMENT = 64  # bytes, as PyTorch's own writer aligns
DEBUG = ".debug_pkl"
IDENTITY = ".data/serialization_id"
CODE = "code/"
_LOCAL_HEADER = 30  # bytes of a zip entry before its name


def rewrite(archive: bytes, code: bool) -> bytes:
    """Write a TorchScript archive again without debug records.

    Args:
        archive: The file as PyTorch saved it.
        code: Whether to keep the source form of the program; the lite interpreter reads bytecode only.
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
    """Write a package of PyTorch's again: its records in the order of their names, without those that end so.

    Args:
        archive: A `.pt2` file as PyTorch saved it.
        endings: Of the names of records that say where or when it was made, or that nothing needs.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for name in sorted(old.namelist()):
            if not name.endswith(endings):
                new.writestr(zipfile.ZipInfo(name), old.read(name))  # of 1980
    return out.getvalue()


def require_whole(path: Path, kind: str = "a TorchScript archive") -> None:
    """See that every record of a zip that PyTorch wrote has its checksum; PyTorch's own reader does not look.

    Raises:
        ArtifactError: If the file is no archive or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
        raise ArtifactError(f"'{path}' is not {kind} or damaged ({error}): export again") from error
    if bad is not None:
        raise ArtifactError(f"'{path}' is damaged in its record '{bad}': export again")


_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.DOTALL)


def url_of(place: str | Path) -> str:
    """The URL that a text or a path is; empty for a path. `Path("s3://a/b")` is `s3:/a/b`, which counts too."""
    match = _URL.fullmatch(str(place))
    return f"{match[1]}://{'/' if match[1] in ('file', 'memory') else ''}{match[2]}" if match else ""


def require_folder(place: str | Path, doing: str) -> None:
    """See that an output is a folder of this host.

    Raises:
        UsageError: If it is a URL.
    """
    if url := url_of(place):
        raise UsageError(
            f"'{url}' is no folder: {doing} locally; send them there afterwards with "
            f"`edgekit push BUILD {url.rstrip('/')}/NAME`"
        )
