"""What this host's processor is called."""

from __future__ import annotations

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
