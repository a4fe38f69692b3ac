from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest

from edgekit.errors import DependencyError, HostError, UsageError, install_command
from edgekit.storage.files import require_folder, url_of
from edgekit.storage.verified_io import LARGEST_RECORD, MissingError, RefusedError
from edgekit_stores import object_store
from edgekit_stores.object_store import in_parallel, open_store
from tests.object_store import HALF, S3


@pytest.fixture(params=["s3://bucket/place", "file://{}/place", "memory://place/{}"])
def url(request: pytest.FixtureRequest, s3: S3, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path if "file" in request.param else tmp_path.name)


def test_objects_are_written_read_and_listed(url: str, tmp_path: Path) -> None:
    store = open_store(f"{url}/")
    assert store.sizes("blobs") == {}
    with pytest.raises(MissingError):
        store.read("blobs/a")
    store.write("blobs/a", b"first")
    store.write("blobs/a", b"other")
    (tmp_path / "b").write_bytes(b"b" * 1000)
    store.send("blobs/b", tmp_path / "b")
    assert store.sizes("blobs") == {"a": 5, "b": 1000}
    assert store.read("blobs/a") == b"other"
    store.fetch("blobs/b", tmp_path / "back", 1000)
    assert (tmp_path / "back").read_bytes() == b"b" * 1000
    with pytest.raises(RefusedError, match="has more than 999 bytes instead of 999"):
        store.fetch("blobs/b", tmp_path / "back", 999)


def test_a_record_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/place")
    store.write("a", b"0" * (LARGEST_RECORD + 1))
    with pytest.raises(RefusedError, match="is larger than"):
        store.read("a")


def test_a_large_file_is_sent_in_parts_and_comes_back(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that ends early is asked for again."""
    monkeypatch.setattr("s3fs.core.calculate_chunksize", lambda size, chunksize=None: 5 << 20)
    data = bytes(range(256)) * (11 << 12)
    (tmp_path / "a").write_bytes(data)
    store = open_store("s3://bucket/place")
    store.send("a", tmp_path / "a")
    assert sum("partNumber" in query for query in s3.queries) == 3
    s3.fault = lambda method, path, number: HALF if number == len(s3.requests) - 1 and number % 2 else ""
    store.fetch("a", tmp_path / "b", len(data))
    assert (tmp_path / "b").read_bytes() == data


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://a/b", "s3://a/b"),
        (Path("s3://a/b"), "s3://a/b"),
        ("file:///srv/a", "file:///srv/a"),
        (Path("file:///srv/a"), "file:///srv/a"),
        ("build/small", ""),
        (Path("/srv/build"), ""),
        ("torch:build", ""),
    ],
)
def test_a_path_is_told_from_a_url(text: str | Path, url: str) -> None:
    assert url_of(text) == url


def test_an_output_is_a_folder() -> None:
    require_folder("build", "builds are made")
    with pytest.raises(
        UsageError, match=r"^'s3://a/b' is not a folder: builds are made locally.*edgekit push BUILD s3://a/b/"
    ):
        require_folder(Path("s3://a/b/"), "builds are made")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("s4://bucket/place", "is not a store's URL. Possible: s3://"),
        ("build/small", "is not a store's URL. Possible: s3://, gs://, az://, hf://, file://"),
        ("s3://bucket", "names no place for a build"),
        ("s3://bucket//place", "names no place for a build"),
        ("s3://", "names no place for a build"),
        ("file://nowhere/place", "where '/nowhere' does not exist"),
    ],
)
def test_a_wrong_url_is_one_sentence(url: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        open_store(url)


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(scheme: str) -> Any:
        raise ImportError("Install s3fs")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(DependencyError, match=re.escape(f"not installed. Run: {install_command('s3')}")):
        open_store("s3://bucket/place")
    with pytest.raises(DependencyError, match="pip install gcsfs"):
        open_store("gs://bucket/place")


def test_a_bucket_that_is_missing_is_named(s3: S3, tmp_path: Path) -> None:
    store = open_store("s3://nothing/place")
    for work in (lambda: store.write("a", b""), lambda: store.read("a")):
        with pytest.raises(UsageError, match=r"cannot use 's3://nothing/place' .*Name an existing bucket"):
            work()


def test_missing_credentials_are_named(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UsageError, match=r"denies access .*credentials"):
        open_store("s3://bucket/place").read("a")


def test_a_store_out_of_reach_is_named(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    with pytest.raises(HostError, match=r"s3://bucket/place' cannot be reached .*Check the network"):
        open_store("s3://bucket/place").read("a")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "place").write_text("a file")
    with pytest.raises(UsageError, match=r"cannot be used .*Choose another place"):
        open_store(f"file://{tmp_path}/place").write("a", b"")


def test_work_is_done_a_few_at_once_and_the_first_error_ends_it() -> None:
    running, most, done, lock = set[int](), [0], list[int](), threading.Lock()

    def work(item: int) -> None:
        with lock:
            running.add(item)
            most[0] = max(most[0], len(running))
        if item == 20:
            raise UsageError("no more")
        with lock:
            running.discard(item)

    in_parallel(work, range(10), done.append)
    assert sorted(done) == list(range(10))
    assert 1 <= most[0] <= object_store.AT_ONCE
    with pytest.raises(UsageError, match="no more"):
        in_parallel(work, range(20, 1000), done.append)
    assert len(done) < 500
    in_parallel(work, [], done.append)
