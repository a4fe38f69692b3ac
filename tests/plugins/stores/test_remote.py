"""Builds go to a store and come back whole, or not at all."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from edgekit.artifact.manifest import File, VerdictSummary
from edgekit.errors import ArtifactError, EdgekitError, HostError, UsageError
from edgekit.storage import verified_io
from edgekit.storage.files import digest_bytes, dump_json
from edgekit_stores import object_store, remote
from edgekit_stores.index import Index, index_of
from edgekit_stores.remote import Address, address_of
from tests import interrupted
from tests.manifests import resealed
from tests.object_store import BUSY, HALF, LATE, S3, TIMEOUT, killing, objects

URL = "s3://bucket/small"
KILLS = 50 if os.environ.get("EDGEKIT_SLOW") else 3


def told(share: float, text: str) -> None:
    assert 0 <= share <= 1
    assert text


def push(build: Path, url: str = URL) -> remote.Transfer:
    return remote.push(build, address_of(url), told)


def pull(into: Path, url: str = URL) -> remote.Transfer:
    return remote.pull(remote.local(address_of(url), told), into, told)


def contents(folder: Path) -> dict[str, bytes]:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith("cache/")}


def change(build: Path) -> None:
    """Another build: one small file differs."""
    (build / "report.md").write_text("another report\n")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("s3://bucket/small", Address("s3://bucket/small")),
        ("s3://bucket/small/", Address("s3://bucket/small")),
        ("s3://bucket/a/small@0123456789abcdef", Address("s3://bucket/a/small", "0123456789abcdef")),
        ("s3://bucket/small@0123456789abcdef/onnx", Address("s3://bucket/small", "0123456789abcdef", "onnx")),
        ("s3://bucket/me@work/small@0123456789abcdef", Address("s3://bucket/me@work/small", "0123456789abcdef")),
        ("az://box@account/small@0123456789abcdef", Address("az://box@account/small", "0123456789abcdef")),
    ],
)
def test_an_address_has_its_parts(url: str, address: Address) -> None:
    assert address_of(url) == address


VERSION = "0123456789abcdef"


@pytest.mark.parametrize("behind", ["", "production", "a b", "..", "0123", f"{VERSION}/../y", f"{VERSION}/y//z"])
def test_what_is_no_version_is_refused(behind: str) -> None:
    with pytest.raises(UsageError, match="is not a version"):
        address_of(f"s3://bucket/small@{behind}")


def test_the_last_pushed_version_comes_first(build: Path, tmp_path: Path, cache: Path) -> None:
    url = f"file://{tmp_path}/store/small"
    versions = []
    for text in ("first\n", "second\n", "first\n"):
        (build / "report.md").write_text(text)
        versions.append(push(build, url).index.version)
        assert remote.resolve(Address(url))[0] == versions[-1]
    assert list(remote.list_versions(url)) == versions[:0:-1]
    assert remote.resolve(Address(url, versions[1][:16]))[0] == versions[1]


def test_what_is_not_in_the_store_is_named(build: Path, tmp_path: Path, cache: Path) -> None:
    url = f"file://{tmp_path}/store/small"
    push(build, url)
    with pytest.raises(UsageError, match="has no version '0000000000000000'"):
        remote.resolve(Address(url, "0" * 16))
    with pytest.raises(UsageError, match="no build in"):
        remote.list_versions(f"{url}-none")


def test_another_index_under_the_name_of_a_version_is_refused(build: Path, tmp_path: Path, cache: Path) -> None:
    url = f"file://{tmp_path}/store/small"
    push(build, url)
    change(build)
    push(build, url)
    path, other = sorted((tmp_path / "store" / "small" / "versions").iterdir())
    path.write_bytes(other.read_bytes())
    with pytest.raises(ArtifactError, match="its content does not match its version"):
        remote.resolve(Address(url, path.stem))


def test_a_latest_record_without_a_version_is_refused(build: Path, tmp_path: Path, cache: Path) -> None:
    url = f"file://{tmp_path}/store/small"
    push(build, url)
    (tmp_path / "store" / "small" / "latest.json").write_text(verified_io.seal_record({"version": "../x"}))
    with pytest.raises(ArtifactError, match="names no version"):
        remote.resolve(Address(url))


def test_a_build_comes_back_as_it_was(s3: S3, build: Path, tmp_path: Path) -> None:
    (build / "notes.txt").write_text("mine")
    sent = push(build)
    assert (sent.moved, sent.left_out) == (len({f.sha256 for f in sent.index.files}), ("notes.txt",))
    back = pull(tmp_path / "back")
    assert back.path == tmp_path / "back" / "small"
    (build / "notes.txt").unlink()
    assert contents(back.path) == contents(build)
    assert str(back.address) == f"{URL}@{sent.index.version[:16]}"


def test_a_second_push_sends_no_blob_and_a_changed_build_what_changed(s3: S3, build: Path, tmp_path: Path) -> None:
    first = push(build)
    s3.requests.clear()
    assert (push(build).moved, objects(s3)) == (0, [])
    change(build)
    second = push(build)
    assert (second.moved, len(objects(s3))) == (1, 1)
    pull(tmp_path / "old", f"{URL}@{first.index.version}")
    s3.requests.clear()
    assert pull(tmp_path / "new").moved == 1  # the rest lies in the cache
    assert len(objects(s3, "GET")) == 1
    assert contents(tmp_path / "new" / "small") == contents(build)


def test_a_version_in_the_cache_needs_no_store(s3: S3, build: Path, tmp_path: Path) -> None:
    version = push(build).index.version
    pull(tmp_path / "a")
    s3.requests.clear()
    pull(tmp_path / "b", f"{URL}@{version[:16]}")
    assert s3.requests == []


def test_what_somebody_wrote_into_the_cache_is_fetched_again(s3: S3, build: Path, tmp_path: Path) -> None:
    push(build)
    cached = remote.local(address_of(URL), told).path
    model = cached / "onnx" / "model.onnx"
    model.write_bytes(model.read_bytes()[:-1] + b"!")
    assert remote.local(address_of(URL), told).moved == 1
    assert contents(cached) == contents(build)


def test_a_folder_that_is_no_whole_build_is_in_the_way_of_a_pull(s3: S3, build: Path, tmp_path: Path) -> None:
    push(build)
    mine = tmp_path / "into" / "small" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(UsageError, match=r"small' exists and is not a complete build.* --into"):
        pull(tmp_path / "into")
    assert mine.read_text() == "mine"


@pytest.mark.nightly(but=("half",))
@pytest.mark.parametrize("fault", [BUSY, HALF, LATE])
def test_a_store_that_fails_now_and_then_is_asked_again(
    s3: S3, build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Every ninth answer is a 503, ends in the middle, or comes too late."""
    if fault == LATE:
        monkeypatch.setitem(object_store.S3_SETTINGS["config_kwargs"], "read_timeout", TIMEOUT)
    s3.fault = lambda method, path, number: fault if number % 9 == 3 else ""
    push(build)
    pull(tmp_path / "into")
    assert contents(tmp_path / "into" / "small") == contents(build)


