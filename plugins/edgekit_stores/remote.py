"""Push builds to a store and pull them, through a cache on this host.

A build in a store has the URL `s3://BUCKET/NAME@VERSION`. Below `s3://BUCKET/NAME` lie

    blobs/<sha256>               a file's content
    versions/<16 digits>.json    the index of a build (`edgekit_stores.index`); its sha256 is the version
    latest.json                  the last pushed version, which a URL without a version means

A push sends the files whose hashes the store does not have, then the index, which is the commit: an interrupted push
stays invisible, and the next one resumes it. A pull fetches files that no build in the cache holds, checks each file by
its hash, and puts a complete folder in place by one rename.

The cache has a folder per version, with the index and the build, and `parts`: files of incomplete builds. It may be
removed whenever nothing uses it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit.artifact.manifest import File
from edgekit.artifact.run_record import CACHE
from edgekit.errors import ArtifactError, UsageError
from edgekit.storage import verified_io
from edgekit.storage.files import (
    aside,
    digest_bytes,
    digest_file,
    every_path,
    lock,
    staging,
    sweep,
    user_folder,
    write_bytes,
)
from edgekit_stores.index import Index, check_files, index_of, read_index
from edgekit_stores.object_store import Store, in_parallel, open_store

BLOBS, VERSIONS, LATEST = "blobs", "versions", "latest.json"
# Digits of a version in names and in output.
SHORT = 16
VERSION = re.compile(rf"[0-9a-f]{{{SHORT},64}}")
INDEX, PARTS = "index.json", "parts"
# Bytes; a smaller file is read once, so that the checked bytes are sent.
SMALL = 16 << 20
Tell = Callable[[float, str], None]
"""Callback with the completed share, and a text."""


@dataclass(frozen=True)
class Address:
    """The location of a build.

    Attributes:
        url: Location of the builds of one model, in a store.
        version: At least 16 digits of it; empty for the last pushed build.
        inside: Path in the build, for example of an artifact; empty for the build itself.
    """

    url: str
    version: str = ""
    inside: str = ""

    def __str__(self) -> str:
        return f"{self.url}@{self.version[:SHORT]}" if self.version else self.url


@dataclass(frozen=True)
class Transfer:
    """A finished transfer.

    Attributes:
        address: The build, by its version.
        path: Its folder on this host.
        index: Its index.
        moved: Number of transferred objects, without the index.
        moved_size: Their bytes.
        left_out: Files of the folder that edgekit did not write, and that were not sent.
    """

    address: Address
    path: Path
    index: Index
    moved: int = 0
    moved_size: int = 0
    left_out: tuple[str, ...] = ()

    def as_record(self) -> dict[str, Any]:
        """Return the transfer as JSON values."""
        return {
            "schema_version": 1,
            "url": self.address.url,
            "version": self.address.version,
            "path": str(self.path),
            "files": len(self.index.files),
            "bytes": self.index.size,
            "moved_files": self.moved,
            "moved_bytes": self.moved_size,
            "left_out": list(self.left_out),
        }


def address_of(url: str) -> Address:
    """Parse a URL: `s3://BUCKET/NAME`, `...@VERSION` or `...@VERSION/ARTIFACT`.

    Raises:
        UsageError: If the text after the @ is not a version.
    """
    scheme, _, rest = url.rstrip("/").partition("://")
    host, slash, path = rest.partition("/")
    place, at, behind = path.rpartition("@")
    if not at:
        return Address(url.rstrip("/"))
    version, _, inside = behind.partition("/")
    try:
        is_plain = not inside or bool(verified_io.require_plain(inside))
    except verified_io.RefusedError:
        is_plain = False
    if not is_plain or not VERSION.fullmatch(version):
        raise UsageError(
            f"'{behind}' in '{url}' is not a version. Write {SHORT} to 64 digits of its hash, as `edgekit builds` "
            "lists them"
        )
    return Address(f"{scheme}://{host}{slash}{place}", version, inside)


def list_versions(url: str) -> dict[str, Index]:
    """Return the indexes of the builds at a URL by version: the last pushed build, then by their last run.

    Raises:
        UsageError: If there are no builds.
        ArtifactError: If a record is damaged.
    """
    store, versions = open_store(url), dict[str, Index]()
    in_parallel(
        lambda name: versions.update([_read_version(store, name.removesuffix(".json"))]),
        sorted(store.sizes(VERSIONS)),
        lambda _: None,
    )
    if not versions:
        raise _no_build(url)
    latest = _read_latest(store)
    order = sorted(versions, key=lambda version: (version == latest, versions[version].began, version), reverse=True)
    return {version: versions[version] for version in order}


def resolve(address: Address) -> tuple[str, Index]:
    """Return the full version of an address, and its index.

    Raises:
        UsageError: If the store does not have this version.
        ArtifactError: If a record is damaged.
    """
    store = open_store(address.url)
    version = address.version or _read_latest(store)
    if version is None:
        raise _no_build(address.url)
    return _read_version(store, version)


def push(build: Path, address: Address, tell: Tell) -> Transfer:
    """Upload a build to a store.

    Raises:
        UsageError: If the address has a version, or holds builds of another model.
        ArtifactError: If a file of the build is damaged.
        HostError: If the store cannot be reached; what was sent is kept.
    """
    if address.version:
        raise UsageError(f"a push takes no version. Push to '{address.url}'")
    store = open_store(address.url)
    with lock(build, lambda: tell(0.0, f"waiting for another run in '{build}'")):
        tell(0.0, "checking the build")
        index, left_out = index_of(build)
        latest = _read_latest(store)
        if latest is not None and (name := _read_version(store, latest)[1].name) != index.name:
            raise UsageError(f"'{address.url}' holds builds of '{name}'. Push '{index.name}' to another place")
        store.tidy(BLOBS, VERSIONS, "")
        stored_sizes = store.sizes(BLOBS)
        fresh = tuple(
            {file.sha256: file for file in index.files if stored_sizes.get(file.sha256) != file.size}.values()
        )
        moved = _TransferProgress(fresh, tell)
        if store.commits and fresh:
            store.commit({f"{BLOBS}/{file.sha256}": _content(build, file) for file in fresh})
            for file in fresh:
                moved.add(file)
        else:

            def send(file: File) -> None:
                content = _content(build, file)
                if isinstance(content, bytes):
                    store.write(f"{BLOBS}/{file.sha256}", content)
                else:
                    store.send(f"{BLOBS}/{file.sha256}", content)

            in_parallel(send, fresh, moved.add)
        store.write(f"{VERSIONS}/{index.version[:SHORT]}.json", index.data)
    if latest != index.version:
        store.write(LATEST, verified_io.seal_record({"version": index.version}).encode())
    pinned = Address(address.url, index.version)
    return Transfer(pinned, build, index, len(fresh), moved.size, left_out)


def local(address: Address, tell: Tell) -> Transfer:
    """Return a store's build from this host's cache, complete and checked; the caller must not write to it.

    A version in the cache is taken from there, without contacting a store.

    Raises:
        UsageError: If the build does not exist.
        ArtifactError: If a file in the store differs from the index.
        HostError: If the store cannot be reached.
    """
    version, index = _cached_version(address.version) or resolve(address)
    home, pinned = cache() / version, Address(address.url, version)
    folder = home / "build" / index.name
    with _lock_cache(tell):
        home.mkdir(parents=True, exist_ok=True)
        if not (home / INDEX).exists():
            write_bytes(home / INDEX, index.data)
        try:
            check_files(folder, index)
        # It does not exist, or somebody wrote to it.
        except ArtifactError:
            moved = _fetch(open_store(address.url), index, folder, tell)
            return Transfer(pinned, folder, index, moved.count, moved.size)
        return Transfer(pinned, folder, index)


def pull(build: Transfer, into: Path, tell: Tell) -> Transfer:
    """Copy a build from the cache into a folder of builds; an existing build is replaced only if a store has it too.

    Raises:
        UsageError: If another folder exists there.
    """
    final = into / build.index.name
    own: set[str] = set()
    with _lock_cache(tell), lock(final, lambda: tell(0.0, f"waiting for a run in '{final}'")):
        if final.is_dir():
            stored = _stored_index(final, build.address)
            if stored.version == build.index.version:
                return replace(build, path=final)
            own = {file.path for file in stored.files}
        with staging(
            final, lambda folder: own | {path for path in every_path(folder) if CACHE in path.split("/")[:2]}
        ) as staged:
            _place(build.index, lambda file: build.path / file.path, staged)
    return replace(build, path=final)


def working_copy(build: Transfer, tell: Tell) -> Path:
    """Return a fresh copy of a build, also in the cache, for commands that write into a build, such as `verify`."""
    final = cache() / build.address.version / "work" / build.index.name
    with _lock_cache(tell), staging(final, every_path) as staged:
        _place(build.index, lambda file: build.path / file.path, staged)
    return final


def cache() -> Path:
    """Return the folder of builds from stores: $EDGEKIT_BUILDS, or `edgekit/builds` in the user's cache."""
    return user_folder("builds", "EDGEKIT_BUILDS").absolute()


