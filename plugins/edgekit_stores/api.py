"""Builds in object stores, from Python: push, pull, promote, list, and a URL wherever a build's folder is taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.progress import Style, shown
from edgekit.storage.address import url_of
from edgekit.storage.host_errors import as_sentences
from edgekit_stores import channels, remote

if TYPE_CHECKING:
    from edgekit_stores.channels import Address, Channel, Listing, Vouch
    from edgekit_stores.remote import Tell, Transfer


@as_sentences()
def push(build: str | Path, url: str, *, progress: Style = "auto") -> Transfer:
    """Send a build to a store: what it has not, and last the index, which makes the build visible.

    Args:
        build: A model's build folder.
        url: Where the builds of this model are, for example "s3://bucket/arr-coc-tiny".
        progress: As for `export`.
    """
    with _told("push", progress) as tell:
        return remote.push(Path(build), _address(url), tell)


@as_sentences()
def pull(url: str, *, into: str | Path = "build", key: str | Path | None = None, progress: Style = "auto") -> Transfer:
    """Take a build from a store, all of it checked; it lies in `into` under the model's name.

    Args:
        url: For example "s3://bucket/arr-coc-tiny@production"; without a version or channel, what was pushed last.
        into: A folder of builds.
        key: Public ECDSA key (PEM) of whoever must have signed the build, and the channel that it is taken by.
        progress: As for `export`.
    """
    with _told("pull", progress) as tell:
        return remote.pull(_taken(_address(url), key, tell), Path(into), tell)


@as_sentences()
def promote(url: str, to: str, *, sign: str | Path | None = None) -> Channel:
    """Let a channel be a version of a build.

    Args:
        url: The build with its version, or with another channel.
        to: The channel, for example "production".
        sign: Private ECDSA key (PEM) to sign the channel's record with.
    """
    if sign is None:
        return channels.promote(_address(url), to)
    from edgekit_provenance import signature

    return channels.promote(_address(url), to, partial(signature.sign_text, signer=signature.signer_of(Path(sign))))


@as_sentences()
def builds(url: str) -> Listing:
    """The versions of a build in a store, and its channels."""
    return channels.listed(_address(url).url)


@as_sentences()
def local(
    build: str | Path, *, key: str | Path | None = None, writable: bool = False, progress: Style = "auto"
) -> Path:
    """The folder of a build, or of an artifact in it, that a path or a URL names.

    A path is returned as it is. What a URL names is taken from the user's cache, or fetched into it, and checked.

    Args:
        build: A path, or a URL such as "s3://bucket/arr-coc-tiny@production" or "...@production/onnx".
        key: Public ECDSA key (PEM) by which a channel must be signed; the build's own signature is not checked here.
        writable: Whether the caller writes into the build: it is then a fresh copy.
        progress: As for `export`.
    """
    if not (url := url_of(build)):
        return Path(build)
    address = _address(url)
    with _told("pull", progress) as tell:
        found = remote.local(address, tell, _vouch(address, key))
        folder = remote.working_copy(found, tell) if writable else found.path
    if not (folder / address.inside).exists():
        there = ", ".join(found.index.verdicts)
        raise UsageError(f"'{address}' has no '{address.inside}': its artifacts are {there}")
    return folder / address.inside


@as_sentences()
def pinned(url: str, *, key: str | Path | None = None) -> str:
    """The URL of the version that a channel is now: whoever follows a channel asks this, and takes what is new."""
    address = _address(url)
    version, _ = channels.resolve(address, _vouch(address, key))
    return f"{address.url}@{version}{'/' if address.inside else ''}{address.inside}"


def _taken(address: Address, key: str | Path | None, tell: Tell) -> Transfer:
    found = remote.local(address, tell, _vouch(address, key))
    if key is not None:
        from edgekit_provenance import signature

        signature.require_whole(found.path, Path(key))
    return found


def _vouch(address: Address, key: str | Path | None) -> Vouch | None:
    if key is None:
        return None
    from edgekit_provenance import signature

    return partial(signature.require_text, key=Path(key), name=str(address))


def _address(url: str) -> Address:
    return channels.address_of(url_of(url) or url)


@contextmanager
def _told(name: str, progress: Style) -> Iterator[Tell]:
    with shown(progress) as listener:
        yield lambda share, text: listener.progress(name, share, text)
        listener.done(name)