@pytest.mark.nightly
def test_a_store_that_always_fails_is_one_sentence_and_what_was_sent_is_kept(
    s3: S3, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 2)
    s3.fault = lambda method, path, number: BUSY if "/blobs/" in path and len(objects(s3)) > 9 else ""
    with pytest.raises(HostError, match="run the same command again"):
        push(build)
    s3.quiet()
    with pytest.raises(UsageError, match="no build in"):
        remote.local(address_of(URL), told)
    sent = push(build)
    assert 0 < sent.moved < len({f.sha256 for f in sent.index.files})


@pytest.mark.parametrize("position", [0.0, 0.5, 1.0])
def test_a_flipped_bit_in_the_store_is_refused(build: Path, tmp_path: Path, position: float, cache: Path) -> None:
    url = f"file://{tmp_path}/store/small"
    push(build, url)
    for blob in sorted((tmp_path / "store" / "small").rglob("*")):
        if blob.is_file() and blob.stat().st_size:
            whole = blob.read_bytes()
            damaged = bytearray(whole)
            damaged[int(position * (len(damaged) - 1))] ^= 1
            blob.write_bytes(bytes(damaged))
            with pytest.raises(EdgekitError, match=r"is damaged|is not as it was written"):
                remote.local(address_of(url), told)
            assert not list(cache.rglob("model.onnx"))
            blob.write_bytes(whole)
            shutil.rmtree(cache, ignore_errors=True)
    pull(tmp_path / "into", url)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_BUILDS", str(tmp_path / "cache"))
    return tmp_path / "cache"


