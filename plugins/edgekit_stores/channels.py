"""Builds in a store, by URL: `s3://BUCKET/NAME@REF`. REF is a version, or a channel that says which version it is.

    NAME/blobs/<sha256>               a file's content
    NAME/versions/<16 digits>.json    the index of a build (`edgekit_stores.index`); its sha256 is the version
    NAME/channels/<channel>.json      which version is in production, or whatever the channel is called

Each channel is an object of its own, so that two people who promote to two channels change nothing of each other's.
`latest` is the version that was pushed last. A channel may carry a signature; its signed text is the record without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgekit.errors import ArtifactError, UsageError
from edgekit.storage import door
from edgekit.storage.files import digest_bytes, dump_json
from edgekit_stores.index import Index, read_index
from edgekit_stores.object_store import Store, in_parallel, open_store

BLOBS, VERSIONS, CHANNELS = "blobs", "versions", "channels"
LATEST = "latest"
SHORT = 16  # digits of a version in names and in what people read
MOST_EARLIER = 50
VERSION, CHANNEL = re.compile(rf"[0-9a-f]{{{SHORT},64}}"), re.compile(r"[a-z][a-z0-9-]{0,39}")
Sign = Callable[[str], dict[str, Any]]
Vouch = Callable[[str, Mapping[str, Any]], None]
"""See that a signature is of a text, by the key that is asked for; raises ArtifactError."""


@dataclass(frozen=True)
class Address:
    """Where a build is.

    Attributes:
        url: Of the builds of one model, in a store.
        ref: A version, of which 16 digits are enough, or a channel.
        inside: Path in the build, for example of an artifact; empty for the build itself.
    """

    url: str
    ref: str = LATEST
    inside: str = ""

    def __str__(self) -> str:
        ref = self.ref[:SHORT] if VERSION.fullmatch(self.ref) else self.ref
        return f"{self.url}@{ref}"


class Channel(BaseModel):
    """Which version of a build a channel is.

    Attributes:
        name: Of the model.
        channel: Its own name.
        version: The index's sha256.
        promoted: Time in UTC, ISO 8601.
        earlier: What it was before, the last first.
        signature: Over all the rest; None where nobody signed it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    name: str
    channel: str
    version: str = Field(pattern="^[0-9a-f]{64}$")
    promoted: str
    earlier: tuple[str, ...] = ()
    signature: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """What is signed."""
        return dump_json(self.model_dump(mode="json", exclude={"signature"}))


@dataclass(frozen=True)
class Listing:
    """The builds at a URL: indexes by version, what was pushed last first, and channels by name."""

    versions: Mapping[str, Index]
    channels: Mapping[str, Channel]

    def as_record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "schema_version": 1,
            "channels": {name: channel.model_dump(mode="json") for name, channel in self.channels.items()},
            "versions": [
                {
                    "version": version,
                    "channels": list(self.of(version)),
                    "name": index.name,
                    "began": index.began,
                    "bytes": index.size,
                    "verdicts": index.verdicts,
                }
                for version, index in self.versions.items()
            ],
        }

    def of(self, version: str) -> tuple[str, ...]:
        """The channels that a version is in."""
        return tuple(name for name, channel in self.channels.items() if channel.version == version)


def address_of(url: str) -> Address:
    """Take a URL apart: `s3://BUCKET/NAME`, `...@REF` or `...@REF/ARTIFACT`.

    Raises:
        UsageError: If what stands behind the @ is neither a version nor a channel.
    """
    scheme, _, rest = url.rstrip("/").partition("://")
    host, slash, path = rest.partition("/")
    place, at, behind = path.rpartition("@")
    if not at:
        return Address(url.rstrip("/"))
    ref, _, inside = behind.partition("/")
    try:
        plain = not inside or door.require_plain(inside)
    except door.RefusedError:
        plain = ""
    if not plain or not (VERSION.fullmatch(ref) or CHANNEL.fullmatch(ref)):
        raise UsageError(
            f"'{behind}' in '{url}' is no version and no channel: a version is {SHORT} to 64 digits of its hash, a "
            "channel small letters, digits and dashes; `edgekit builds URL` lists both"
        )
    return Address(f"{scheme}://{host}{slash}{place}", ref, inside)


def read_channel(store: Store, name: str) -> Channel | None:
    """A channel's record; None where there is none.

    Raises:
        ArtifactError: If it is damaged.
    """
    path = f"{CHANNELS}/{name}.json"
    try:
        record = door.checked_record(store.read(path))
        channel = Channel.model_validate({key: value for key, value in record.items() if key != door.SEAL})
        if channel.channel != name:
            raise door.RefusedError(f"is the channel '{channel.channel}'")
    except door.MissingError:
        return None
    except ValidationError as error:
        why = f"{error.error_count()} fields are not what they should be"
        raise ArtifactError(f"'{store.url}/{path}' is damaged ({why}): remove it, and push or promote again") from error
    except door.RefusedError as error:
        raise ArtifactError(f"'{store.url}/{path}' {error}: remove it, and push or promote again") from error
    return channel


