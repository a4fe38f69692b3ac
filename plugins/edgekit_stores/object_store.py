"""An object store by its URL, through fsspec: an object is complete or missing, and each failure is one sentence.

The libraries retry if a store is slow or busy. A local folder (file://) is a store too, whose objects are files that
are written to a temporary name and renamed.
"""

from __future__ import annotations

import contextlib
import io
import queue
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from edgekit.errors import DependencyError, EdgekitError, HostError, UsageError, did_you_mean, install_command, reason
from edgekit.storage.files import aside, sweep, write_bytes
from edgekit.storage.host_errors import sentence_of
from edgekit.storage.verified_io import LARGEST_RECORD, MissingError, RefusedError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

LIBRARIES = {
    "s3": install_command("s3"),
    "gs": "pip install gcsfs",
    "az": "pip install adlfs",
    "hf": "pip install huggingface_hub",
    "file": "",
    "memory": "",
}
"""URL schemes of stores, with the command that installs their library."""
# Transfers; more gain little on one connection, and hold more files in memory.
AT_ONCE = 4
# For an object that arrived incomplete.
TRIES = 3
BLOCK = 1 << 20
S3_SETTINGS = {"config_kwargs": {"connect_timeout": 10, "read_timeout": 30, "retries": {"total_max_attempts": 2}}}
"""Seconds, and attempts; s3fs itself tries five times. $FSSPEC_S3 replaces these settings."""
# In S3's answer; other libraries report a missing path.
_NO_BUCKET = "bucket does not exist"
_DENIED = ("Credentials", "TokenRetrieval", "Unauthorized", "AuthError", "ClientAuthentication", "SSO", "GatedRepo")
_OUT_OF_REACH = ("Connect", "Timeout", "NameResolution", "Resolve", "ServiceRequest", "SSLError")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Store:
    """The objects below a URL.

    Attributes:
        url: Without a slash at its end.
        files: fsspec's file system.
        root: Root of this store in the file system.
    """

    url: str
    files: AbstractFileSystem
    root: str

    def read(self, name: str) -> bytes:
        """Return the bytes of a small object.

        Raises:
            MissingError: If it does not exist.
            RefusedError: If it is larger than any record.
        """
        out = io.BytesIO()
        self._copy(name, out, LARGEST_RECORD + 1)
        if len(data := out.getvalue()) > LARGEST_RECORD:
            raise RefusedError(f"is larger than {LARGEST_RECORD} bytes")
        return data

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the names and sizes in bytes of the objects in a folder; empty if the folder does not exist."""
        try:
            with self._sentences(folder):
                entries = self.files.ls(f"{self.root}/{folder}", detail=True)
        except MissingError:
            return {}
        return {
            str(entry["name"]).rpartition("/")[2]: int(entry["size"]) for entry in entries if entry["type"] == "file"
        }

    @property
    def commits(self) -> bool:
        """True if every write is a commit, which a host limits to a few an hour: then many objects go in one."""
        return self.url.startswith("hf:")

    def write(self, name: str, data: bytes) -> None:
        """Write a small object."""
        with self._sentences(name, writing=True):
            if self.commits:
                self.commit({name: data})
            elif home := self._local(name):
                write_bytes(home, data)
            else:
                self.files.pipe_file(f"{self.root}/{name}", data)

    def send(self, name: str, path: Path) -> None:
        """Write an object from a file."""
        with self._sentences(name, writing=True):
            if self.commits:
                self.commit({name: path})
            elif home := self._local(name):
                with aside(home) as temporary:
                    shutil.copyfile(path, temporary)
            else:
                self.files.put_file(str(path), f"{self.root}/{name}")

    def commit(self, objects: Mapping[str, bytes | Path]) -> None:
        """Write objects by name, all or none, in a store that `commits`."""
        with self._sentences("", writing=True):
            from huggingface_hub import CommitOperationAdd, HfApi

            place = self.files.resolve_path(self.root)
            folder = f"{place.path_in_repo}/" if place.path_in_repo else ""
            adds = [CommitOperationAdd(f"{folder}{name}", content) for name, content in objects.items()]
            reason = (
                f"{len(adds)} objects of a build, by edgekit" if len(adds) > 1 else f"{next(iter(objects))}, by edgekit"
            )
            where = {"repo_type": place.repo_type, "revision": place.revision}
            HfApi().create_commit(place.repo_id, adds, commit_message=reason, **where)
            self.files.invalidate_cache()

    def fetch(self, name: str, path: Path, size: int) -> None:
        """Read an object into a file, with retries if it is incomplete.

        Raises:
            MissingError: If it does not exist.
            RefusedError: If it has another size.
        """
        with path.open("wb") as out:
            # One byte more than the index says shows that an object is larger, without fetching all of it.
            self._copy(name, out, size + 1, size)
        if path.stat().st_size != size:
            count = path.stat().st_size
            raise RefusedError(f"has {f'more than {size}' if count > size else count} bytes instead of {size}")

    def _copy(self, name: str, out: BinaryIO, most: int, least: int = 0) -> None:
        """Write at most so many bytes of an object into a file, with retries below the least, and leave the rest."""
        self._require_file(name)
        for attempt in range(TRIES):
            out.seek(0)
            out.truncate()
            try:
                with self._sentences(name), self._opened(f"{self.root}/{name}") as read:
                    while out.tell() < most and (block := read(min(BLOCK, most - out.tell()))):
                        out.write(block)
                if out.tell() >= least:
                    return
            except HostError:
                # A body that ends early is asked for again.
                if attempt == TRIES - 1 or not out.tell():
                    raise

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[Callable[[int], bytes]]:
        """Yield a function that reads the next bytes of an object."""
        if not self.url.startswith("s3:"):
            with self.files.open(path, "rb") as source:
                yield source.read
            return
        from fsspec.asyn import sync

        # s3fs asks for a range, and keeps in memory whatever an endpoint sends instead; its stream is read in blocks.
        stream = sync(self.files.loop, self.files.open_async, path, "rb")

        async def close() -> None:
            if stream.r is not None:
                stream.r.close()

        try:
            yield lambda size: bytes(sync(self.files.loop, stream.read, size))
        finally:
            sync(self.files.loop, close)

    def tidy(self, *folders: str) -> None:
        """Remove stopped processes' leftovers from folders of this host."""
        for folder in folders if self.url.startswith("file:") else ():
            sweep(Path(self.root) / folder)

    def _require_file(self, name: str) -> None:
        """Raise for a pipe or a device on this host, which would be read forever."""
        path = Path(self.root) / name
        if self.url.startswith("file:") and path.exists() and not path.is_file():
            raise RefusedError("is not a regular file")

    def _local(self, name: str) -> Path | None:
        """Return the path of an object on this host; None in other stores."""
        if not self.url.startswith("file:"):
            return None
        home = Path(self.root) / name
        home.parent.mkdir(parents=True, exist_ok=True)
        return home

    @contextlib.contextmanager
    def _sentences(self, name: str, writing: bool = False) -> Iterator[None]:
        """Turn any library's exception into an error of edgekit."""
        try:
            yield
        except (EdgekitError, RefusedError):
            raise
        except FileNotFoundError as error:
            if not writing and _NO_BUCKET not in str(error):
                raise MissingError("is not there") from error
            what = "repository" if self.commits else "bucket"
            raise UsageError(f"cannot use '{self.url}' ({reason(error)}). Name an existing {what}") from error
        # Each library has its own errors.
        except Exception as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> EdgekitError:
        kinds, why = " ".join(kind.__name__ for kind in type(error).__mro__), reason(error)
        if isinstance(error, OSError) and error.filename and (sentence := sentence_of(error)):
            return HostError(sentence)
        if isinstance(error, PermissionError) or any(word in kinds for word in _DENIED):
            return UsageError(
                f"'{self.url}' denies access ({why}). Give credentials as this store's own tools do, for "
                "example $AWS_PROFILE, or ask its owner for permission to read and to write"
            )
        if isinstance(error, TimeoutError | ConnectionError) or any(word in kinds for word in _OUT_OF_REACH):
            return HostError(
                f"'{self.url}' cannot be reached ({why}). Check the network and run the same command again"
            )
        if self.url.startswith("file:"):
            return UsageError(f"'{self.url}' cannot be used ({why}). Choose another place")
        return HostError(f"'{self.url}' failed ({why}). What was transferred is kept; run the same command again")


