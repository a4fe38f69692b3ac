"""This host's processor: what it is called, and how many threads each measured runtime gets."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def processor() -> str:
    """Its name and architecture, for example `AMD EPYC (x86_64)`."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return f"{named[0] if named else platform.processor() or 'unnamed processor'} ({platform.machine()})"


VARIABLE = "EDGEKIT_THREADS"
MOST = 4  # a phone's big cores; more would flatter a desktop


def threads() -> int:
    """EDGEKIT_THREADS if set, else the cores this process may use, at most four."""
    if (wanted := os.environ.get(VARIABLE, "")).isdigit() and int(wanted) > 0:
        return int(wanted)
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MOST)