HOSTILE = ["../up", "/etc/passwd", "a/../../b", "model/../../x", "a\\b", "C:x", "onnx", "onnx/manifest.json"]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_index_is_refused(build: Path, tmp_path: Path, cache: Path, path: str) -> None:
    """Also paths that are a folder of others, or there already; whoever wrote it gave it its right version."""
    url = f"file://{tmp_path}/store/small"
    push(build, url)
    index, _ = index_of(build)
    record = index.model_dump(mode="json", exclude_none=True)
    record["files"].append({"path": path, "size": 1, "sha256": digest_bytes(b"!")})
    data = dump_json(record).encode()
    version = digest_bytes(data)
    home = tmp_path / "store" / "small"
    (home / "blobs" / digest_bytes(b"!")).write_bytes(b"!")
    (home / "versions" / f"{version[:16]}.json").write_bytes(data)
    before = {str(one) for one in tmp_path.rglob("*")}
    with pytest.raises(ArtifactError, match="is not an index of a build"):
        pull(tmp_path / "into", f"{url}@{version}")
    assert {str(one) for one in tmp_path.rglob("*")} == before


def test_an_index_that_says_verified_of_what_is_not_is_refused(build: Path, tmp_path: Path, cache: Path) -> None:
    rejected = VerdictSummary(place="cpu", status="rejected", reason="it is wrong")
    resealed(build / "onnx", verdicts=(rejected,))
    url = f"file://{tmp_path}/store/small"
    push(build, url)
    index, _ = index_of(build)
    assert index.verdicts == {"onnx": "rejected", "onnx-fp16": "verified"}
    false = index.model_copy(update={"verdicts": {**index.verdicts, "onnx": "verified"}})
    (tmp_path / "store" / "small" / "versions" / f"{false.version[:16]}.json").write_bytes(false.data)
    with pytest.raises(ArtifactError, match="differs from its manifests"):
        pull(tmp_path / "into", f"{url}@{false.version}")


