"""How many threads a measured runtime gets: the same number for every runtime that is compared."""

from __future__ import annotations

import os

VARIABLE = "EDGEKIT_THREADS"
MOST = 4  # a phone's big cores; more would flatter a desktop


def threads() -> int:
    """EDGEKIT_THREADS if set, else the cores this process may use, at most four."""
    if (wanted := os.environ.get(VARIABLE, "")).isdigit() and int(wanted) > 0:
        return int(wanted)
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MOST)
