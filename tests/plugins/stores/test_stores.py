"""Stores from Python: a URL in the place of a folder, and signatures."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgekit
import edgekit_stores
from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, UsageError
from edgekit.pipeline.outcome import Build, TargetOutcome
from edgekit.reference import info
from edgekit.report import imports
from edgekit_provenance import bill, signature
from edgekit_stores import index
from tests.keys import NO_LIBRARY, write_keys


@pytest.fixture
def url(tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("EDGEKIT_BUILDS", str(tmp_path / "cache"))
    url = f"file://{tmp_path}/store/small"
    edgekit_stores.push(build, url, progress="none")
    return url


def test_a_url_stands_for_a_folder(url: str, build: Path, tmp_path: Path) -> None:
    assert edgekit.local(build) == build
    folder = edgekit.local(url, progress="none")
    assert edgekit.local(Path(url), progress="none") == folder
    pinned = f"{url}@{index.index_of(build)[0].version}"
    assert edgekit.local(pinned, progress="none") == folder
    assert edgekit.local(f"{pinned}/onnx", progress="none") == folder / "onnx"
    assert edgekit.load(folder / "onnx").manifest == read_artifact(build / "onnx")
    with pytest.raises(UsageError, match=r"has no 'coreml'. Its artifacts: onnx, onnx-fp16"):
        edgekit.local(f"{pinned}/coreml", progress="none")


def test_what_writes_into_a_build_gets_a_copy(url: str) -> None:
    folder, copy = (edgekit.local(url, writable=writable, progress="none") for writable in (False, True))
    assert copy != folder
    (copy / "report.md").write_text("changed")
    assert edgekit.local(url, writable=True, progress="none") == copy
    assert (copy / "report.md").read_bytes() == (folder / "report.md").read_bytes()


def test_exports_stay_here() -> None:
    with pytest.raises(UsageError, match="builds are made locally"):
        edgekit.export("arr-coc-tiny", output="s3://bucket/builds")
    with pytest.raises(UsageError, match="references are recorded locally"):
        edgekit.record("arr-coc-tiny", output=Path("s3://bucket/reference"))


@NO_LIBRARY
def test_with_a_key_the_build_must_be_signed_by_it(url: str, build: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "release")
    _, other = write_keys(tmp_path, "other")
    with pytest.raises(ArtifactError, match="is not signed"):
        edgekit_stores.pull(url, into=tmp_path / "into", key=public, progress="none")
    sign(build, private, "onnx", "onnx-fp16")
    edgekit_stores.push(build, url, progress="none")
    edgekit_stores.pull(url, into=tmp_path / "into", key=public, progress="none")
    with pytest.raises(ArtifactError, match="is by another key"):
        edgekit_stores.pull(url, into=tmp_path / "into", key=other, progress="none")


@NO_LIBRARY
def test_a_build_with_an_artifact_that_is_not_signed_is_not_taken(url: str, build: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "release")
    sign(build, private, "onnx")
    edgekit_stores.push(build, url, progress="none")
    with pytest.raises(ArtifactError, match=r"onnx-fp16/manifest.json' is not in the build's signature"):
        edgekit_stores.pull(url, into=tmp_path / "into", key=public, progress="none")
    assert not (tmp_path / "into").exists()


def sign(build: Path, key: Path, *names: str) -> None:
    outcomes = tuple(
        TargetOutcome(name, build / name, "verified", manifest=read_artifact(build / name)) for name in names
    )
    signature.sign(Build(outcomes, build, "CPU"), False, signature.signer_of(key))


def test_the_index_knows_the_names_of_files_that_other_rooms_write() -> None:
    assert bill.BILL in index.BESIDE[""]
    assert index.BESIDE["reference"] == (info.INFO, info.INPUTS, info.OUTPUTS)
    assert index.BESIDE[signature.FOLDER] == (signature.STATEMENT, signature.SIGNATURE)
    assert index.HEADS[f"{imports.IMPORTED}/*"] == imports.SEAL
