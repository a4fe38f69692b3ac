"""What a fresh process needs to open an artifact and to answer once: time and memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from edgekit import registry
from edgekit.artifact.result import StartUp
from edgekit.places.runner.answering import peak_memory


def start_up(
    target: str, folder: str, place: str, row: str, progress: Callable[[float, str], None]
) -> dict[str, object]:
    """Open an artifact in this process, which has done nothing else, and answer one row.

    Args:
        target: Name of the target.
        folder: Its artifact.
        place: One of the target's places.
        row: File of one row of inputs (safetensors).
        progress: Not told anything.

    Returns:
        `StartUp` as a dictionary.
    """
    from safetensors.numpy import load_file

    made = registry.find(target)
    inputs = dict(load_file(row))
    made.load(Path(folder), made.place(place)).close()  # the library's own imports are no part of the artifact
    began = time.perf_counter()
    runtime = made.load(Path(folder), made.place(place))
    opened = time.perf_counter()
    runtime.run(inputs)
    answered = time.perf_counter()
    peak = peak_memory()
    runtime.close()
    found = StartUp(open_ms=1000 * (opened - began), first_answer_ms=1000 * (answered - began), peak_memory=peak)
    return found.model_dump(mode="json")
