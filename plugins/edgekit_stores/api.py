"""Builds in object stores, from Python: push, pull, list, and a URL in place of any build folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit import doors
from edgekit.errors import UsageError
from edgekit.progress import Style, listener_for
from edgekit.storage.files import url_of
from edgekit.storage.host_errors import as_sentences
from edgekit_stores import remote

if TYPE_CHECKING:
    from edgekit_stores.index import Index
    from edgekit_stores.remote import Address, Tell, Transfer


@as_sentences()
def push(build: str | Path, url: str, *, progress: Style = "auto") -> Transfer:
    """Upload a build to a store: the missing files, and last the index, which makes the build visible.

    Args:
        build: A model's build folder.
        url: Location of the builds of this model, for example "s3://bucket/arr-coc-tiny".
        progress: As for `export`.
    """
    with _progress("push", progress) as tell:
        return remote.push(Path(build), _address(url), tell)


@as_sentences()
def pull(url: str, *, into: str | Path = "build", key: str | Path | None = None, progress: Style = "auto") -> Transfer:
    """Download a build from a store and check all of it; its folder in `into` has the model's name.

    Args:
        url: For example "s3://bucket/arr-coc-tiny@0123456789abcdef"; without a version, the last pushed one.
        into: A folder of builds.
        key: Public ECDSA key (PEM) of the build's required signer.
        progress: As for `export`.
    """
    with _progress("pull", progress) as tell:
        address = _address(url)
        if address.inside:
            raise UsageError(f"a pull fetches a whole build. Leave '/{address.inside}' out of the URL")
        build = remote.local(address, tell)
        if key is not None:
            doors.hook("require_signature")(build.path, Path(key), strict=True)
        result = remote.pull(build, Path(into), tell)
        # A folder that was there already may hold more than what was pushed.
        if key is not None:
            doors.hook("require_signature")(result.path, Path(key), strict=True)
        return result


@as_sentences()
def builds(url: str) -> dict[str, Index]:
    """Return the index of each build in a store by its version, the last pushed one first."""
    return remote.list_versions(_address(url).url)


@as_sentences()
def fetch_build(url: str, *, writable: bool = False, progress: Style = "auto") -> Path:
    """Fetch a build, or an artifact in it, into the user's cache, check it, and return its folder there.

    Args:
        url: For example "s3://bucket/arr-coc-tiny@0123456789abcdef" or "...@0123456789abcdef/onnx".
        writable: True to get a fresh copy that the caller may write to.
        progress: As for `export`.
    """
    address = _address(url)
    with _progress("pull", progress) as tell:
        build = remote.local(address, tell)
        folder = remote.working_copy(build, tell) if writable else build.path
    if not (folder / address.inside).exists():
        possible = ", ".join(build.index.verdicts)
        raise UsageError(f"'{address}' has no '{address.inside}'. Its artifacts: {possible}")
    return folder / address.inside


def _address(url: str) -> Address:
    return remote.address_of(url_of(url) or url)


@contextmanager
def _progress(name: str, progress: Style) -> Iterator[Tell]:
    with listener_for(progress) as listener:
        yield lambda share, text: listener.progress(name, share, text)
        listener.done(name)
