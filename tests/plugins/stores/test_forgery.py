"""A signed build, its store, and somebody who can write to both but has not the key."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import edgekit
import edgekit_stores
from edgekit.artifact.manifest import File
from edgekit.errors import EdgekitError
from edgekit.pipeline.outcome import Build
from edgekit.storage.files import digest_bytes
from edgekit.storage.verified_io import seal_record
from edgekit_provenance import signature
from edgekit_serve.models import Models, ServeOptions
from edgekit_stores.index import Index
from tests.keys import NO_LIBRARY, write_keys

pytestmark = NO_LIBRARY
CHANGES = 2000 if os.environ.get("EDGEKIT_SLOW") else 20
EXTRA = (
    "conftest.py",
    ".git/config",
    "onnx/evil.so",
    "model/evil.py",
    "signature/more",
    "imported/evil/.envrc",
    "cache/evil.so",
)


def files_of(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def flip(root: Path, path: str, draw: random.Random) -> None:
    data = bytearray((root / path).read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    (root / path).write_bytes(data)


def cut(root: Path, path: str, draw: random.Random) -> None:
    data = (root / path).read_bytes()
    (root / path).write_bytes(data[: draw.randrange(len(data))])


def lose(root: Path, path: str, draw: random.Random) -> None:
    (root / path).unlink()


def exchange(root: Path, path: str, draw: random.Random) -> None:
    other = draw.choice(sorted(name for name in files_of(root) if name != path))
    (root / path).write_bytes((root / other).read_bytes() + b"\n")


def add(root: Path, path: str, draw: random.Random) -> None:
    extra = root / draw.choice(EXTRA)
    extra.parent.mkdir(parents=True, exist_ok=True)
    extra.write_bytes(b"run me")


KINDS: tuple[Callable[[Path, str, random.Random], None], ...] = (flip, cut, lose, exchange, add)


def publish(build: Path, store: Path) -> None:
    """Put all files of a folder into a store with an index that is right about them, which no signature covers."""
    index = Index.model_validate(
        {
            "name": build.name,
            "verdicts": {"onnx": "verified", "onnx-fp16": "verified"},
            "files": [
                File(path=path, size=len(data), sha256=digest_bytes(data)) for path, data in files_of(build).items()
            ],
        }
    )
    (store / "blobs").mkdir(exist_ok=True)
    for data in files_of(build).values():
        (store / "blobs" / digest_bytes(data)).write_bytes(data)
    (store / "versions" / f"{index.version[:16]}.json").write_bytes(index.data)
    (store / "latest.json").write_text(seal_record({"version": index.version}))


def is_accepted(action: Callable[[], object]) -> bool:
    try:
        action()
    except (EdgekitError, ValueError):  # an index that names a hidden file cannot even be written
        return False
    return True


@pytest.mark.timeout(7200)
def test_no_change_of_a_signed_build_or_its_store_is_accepted(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = write_keys(tmp_path, "release")
    shutil.rmtree(build / "cache", ignore_errors=True)
    signature.sign(Build((), build, "CPU"), signature.signer_of(private))
    store, url = tmp_path / "store" / "small", f"file://{tmp_path}/store/small"
    edgekit_stores.push(build, url, progress="none")
    signed, stored, draw = files_of(build), files_of(store), random.Random(0)
    places, accepted = [(build, path) for path in signed] + [(store, path) for path in stored], []
    for number in range(CHANGES):
        # The same few in every run of the daily test; all files with all kinds in the nightly one.
        home, path = draw.choice(places) if len(places) > CHANGES else places[number % len(places)]
        change = KINDS[number % len(KINDS)] if len(places) > CHANGES else KINDS[number // len(places) % len(KINDS)]
        change(home, path, draw)
        before = signed if home == build else stored
        after = files_of(home)
        changed = {name for name in before.keys() | after.keys() if after.get(name) != before.get(name)}
        monkeypatch.setenv("EDGEKIT_BUILDS", str(tmp_path / "cache"))
        if home == build:
            # A later run may have written these: they are said to be unsigned.
            later = {name for name in changed if signature.LATER.fullmatch(name)}
            # A cache is neither signed nor believed, and no store may bring it.
            if {name for name in changed - later if not name.startswith("cache/")}:
                serving = Models((build,), ("onnx",), ServeOptions(key=public))
                ways = (lambda: edgekit.verify(build, key=public, progress="none"), serving.open)
                accepted += [(change.__name__, path, "opening") for way in ways if is_accepted(way)]
            elif not any(name.endswith("/manifest.json") for name in later):
                assert set(signature.require_signed(build, public).unsigned) == later
            if is_accepted(lambda: publish(build, store)) and is_accepted(
                lambda: edgekit_stores.pull(url, into=tmp_path / "into", key=public, progress="none")
            ):
                accepted.append((change.__name__, path, "pull"))
        # An object that the build does not need may change.
        elif (
            is_accepted(lambda: edgekit_stores.pull(url, into=tmp_path / "into", key=public, progress="none"))
            and files_of(tmp_path / "into" / "small") != signed
        ):
            accepted.append((change.__name__, path, "pull"))
        for folder, files in ((build, signed), (store, stored)):
            restore(folder, files)
        for name in ("cache", "into"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
    assert accepted == []
    edgekit_stores.pull(url, into=tmp_path / "into", key=public, progress="none")
    assert files_of(tmp_path / "into" / "small") == signed


def test_another_signed_model_under_this_ones_name_is_refused(build: Path, tmp_path: Path) -> None:
    """The index is not signed: whoever can write to the store can say that it is of another model."""
    private, public = write_keys(tmp_path, "release")
    shutil.rmtree(build / "cache", ignore_errors=True)
    signature.sign(Build((), build, "CPU"), signature.signer_of(private))
    store, url = tmp_path / "store" / "other", f"file://{tmp_path}/store/other"
    edgekit_stores.push(build, url, progress="none")
    publish(build.rename(tmp_path / "other"), store)
    with pytest.raises(EdgekitError, match="names the model 'other', but its files are of 'small'"):
        edgekit_stores.pull(url, into=tmp_path / "into", key=public, progress="none")
    assert not (tmp_path / "into").exists()


def test_files_that_were_added_to_a_pulled_build_are_found_at_the_next_pull(build: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "release")
    shutil.rmtree(build / "cache", ignore_errors=True)
    signature.sign(Build((), build, "CPU"), signature.signer_of(private))
    url = f"file://{tmp_path}/store/small"
    edgekit_stores.push(build, url, progress="none")
    pulled = edgekit_stores.pull(url, into=tmp_path / "into", key=public, progress="none")
    (pulled.path / ".envrc").write_text("run me")
    with pytest.raises(EdgekitError, match=r"\.envrc"):
        edgekit_stores.pull(url, into=tmp_path / "into", key=public, progress="none")
    with pytest.raises(EdgekitError, match="Leave '/onnx' out of the URL"):
        edgekit_stores.pull(f"{url}@{pulled.address.version}/onnx", into=tmp_path / "into", progress="none")


def restore(folder: Path, files: dict[str, bytes]) -> None:
    for path, data in files_of(folder).items():
        if files.get(path) != data:
            (folder / path).unlink()
    for path, data in files.items():
        if not (folder / path).exists():
            (folder / path).write_bytes(data)
