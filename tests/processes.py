"""Processes that tests start: how, and whether they have ended."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def soon(condition: Callable[[], bool]) -> bool:
    """Whether it holds within two minutes, which a busy machine may need."""
    ends = time.monotonic() + 120
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


def running(pid: int) -> bool:
    """Whether a process is there, and is no zombie."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().split()[2] != "Z"


def heeding(*words: object) -> list[str]:
    """The command `edgekit WORDS` that heeds Ctrl-C as in a terminal: what runs in the background may ignore it."""
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from edgekit.cli.main import main; main()"
    )
    return [sys.executable, "-c", script, *map(str, words)]


def printed(folder: Path, *command: str) -> str:
    """What a program prints in a folder; it must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