def _content(build: Path, file: File) -> bytes | Path:
    """Return the bytes of a small file, or the path of a large one, checked."""
    try:
        if file.size <= SMALL:
            return verified_io.read_file(build, file.path, file.size, file.sha256)
        return verified_io.check_file(build, file.path, file.size, file.sha256)
    except verified_io.RefusedError as error:
        raise ArtifactError(f"'{build / file.path}' changed while it was pushed ({error}). Push again") from error


def _read_latest(store: Store) -> str | None:
    """Return the last pushed version, or None."""
    try:
        version = str(verified_io.parse_record(store.read(LATEST)).get("version"))
        if not VERSION.fullmatch(version):
            raise verified_io.RefusedError("names no version")
    except verified_io.MissingError:
        return None
    except verified_io.RefusedError as error:
        raise ArtifactError(f"'{store.url}/{LATEST}' {error}; remove it and push again") from error
    return version


def _read_version(store: Store, version: str) -> tuple[str, Index]:
    path = f"{VERSIONS}/{version[:SHORT]}.json"
    try:
        data = store.read(path)
        if not (full := digest_bytes(data)).startswith(version):
            raise verified_io.RefusedError("is damaged: its content does not match its version")
        return full, read_index(data)
    except verified_io.MissingError:
        raise UsageError(
            f"'{store.url}' has no version '{version[:SHORT]}'. Run `edgekit builds {store.url}` for the list"
        ) from None
    except verified_io.RefusedError as error:
        raise ArtifactError(f"'{store.url}/{path}' {error}; remove it and push the build again") from error


