"""Stores from Python: a URL in the place of a folder, and signatures."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import edgekit
import edgekit_stores
from edgekit.artifact.store import amend, read_artifact
from edgekit.errors import ArtifactError, UsageError
from edgekit.pipeline.outcome import Build, TargetOutcome
from edgekit.reference import info
from edgekit.report import imports
from edgekit.storage.files import dump_json, load_json
from edgekit.storage.verified_io import RefusedError
from edgekit_provenance import bill, signature
from edgekit_stores import index
from edgekit_stores.object_store import open_store
from tests.command import exit_code
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


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("record", ["latest.json", "versions/*.json", "blobs/*"])
@pytest.mark.parametrize("replace", [a_pipe, a_device])
def test_a_record_that_never_ends_is_one_sentence(
    replace: Callable[[Path], None], record: str, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path / "store" / "small").glob(record):
        path.unlink()
        replace(path)
    capfd.readouterr()
    assert exit_code("pull", url, "--into", tmp_path / "into") == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("edgekit: ")]
    assert "is not a regular file" in line
    assert not (tmp_path / "into").exists()


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


def result_of_a_later_run(build: Path) -> None:
    amend(build / "onnx-fp16", read_artifact(build / "onnx-fp16").verdicts, {"scores-gpu.safetensors": b"others"})


def record_that_nobody_signed(build: Path) -> None:
    (build / "signature" / "records" / "evil.json").write_text("{}")


@NO_LIBRARY
@pytest.mark.parametrize("change", [result_of_a_later_run, record_that_nobody_signed])
def test_what_was_written_after_signing_is_not_taken(
    url: str, build: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    private, public = write_keys(tmp_path, "release")
    sign(build, private, "onnx")
    change(build)
    edgekit_stores.push(build, url, progress="none")
    with pytest.raises(ArtifactError, match=r"signed|signature"):
        edgekit_stores.pull(url, into=tmp_path / "into", key=public, progress="none")
    assert not (tmp_path / "into").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda files: [*files, {**files[0], "path": ".git/config"}], "hidden or unusual file '.git/config'"),
        (lambda files: [*files, {**files[0], "path": "onnx/.envrc"}], "hidden or unusual file 'onnx/.envrc'"),
        (lambda files: [*files, {**files[0], "path": "onnx/\u202egnp.so"}], "not a plain relative path|unusual file"),
        (lambda files: [*files, {**files[0], "path": files[0]["path"].upper()}], "names one path twice"),
        (lambda files: [{**files[0], "size": 1 << 50}, *files[1:]], "more than 256 GiB"),
    ],
)
def test_an_index_that_names_what_no_build_holds_is_refused(
    build: Path, change: Callable[[list[dict[str, object]]], list[dict[str, object]]], sentence: str
) -> None:
    record = load_json(index.index_of(build)[0].data)
    record["files"] = change(record["files"])
    with pytest.raises(RefusedError, match=sentence):
        index.read_index(dump_json(record).encode())


def test_an_object_that_is_larger_than_its_index_says_is_not_fetched_whole(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path / 'store'}")
    (tmp_path / "store").mkdir(exist_ok=True)
    (tmp_path / "store" / "large").write_bytes(bytes(50 << 20))
    with pytest.raises(RefusedError, match=r"more than 100 instead of 100|more than 100 bytes"):
        store.fetch("large", tmp_path / "here", 100)
    assert (tmp_path / "here").stat().st_size == 101


def test_a_damaged_reference_and_a_pipe_are_not_pushed(build: Path) -> None:
    os.mkfifo(build / "report.csv.tmp")
    (build / "report.csv").unlink()
    os.mkfifo(build / "report.csv")
    assert "report.csv" not in [file.path for file in index.index_of(build)[0].files]
    outputs = build / "reference" / "outputs.safetensors"
    data = bytearray(outputs.read_bytes())
    data[-1] ^= 1
    outputs.write_bytes(bytes(data))
    with pytest.raises(ArtifactError, match=r"reference of .* is damaged"):
        index.index_of(build)


def sign(build: Path, key: Path, *names: str) -> None:
    outcomes = tuple(
        TargetOutcome(name, build / name, "verified", manifest=read_artifact(build / name)) for name in names
    )
    signature.sign(Build(outcomes, build, "CPU"), signature.signer_of(key))


def test_the_index_knows_the_names_of_files_that_other_rooms_write() -> None:
    assert bill.BILL in index.BESIDE[""]
    assert index.BESIDE["reference"] == (info.INFO, info.INPUTS, info.OUTPUTS)
    assert signature.FOLDER == index.SIGNATURE
    assert index.HEADS[f"{imports.IMPORTED}/*"] == imports.SEAL


def test_a_file_that_was_damaged_in_the_cache_is_fetched_again(url: str, build: Path) -> None:
    outputs = edgekit.local(url, progress="none") / "reference" / "outputs.safetensors"
    whole = outputs.read_bytes()
    outputs.unlink()
    outputs.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert (edgekit.local(url, progress="none") / "reference" / "outputs.safetensors").read_bytes() == whole