def open_store(url: str) -> Store:
    """Open the store at a URL, without contacting it yet.

    Raises:
        UsageError: If it is not a store's URL, or names no place in a bucket.
        DependencyError: If its library is not installed.
    """
    scheme, _, place = url.partition("://")
    if scheme not in LIBRARIES:
        meant = did_you_mean(scheme, LIBRARIES)
        raise UsageError(
            f"'{url}' is not a store's URL. {meant + ' ' if meant else ''}Possible: "
            f"{', '.join(f'{scheme}://' for scheme in LIBRARIES if scheme != 'memory')}"
        )
    if "" in place.strip("/").split("/") or "/" not in place.rstrip("/"):
        raise UsageError(
            f"'{url}' names no place for a build. Name one in a bucket or a folder, for example {scheme}://BUCKET/NAME"
        )
    top = Path(*Path(f"/{place.lstrip('/')}").parts[:2])
    if scheme == "file" and not top.is_dir():
        raise UsageError(
            f"'{url}' begins at the root of this host, where '{top}' does not exist. Write file:// and the whole path"
        )
    import fsspec

    settings: dict[str, Any] = S3_SETTINGS if scheme == "s3" and "s3" not in fsspec.config.conf else {}
    try:
        kind = fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise DependencyError(f"'{url}' needs a library that is not installed. Run: {LIBRARIES[scheme]}") from error
    files = kind(use_listings_cache=False, skip_instance_cache=True, **settings)
    return Store(url.rstrip("/"), files, str(files._strip_protocol(url)).rstrip("/"))


def in_parallel(work: Callable[[Item], object], items: Sequence[Item], ended: Callable[[Item], None]) -> None:
    """Process items in parallel, a few at once; after the first error the running ones finish.

    The threads are daemons: after Ctrl-C the process does not wait for a large transfer.

    Args:
        work: Processes one item; may raise.
        items: The items.
        ended: Called in this thread for each item that succeeded.
    """
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    ends: queue.SimpleQueue[tuple[Item, BaseException | None]] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)
    stop = threading.Event()

    def worker() -> None:
        while not stop.is_set():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                work(item)
                ends.put((item, None))
            except BaseException as error:
                ends.put((item, error))

    threads = [threading.Thread(target=worker, daemon=True) for _ in range(min(AT_ONCE, len(items)))]
    for thread in threads:
        thread.start()
    try:
        for _ in items:
            item, error = ends.get()
            if error is not None:
                raise error
            ended(item)
    except Exception:
        stop.set()
        for thread in threads:
            thread.join()
        raise
    finally:
        stop.set()