def _no_build(url: str) -> UsageError:
    return UsageError(f"no build in '{url}'. Send one with `edgekit push BUILD {url}`")


def _cached_version(version: str) -> tuple[str, Index] | None:
    """Return a version in the cache and its index; None if it is not there."""
    for path in cache().glob(f"{version}*/{INDEX}") if version else ():
        data = path.read_bytes()
        if digest_bytes(data) == path.parent.name:
            return path.parent.name, read_index(data)
    return None


def _fetch(store: Store, index: Index, folder: Path, tell: Tell) -> _TransferProgress:
    """Fetch a build into the cache."""
    parts = cache() / PARTS
    parts.mkdir(parents=True, exist_ok=True)
    sweep(parts)
    here = _here(index, parts)
    fresh = tuple({file.sha256: file for file in index.files if file.sha256 not in here}.values())
    moved = _TransferProgress(fresh, tell)
    in_parallel(lambda file: _receive(store, file, parts), fresh, moved.add)
    with staging(folder, every_path) as staged:
        _place(index, lambda file: here.get(file.sha256, parts / file.sha256), staged)
    for file in index.files:
        (parts / file.sha256).unlink(missing_ok=True)
    return moved


def _receive(store: Store, file: File, parts: Path) -> None:
    name = f"{BLOBS}/{file.sha256}"
    try:
        with aside(parts / file.sha256) as temporary:
            store.fetch(name, temporary, file.size)
            if digest_file(temporary) != file.sha256:
                raise verified_io.RefusedError("is damaged: its content does not match its name")
    except verified_io.RefusedError as error:
        raise ArtifactError(
            f"'{store.url}/{name}' ('{file.path}') {error}; remove that object and push the build again"
        ) from error


def _here(index: Index, parts: Path) -> dict[str, Path]:
    """Return files of an index that are on this host, by hash: fetched before, or in another build of the cache."""
    files = {file.sha256: file for file in index.files}
    paths: dict[str, Path] = {}
    places = [(parts, sha256, sha256) for sha256 in files]
    for path in cache().glob(f"*/{INDEX}"):
        with contextlib.suppress(verified_io.RefusedError):
            other = read_index(path.read_bytes())
            places += [(path.parent / "build" / other.name, file.path, file.sha256) for file in other.files]
    for folder, name, sha256 in places:
        if sha256 in files and sha256 not in paths:
            with contextlib.suppress(verified_io.RefusedError):
                paths[sha256] = verified_io.check_file(folder, name, files[sha256].size, sha256)
    return paths


def _place(index: Index, source: Callable[[File], Path], staged: Path) -> None:
    """Copy the files of an index into a staged folder, and check them there."""
    for file in index.files:
        target = staged / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source(file), target)
    check_files(staged, index)


def _stored_index(folder: Path, address: Address) -> Index:
    """Return the index of a build folder, if the cache or the store has it, so that replacing it loses nothing."""
    try:
        index, _ = index_of(folder)
    except ArtifactError as error:
        raise UsageError(
            f"'{folder}' exists and is not a complete build. Move it, or choose another folder with --into"
        ) from error
    if _cached_version(index.version) is None:
        try:
            resolve(Address(address.url, index.version))
        except UsageError as error:
            raise UsageError(
                f"'{folder}' holds another build, which is not in '{address.url}'. Push it, move it, or choose another "
                "folder with --into"
            ) from error
    return index


@contextlib.contextmanager
def _lock_cache(tell: Tell) -> Iterator[None]:
    """Lock the cache, so that one process at a time changes it."""
    with lock(cache(), lambda: tell(0.0, "waiting for another process that uses the cache")):
        yield


class _TransferProgress:
    """A counter of transferred files that reports progress."""

    def __init__(self, files: Sequence[File], tell: Tell) -> None:
        self.all, self.of, self.tell = len(files), sum(file.size for file in files), tell
        self.count = self.size = 0

    def add(self, file: File) -> None:
        """Count one more file."""
        self.count, self.size = self.count + 1, self.size + file.size
        text = f"{self.count} of {self.all} objects, {self.size / 1e6:.1f} of {self.of / 1e6:.1f} MB"
        self.tell(self.size / max(self.of, 1), text)
