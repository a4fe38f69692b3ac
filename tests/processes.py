"""Whether processes that were started have ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def soon(condition: Callable[[], bool]) -> bool:
    """Whether it holds within half a minute."""
    for _ in range(300):
        if condition():
            return True
        time.sleep(0.1)
    return False


def running(pid: int) -> bool:
    """Whether a process is there, and is no zombie."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().split()[2] != "Z"
