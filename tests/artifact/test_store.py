import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from edgekit.artifact.manifest import File, Manifest, Source, VerdictInfo
from edgekit.artifact.store import MANIFEST, amend, commit, read_artifact
from edgekit.errors import ArtifactError, UsageError
from edgekit.storage.files import staging, sweep

WRITER = """
import os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
stop, count = int(sys.argv[2]), 0

def counted(real):
    def call(*arguments, **named):
        global count
        if count == stop:
            os._exit(9)
        count += 1
        return real(*arguments, **named)
    return call

os.fsync, os.open, os.replace = counted(os.fsync), counted(os.open), counted(os.replace)
Path.replace, Path.mkdir, Path.unlink = counted(Path.replace), counted(Path.mkdir), counted(Path.unlink)
Path.write_bytes = counted(Path.write_bytes)
from edgekit.artifact.manifest import Manifest, Source
from edgekit.artifact.store import commit
from edgekit.storage.files import staging
with staging(Path(sys.argv[1])) as staged:
    (staged / "model.bin").write_bytes(b"new")
    commit(staged, Manifest(name="m", target="t", precision="fp32", entry="model.bin", key="k",
                            source=Source(name="model", sha256="0"), model_sha256="0", files=()))
"""


def blank() -> Manifest:
    source = Source(name="model", sha256="0")
    return Manifest(
        name="m", target="t", precision="fp32", entry="model.bin", key="k", source=source, model_sha256="0", files=()
    )


def make(folder: Path, content: bytes = b"old") -> Manifest:
    with staging(folder) as staged:
        (staged / "model.bin").write_bytes(content)
        (staged / "inner").mkdir()
        (staged / "inner" / "more.bin").write_bytes(content * 2)
        return commit(staged, blank())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made = make(tmp_path / "a")
    assert read_artifact(tmp_path / "a") == made
    assert [f.path for f in made.files] == ["inner/more.bin", "model.bin"]
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_same_content_same_bytes(tmp_path: Path) -> None:
    make(tmp_path / "a")
    make(tmp_path / "elsewhere" / "b")
    one, other = ((tmp_path / p / MANIFEST).read_bytes() for p in ("a", "elsewhere/b"))
    assert one == other


@settings(max_examples=40, deadline=None)
@given(bit=st.integers(0, 8 * 9 - 1))
def test_any_flipped_bit_is_refused(tmp_path_factory: pytest.TempPathFactory, bit: int) -> None:
    folder = tmp_path_factory.mktemp("flip") / "a"
    made = make(folder)
    victims = [folder / f.path for f in made.files]
    whole = b"".join(v.read_bytes() for v in victims)
    assert len(whole) == 9
    position = bit // 8
    victim = victims[0] if position < 6 else victims[1]
    data = bytearray(victim.read_bytes())
    data[position if position < 6 else position - 6] ^= 1 << (bit % 8)
    victim.write_bytes(bytes(data))
    with pytest.raises(ArtifactError, match="damaged"):
        read_artifact(folder)


def test_missing_and_replaced_files_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    make(folder)
    (folder / "model.bin").unlink()
    with pytest.raises(ArtifactError, match="missing"):
        read_artifact(folder)
    (folder / "model.bin").symlink_to("inner/more.bin")
    with pytest.raises(ArtifactError, match="no plain file"):
        read_artifact(folder)


def test_damaged_manifest_is_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    make(folder)
    path = folder / MANIFEST
    whole = path.read_bytes()
    for damaged in (b"", b"{", b"[]", whole[:-20], whole.replace(b'"files"', b'"fires"'), b"\xff" + whole):
        path.write_bytes(damaged)
        with pytest.raises(ArtifactError, match="is damaged"):
            read_artifact(folder)
    with pytest.raises(ArtifactError, match="no artifact in"):
        read_artifact(tmp_path / "nothing")


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../b", "a\\b", "a\0b", "", ".", "./a", "a//b", "C:x"])
def test_a_manifest_names_only_files_inside(path: str) -> None:
    with pytest.raises(ValidationError):
        File(path=path, size=1, sha256="0" * 64)


def test_a_failed_write_leaves_the_old_artifact_alone(tmp_path: Path) -> None:
    make(tmp_path / "a")

    def fail() -> None:
        with staging(tmp_path / "a") as staged:
            (staged / "model.bin").write_bytes(b"half")
            raise RuntimeError("the converter failed")

    with pytest.raises(RuntimeError, match="the converter failed"):
        fail()
    assert read_artifact(tmp_path / "a").files[1].size == 3
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UsageError, match=r"cannot write to '.*file'"), staging(tmp_path / "file" / "a"):
        pass


def test_a_kill_at_any_point_leaves_the_old_artifact_the_new_one_or_none(tmp_path: Path) -> None:
    script = tmp_path / "writer.py"
    script.write_text(WRITER.format(tests=str(Path(__file__).parent)))
    seen: set[bytes] = set()
    stop = 0
    while True:
        folder = tmp_path / f"build-{stop}" / "a"
        make(folder)
        code = subprocess.run([sys.executable, str(script), str(folder), str(stop)], check=False).returncode
        if folder.exists():
            assert read_artifact(folder)
            content = (folder / "model.bin").read_bytes()
            assert content in (b"old", b"new")
            seen.add(content)
        sweep(folder.parent)
        assert read_artifact(folder)
        assert [p.name for p in folder.parent.iterdir()] == ["a"]
        if code == 0:
            break
        assert code == 9
        stop += 1
    assert stop > 10
    assert {b"old", b"new"} <= seen


def test_verdicts_enter_the_manifest(tmp_path: Path) -> None:
    make(tmp_path / "a")
    verdict = VerdictInfo(place="cpu", status="rejected", reason="max abs is 1")
    amended = amend(tmp_path / "a", [verdict], [{"batch": 1}])
    assert amended.rejected
    assert read_artifact(tmp_path / "a") == amended