def resolve(address: Address, vouch: Vouch | None = None) -> tuple[str, Index]:
    """The version that an address means, in full, and its index.

    Args:
        address: Without a REF it means the version that was pushed last.
        vouch: Where given, a channel must be signed, `latest` apart, which only says what was pushed.

    Raises:
        UsageError: If the store has no such version or channel.
        ArtifactError: If a record is damaged, or not signed as it must be.
    """
    store, version = open_store(address.url), address.ref
    if not VERSION.fullmatch(version):
        version = _of_channel(store, address, vouch).version
    return _version(store, version)


def _of_channel(store: Store, address: Address, vouch: Vouch | None) -> Channel:
    channel = read_channel(store, address.ref)
    if channel is None and address.ref == LATEST:
        raise UsageError(f"there is no build in '{address.url}': send one with `edgekit push BUILD {address.url}`")
    if channel is None:
        there = ", ".join(sorted(name.removesuffix(".json") for name in store.sizes(CHANNELS)))
        raise UsageError(
            f"'{address.url}' has no channel '{address.ref}': there is {there or 'none'}; "
            f"`edgekit promote {address.url}@VERSION --to {address.ref}` makes it"
        )
    if vouch is not None and address.ref != LATEST:
        if channel.signature is None:
            raise ArtifactError(f"the channel '{address}' is not signed: promote with --sign KEY, or name a version")
        vouch(channel.text, channel.signature)
    return channel


def _version(store: Store, version: str) -> tuple[str, Index]:
    path = f"{VERSIONS}/{version[:SHORT]}.json"
    try:
        data = store.read(path)
        if not (full := digest_bytes(data)).startswith(version):
            raise door.RefusedError("is damaged: its content is not what its version says")
        return full, read_index(data)
    except door.MissingError:
        raise UsageError(
            f"'{store.url}' has no version '{version[:SHORT]}': `edgekit builds {store.url}` lists what there is"
        ) from None
    except door.RefusedError as error:
        raise ArtifactError(f"'{store.url}/{path}' {error}; remove it and push the build again") from error


def promote(address: Address, channel: str, sign: Sign | None = None) -> Channel:
    """Let a channel be a version, after its files were seen to be in the store.

    Args:
        address: The version, or another channel whose version is meant.
        channel: Its name.
        sign: What signs it.

    Raises:
        UsageError: If the name is none for a channel, or there is no such version.
        ArtifactError: If a file of the build is missing, or no artifact in it is verified.
    """
    if channel == LATEST or not CHANNEL.fullmatch(channel) or VERSION.fullmatch(channel):
        raise UsageError(
            f"'{channel}' is no name for a channel: take small letters, digits and dashes, for example production; "
            f"'{LATEST}' is what was pushed last"
        )
    store = open_store(address.url)
    version, index = resolve(address)
    sizes = store.sizes(BLOBS)
    if lost := [file.path for file in index.files if sizes.get(file.sha256) != file.size]:
        raise ArtifactError(f"'{address}' lacks '{lost[0]}' in the store: push the build again")
    if "verified" not in index.verdicts.values():
        raise ArtifactError(f"'{address}' has no verified artifact: promote a build that has one")
    return write_channel(store, channel, index.name, version, sign)


def write_channel(store: Store, name: str, model: str, version: str, sign: Sign | None = None) -> Channel:
    """Write a channel's record."""
    before = read_channel(store, name)
    past = () if before is None else (before.version, *before.earlier)
    earlier = tuple(dict.fromkeys(one for one in past if one != version))[:MOST_EARLIER]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    record = Channel(name=model, channel=name, version=version, promoted=now, earlier=earlier)
    if sign is not None:
        record = record.model_copy(update={"signature": sign(record.text)})
    store.write(f"{CHANNELS}/{name}.json", door.sealed(record.model_dump(mode="json")).encode())
    return record


def listed(url: str) -> Listing:
    """What there is at a URL.

    Raises:
        UsageError: If there is nothing.
        ArtifactError: If a record is damaged.
    """
    store, versions, channels = open_store(url), {}, {}

    def take(name: str) -> None:
        full, index = _version(store, name.removesuffix(".json"))
        versions[full] = index

    in_parallel(take, sorted(store.sizes(VERSIONS)), lambda _: None)
    for name in sorted(store.sizes(CHANNELS)):
        if (channel := read_channel(store, name.removesuffix(".json"))) is not None:
            channels[channel.channel] = channel
    if not versions:
        raise UsageError(f"there is no build in '{url}': send one with `edgekit push BUILD {url}`")
    last = channels.get(LATEST)
    pushed = () if last is None else (last.version, *last.earlier)
    ordered = [version for version in pushed if version in versions] + sorted(versions.keys() - set(pushed))
    return Listing({version: versions[version] for version in ordered}, channels)
