from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.errors import ArtifactError, UsageError
from edgekit_stores import channels, remote
from edgekit_stores.channels import Address, address_of
from edgekit_stores.index import index_of


@pytest.fixture
def url(tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a build was pushed, twice."""
    monkeypatch.setenv("EDGEKIT_BUILDS", str(tmp_path / "cache"))
    url = f"file://{tmp_path}/store/small"
    for text in ("first\n", "second\n"):
        (build / "report.md").write_text(text)
        remote.push(build, address_of(url), lambda share, text: None)
    return url


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("s3://bucket/small", Address("s3://bucket/small")),
        ("s3://bucket/small/", Address("s3://bucket/small")),
        ("s3://bucket/a/small@production", Address("s3://bucket/a/small", "production")),
        ("s3://bucket/small@0123456789abcdef", Address("s3://bucket/small", "0123456789abcdef")),
        ("s3://bucket/small@staging/onnx", Address("s3://bucket/small", "staging", "onnx")),
        ("s3://bucket/me@work/small@staging", Address("s3://bucket/me@work/small", "staging")),
        ("az://box@account/small@staging", Address("az://box@account/small", "staging")),
    ],
)
def test_an_address_has_its_parts(url: str, address: Address) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize("behind", ["", "Production", "a b", "..", "x/../y", "x//y", "x/../../etc"])
def test_what_is_no_version_and_no_channel_is_refused(behind: str) -> None:
    with pytest.raises(UsageError, match="is no version and no channel"):
        address_of(f"s3://bucket/small@{behind}")


def test_a_channel_is_promoted_followed_and_taken_back(url: str, build: Path) -> None:
    second, first = index_of(build)[0].version, sorted(channels.listed(url).versions)
    first.remove(second)
    channels.promote(Address(url, first[0][:16]), "staging")
    channels.promote(Address(url, "staging"), "production")
    assert channels.resolve(Address(url, "production"))[0] == first[0]
    channels.promote(Address(url), "production")
    done = channels.promote(Address(url, "latest"), "production")
    assert (done.version, done.earlier) == (second, (first[0],))
    back = channels.promote(Address(url, done.earlier[0]), "production")
    assert (back.version, back.earlier) == (first[0], (second,))
    listing = channels.listed(url)
    assert list(listing.versions) == [second, first[0]]
    assert listing.of(first[0]) == ("production", "staging")
    assert listing.of(second) == ("latest",)
    assert {one["version"] for one in listing.as_record()["versions"]} == {first[0], second}


@pytest.mark.parametrize("name", ["latest", "Production", "a/b", "", "0123456789abcdef", "../x"])
def test_a_channel_has_a_plain_name(url: str, name: str) -> None:
    with pytest.raises(UsageError, match="is no name for a channel"):
        channels.promote(Address(url), name)


def test_a_version_that_is_not_whole_is_not_promoted(url: str, tmp_path: Path) -> None:
    blob = max((tmp_path / "store" / "small" / "blobs").iterdir(), key=lambda path: path.stat().st_size)
    blob.write_bytes(blob.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=r"lacks .* in the store: push the build again"):
        channels.promote(Address(url), "production")
    blob.unlink()
    with pytest.raises(ArtifactError, match=r"lacks"):
        channels.promote(Address(url), "production")


def test_a_channel_in_the_place_of_another_is_refused(url: str, tmp_path: Path) -> None:
    home = tmp_path / "store" / "small" / "channels"
    (home / "production.json").write_bytes((home / "latest.json").read_bytes())
    with pytest.raises(ArtifactError, match="is the channel 'latest'"):
        channels.resolve(Address(url, "production"))


def test_what_is_not_there_is_named(url: str) -> None:
    with pytest.raises(UsageError, match="has no channel 'production': there is latest"):
        channels.resolve(Address(url, "production"))
    with pytest.raises(UsageError, match="has no version '0000000000000000'"):
        channels.resolve(Address(url, "0" * 16))
    with pytest.raises(UsageError, match="there is no build in"):
        channels.listed(f"{url}-none")


def test_another_index_under_the_name_of_a_version_is_refused(url: str, tmp_path: Path) -> None:
    one, other = sorted((tmp_path / "store" / "small" / "versions").iterdir())
    one.write_bytes(other.read_bytes())
    with pytest.raises(ArtifactError, match="its content is not what its version says"):
        channels.resolve(Address(url, one.stem))
