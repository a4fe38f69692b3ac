"""What every process that edgekit starts has in common: where it finds modules, and how it ended."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def environment() -> dict[str, str]:
    """The environment of a child, which finds modules where this process does."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p or str(Path.cwd()) for p in sys.path)}


def ending(code: int) -> str:
    """How a child ended, by its return code: `SIGSEGV`, or `exit code 1`."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