def test_links_are_not_pushed(build: Path, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (build / "report.md").unlink()
    (build / "report.md").symlink_to(tmp_path / "secret")
    with pytest.raises(ArtifactError, match="lies behind a link"):
        push(build, f"file://{tmp_path}/store/small")


def test_a_damaged_build_is_not_pushed(build: Path, tmp_path: Path, cache: Path) -> None:
    weights = build / "program" / "program.pt2"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(ArtifactError, match="damaged"):
        push(build, f"file://{tmp_path}/store/small")


def test_another_model_is_not_pushed_to_the_same_place(build: Path, tmp_path: Path, cache: Path) -> None:
    url = f"file://{tmp_path}/store/other"
    sent = push(build, url)
    other = sent.index.model_copy(update={"name": "other"})
    store = object_store.open_store(url)
    store.write(f"versions/{other.version[:16]}.json", other.data)
    store.write("latest.json", verified_io.seal_record({"version": other.version}).encode())
    with pytest.raises(UsageError, match="holds builds of 'other'"):
        push(build, url)


@pytest.mark.nightly
def test_work_that_nobody_pushed_is_not_replaced(s3: S3, build: Path, tmp_path: Path) -> None:
    push(build)
    change(build)
    with pytest.raises(UsageError, match="holds another build"):
        pull(build.parent)
    push(build)
    (build / "notes.txt").write_text("mine")
    other = next(version for version in remote.list_versions(URL) if version != index_of(build)[0].version)
    with pytest.raises(UsageError, match=r"notes.txt' exists"):
        pull(build.parent, f"{URL}@{other}")
    (build / "notes.txt").unlink()
    pull(build.parent, f"{URL}@{other}")
    assert index_of(build)[0].version == other


def test_two_pushes_at_once_leave_two_whole_builds(s3: S3, build: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(build, tmp_path / "other" / "small"))
    change(other)
    threads = [threading.Thread(target=push, args=(folder,)) for folder in (build, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for folder in (build, other):
        version = index_of(folder)[0].version
        pull(tmp_path / version, f"{URL}@{version}")
        assert contents(tmp_path / version / "small") == contents(folder)
    assert set(remote.list_versions(URL)) == {index_of(folder)[0].version for folder in (build, other)}


def _push(build: str, url: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    remote.push(Path(build), address_of(url), lambda share, text: None)


def _pull(into: str, url: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    remote.pull(remote.local(address_of(url), lambda share, text: None), Path(into), lambda share, text: None)


@pytest.mark.nightly
@pytest.mark.parametrize("work", ["push", "pull"])
def test_a_kill_at_any_request_leaves_nothing_half_done(s3: S3, build: Path, tmp_path: Path, work: str) -> None:
    """A process is killed when the server gets its nth request, before or after that is carried out."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "s3fs"])
    dice, killed, whole = random.Random(7), 0, contents(build)
    push(build)
    requests = len(s3.requests) if work == "push" else len(index_of(build)[0].files)
    for kill in range(KILLS):
        at, when = dice.randrange(requests), dice.choice(("before", "after"))
        into, url = tmp_path / f"into-{kill}", f"{URL}-{kill}" if work == "push" else URL
        shutil.rmtree(remote.cache(), ignore_errors=True)
        call, folder = (_push, build) if work == "push" else (_pull, into)
        process = context.Process(target=call, args=(str(folder), url, dict(os.environ)))
        s3.quiet()
        setattr(s3, when, killing(process, at))
        process.start()
        process.join(120)
        s3.quiet()
        assert process.exitcode in (0, -signal.SIGKILL)
        killed += process.exitcode != 0
        assert not into.exists() or contents(into / "small") == whole
        if "latest.json" in object_store.open_store(url).sizes(""):
            pull(into, url)
            assert contents(into / "small") == whole
        push(build, url)
        pull(into, url)
        assert contents(into / "small") == whole
        assert [path.name for path in into.iterdir()] == ["small"]
    assert killed > KILLS * 0.8


@pytest.mark.nightly
def test_a_kill_at_any_call_of_a_push_into_a_folder_is_invisible(build: Path, tmp_path: Path, cache: Path) -> None:
    calls = interrupted.run(tmp_path, lambda: push(build, f"file://{tmp_path}/whole/small")).calls
    for stop in interrupted.spread(calls, 50 if os.environ.get("EDGEKIT_SLOW") else 12):
        url = f"file://{tmp_path}/store-{stop}/small"
        assert interrupted.run(tmp_path, partial(push, build, url), stop).how in ("killed", "done")
        try:
            versions = tuple(remote.list_versions(url))
        except UsageError:
            versions = ()
        for version in versions:
            pull(tmp_path / f"into-{stop}", f"{url}@{version}")
        push(build, url)
        assert not list((tmp_path / f"store-{stop}").rglob("*.tmp"))


@pytest.mark.nightly
def test_a_kill_at_any_call_of_a_pull_leaves_no_folder_or_a_whole_one(build: Path, tmp_path: Path, cache: Path) -> None:
    url = f"file://{tmp_path}/store/small"
    push(build, url)
    calls = interrupted.run(tmp_path, lambda: pull(tmp_path / "whole", url)).calls
    for stop in interrupted.spread(calls, 50 if os.environ.get("EDGEKIT_SLOW") else 12):
        shutil.rmtree(cache, ignore_errors=True)
        into = tmp_path / f"into-{stop}"
        interrupted.run(tmp_path, partial(pull, into, url), stop)
        assert not (into / "small").exists() or contents(into / "small") == contents(build)
        pull(into, url)
        assert [path.name for path in into.iterdir()] == ["small"]
        assert contents(into / "small") == contents(build)


@pytest.mark.nightly
def test_what_was_fetched_before_a_stop_is_not_fetched_again(
    s3: S3, build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 2)
    push(build)
    s3.requests.clear()
    s3.fault = lambda method, path, number: BUSY if len(objects(s3, "GET")) > 9 else ""
    with pytest.raises(HostError):
        pull(tmp_path / "into")
    s3.quiet()
    pull(tmp_path / "into")
    whole = {file.sha256 for file in index_of(build)[0].files}
    assert 0 < len(objects(s3, "GET")) < len(whole)
    assert contents(tmp_path / "into" / "small") == contents(build)


def test_an_index_has_no_word_of_this_host(build: Path, tmp_path: Path) -> None:
    index, _ = index_of(build)
    assert str(tmp_path).encode() not in index.data
    moved = Path(shutil.copytree(build, tmp_path / "elsewhere"))
    assert index_of(moved)[0] == index
    assert isinstance(index, Index)
    assert all(isinstance(file, File) for file in index.files)
    assert str(Address(URL, index.version)) == f"{URL}@{index.version[:16]}"
    assert set(index.verdicts) == {"onnx", "onnx-fp16"}


def test_every_file_of_a_build_is_pushed(build: Path) -> None:
    """A file of a new kind must be declared in `edgekit_stores.index`."""
    _, left_out = index_of(build)
    assert left_out == ()
