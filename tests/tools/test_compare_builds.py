from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.apps import toy
from tools.compare_builds import MAY_DIFFER

TOOL = Path(__file__).parents[2] / "tools" / "compare_builds.py"
PTE = "executorch/model.pte"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.build(tmp_path_factory.mktemp("one") / "toy")


@pytest.fixture
def pair(built: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A build and a copy of it."""
    return built, Path(shutil.copytree(built, tmp_path / "other"))


def ran(one: Path, other: Path) -> tuple[int, dict[str, str], str]:
    """Exit code, what was said of each target, standard error."""
    command = [sys.executable, str(TOOL), str(one), str(other)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line.split(maxsplit=3) for line in done.stdout.splitlines()[:-1]]
    return done.returncode, {line[0]: line[3] for line in lines}, done.stderr


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def consistent(folder: Path, path: str, data: bytes) -> None:
    """Other bytes, with a manifest that names them."""
    import hashlib

    (folder / path).write_bytes(data)
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    changed(folder, lambda record: next(f for f in record["files"] if f["path"] == path).update(entry))


def test_a_copy_is_identical(pair: tuple[Path, Path]) -> None:
    code, said, _ = ran(*pair)
    assert code == 0
    assert said == dict.fromkeys((*toy.FILES, "onnx"), "identical")


@pytest.mark.parametrize("at", [0, 1000, 3110])
def test_one_changed_byte_is_found_where_it_is(at: int, pair: tuple[Path, Path]) -> None:
    data = bytearray((pair[1] / PTE).read_bytes())
    data[at] ^= 1
    consistent(pair[1] / "executorch", "model.pte", bytes(data))
    code, said, _ = ran(*pair)
    assert code == 1
    assert said.pop("executorch") == f"model.pte: differs from byte {at} on (3111 and 3111 bytes)"
    assert set(said.values()) == {"identical"}


def test_a_file_that_is_not_what_its_own_manifest_names_is_found(pair: tuple[Path, Path]) -> None:
    (pair[1] / PTE).write_bytes(b"damaged")
    code, said, _ = ran(*pair)
    assert code == 1
    assert said["executorch"] == f"model.pte: not what '{pair[1] / 'executorch' / 'manifest.json'}' names"


def test_missing_files_and_artifacts_are_found_on_either_side(pair: tuple[Path, Path]) -> None:
    (pair[1] / PTE).unlink()
    shutil.rmtree(pair[1] / "coreml")
    changed(pair[1] / "torch-mobile", lambda record: record["files"].pop())
    for sides in (pair, pair[::-1]):
        code, said, _ = ran(*sides)
        assert code == 1
        assert said["executorch"] == f"model.pte: missing in '{pair[1] / 'executorch'}'"
        assert said["coreml"] == f"missing in '{pair[1]}'"
        assert f"not named in '{pair[1] / 'torch-mobile' / 'manifest.json'}'" in said["torch-mobile"]
        assert said["onnx"] == "identical"


def test_a_changed_field_of_a_manifest_is_named(pair: tuple[Path, Path]) -> None:
    changed(pair[1] / "onnx", lambda record: record["outputs"][1].update(low=3.0))
    changed(pair[1] / "executorch", lambda record: record["verdicts"][0].update(status="rejected"))
    code, said, _ = ran(*pair)
    assert code == 1
    assert said["onnx"] == "manifest: outputs[1].low is 64.0 and 3.0"
    assert said["executorch"] == 'manifest: verdicts[0].status is "verified" and "rejected"'


def test_what_may_differ_is_not_compared_and_is_told(pair: tuple[Path, Path]) -> None:
    def change(record: dict[str, Any]) -> None:
        record["export"].update(key="f" * 64, tools={"torch": "9"}, model_sha256="e" * 64)
        record["export"]["source"]["sha256"] = "d" * 64
        record["notes"] = ["said in other words"]
        record["verdicts"][0]["reason"] = "said in other words"

    for target in ("onnx", "coreml"):
        changed(pair[1] / target, change)
    assert ran(*pair)[0] == 0
    done = subprocess.run([sys.executable, str(TOOL), *map(str, pair)], capture_output=True, text=True, check=True)
    assert all(name in done.stdout.splitlines()[-1] for name in MAY_DIFFER)
    assert all(MAY_DIFFER.values())


@pytest.mark.parametrize("missing", [0, 1])
def test_a_folder_that_is_no_build_is_one_sentence(missing: int, pair: tuple[Path, Path], tmp_path: Path) -> None:
    sides = list(pair)
    sides[missing] = tmp_path / "nowhere"
    code, said, error = ran(sides[0], sides[1])
    assert (code, said) == (2, {})
    assert error.strip() == (
        f"compare_builds: '{tmp_path / 'nowhere'}' has no artifact: name a model's build folder, as build/arr-coc-tiny"
    )


def test_a_damaged_manifest_is_a_difference(pair: tuple[Path, Path]) -> None:
    (pair[1] / "onnx" / "manifest.json").write_text("{")
    code, said, _ = ran(*pair)
    assert code == 1
    assert said["onnx"].startswith("a manifest is damaged (JSONDecodeError")
