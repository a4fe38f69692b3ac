"""What targets are made from is the same bytes under other conditions; in the nightly mode, a whole build is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.artifact.manifest import Manifest
from edgekit.artifact.run_record import MODEL, PROGRAM
from edgekit.artifact.store import read_artifact
from edgekit.storage.files import digest_file

MEASURED = {"results": (), "content_sha256": ""}
"""What has times in it: a key may name the reference, which each build here records anew, with its latency."""


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes minutes: set EDGEKIT_SLOW=1")
@pytest.mark.timeout(7200)
def test_a_whole_build_is_byte_identical(checkout: Path, another_day: Path | None, tmp_path: Path) -> None:
    """Two folders, two checkouts, two days, two umasks, two working directories."""
    rest = [p for p in sys.path if p]
    other = [str(checkout), str(checkout / "targets"), *rest]
    clock = {"LD_PRELOAD": str(another_day)} if another_day is not None else {}
    one = exported(tmp_path / "one", {"PYTHONPATH": os.pathsep.join(rest)}, 0o022)
    two = exported(tmp_path / "another" / "two", {"PYTHONPATH": os.pathsep.join(other), **clock}, 0o077)
    assert list(one) == list(two)
    print("identical:", ", ".join(one))
    for target, made in one.items():
        assert made.files == two[target].files, target
        assert unmeasured(made) == unmeasured(two[target]), target


def unmeasured(manifest: Manifest) -> Manifest:
    export = manifest.export.model_copy(update={"key": ""})
    return manifest.model_copy(update={**MEASURED, "export": export})


CAPTURE = """
import sys
from pathlib import Path
from edgekit.testing import contract
contract.write_small_model(Path(sys.argv[1]))
"""


@pytest.mark.nightly
def test_a_captured_model_is_byte_identical(small_build: Path, another_day: Path | None, tmp_path: Path) -> None:
    """The model and its program, which each target's own test of identical bytes starts from.

    Of one checkout: a program names the lines of the module that it was captured from.
    """
    env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if another_day is not None:
        env["LD_PRELOAD"] = str(another_day)
    command = [sys.executable, "-P", "-c", CAPTURE, str(tmp_path / "small")]
    subprocess.run(command, cwd=tmp_path, env=env, umask=0o077, check=True)
    for folder in (MODEL, PROGRAM):
        assert contents(tmp_path / "small" / folder) == contents(small_build / folder), folder


def contents(folder: Path) -> dict[Path, str]:
    return {path.relative_to(folder): digest_file(path) for path in folder.rglob("*") if path.is_file()}


def exported(folder: Path, env: dict[str, str], umask: int) -> dict[str, Manifest]:
    folder.mkdir(parents=True)
    asked = ["edgekit.testing:small_model", "-O", "onnx-int8-static.search=none", "-o", "build"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "edgekit", "export", *asked],
        cwd=folder,
        env={**os.environ, "EDGEKIT_TIMED_SECONDS": "0.05", **env},
        umask=umask,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 3), done.stderr
    found = sorted(path.parent for path in folder.glob("build/small/*/manifest.json"))
    assert len(found) > 2, done.stdout
    return {path.name: read_artifact(path) for path in found}
