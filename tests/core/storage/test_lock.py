"""Two runs in one folder wait for each other; a dead one holds nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from edgekit.storage.files import lock

HOLDER = """
import sys
from pathlib import Path
from edgekit.storage.files import lock
with lock(Path(sys.argv[1]), lambda: print("waiting", flush=True)):
    print("held", flush=True)
    sys.stdin.read()
"""


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("ends", ["well", "killed"])
def test_the_second_waits_until_the_first_ends(tmp_path: Path, ends: str) -> None:
    with start(tmp_path / "build") as first:
        assert said(first) == "held"
        with start(tmp_path / "build") as second:
            assert said(second) == "waiting"
            with start(tmp_path / "other") as elsewhere:
                assert said(elsewhere) == "held"
                elsewhere.communicate("")
            if ends == "well":
                first.communicate("")
            else:
                first.send_signal(signal.SIGKILL)
            assert said(second) == "held"
            second.communicate("")
    assert not list(tmp_path.iterdir())


def test_without_a_place_for_locks_nothing_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    asked: list[str] = []
    with lock(tmp_path, lambda: asked.append("waiting")):
        assert asked == []
