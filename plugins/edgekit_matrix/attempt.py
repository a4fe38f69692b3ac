"""One try of a cell: `edgekit export` in a process of its own, with a log and a time limit.

Between the two stands a keeper (`edgekit.hosts.keeper`): it ends the export and all that it started when the time is
up, and when whoever asked is gone, so that a killed run leaves no process behind.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from platform import node
from typing import NoReturn

from edgekit.hosts import keeper
from edgekit.storage import limits
from edgekit_matrix.report import LOG

PASSED_ON = ("EDGEKIT_", "OMP_NUM_THREADS")
"""Beginnings of the variables that a cell gets from whoever asked, on another host too."""


@dataclass(frozen=True)
class Task:
    """What is asked of a worker.

    Attributes:
        name: Of the model and its build.
        arguments: The words of `edgekit export`, but for the folder.
        parts: Folders that are taken over from an earlier build of the model.
        home: The working directory; a worker that has none of that name does without.
        seconds: How long it may take.
        variables: Of the environment, to set.
    """

    name: str
    arguments: tuple[str, ...]
    parts: tuple[str, ...]
    home: str
    seconds: float
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Ended:
    """How a try ended.

    Attributes:
        code: The exit code, or minus the signal's number; None where it took more than its time.
        seconds: How long it took.
        host: Where it ran.
        archive: Of one that ran elsewhere: its folder as a tar file.
    """

    code: int | None
    seconds: float
    host: str
    archive: bytes = b""


class LostError(Exception):
    """Nobody knows how a try ended: its worker or its node is gone. The text says which."""


class Processes:
    """What stops the tries that run in this process, from another thread."""

    def __init__(self) -> None:
        self._lock, self._running, self._closed = threading.Lock(), set[subprocess.Popen[bytes]](), False

    def run(self, task: Task, folder: Path) -> Ended:
        """Run a try in a folder until it ends or its time is up."""
        began, folder = time.monotonic(), folder.resolve()
        with (folder / LOG).open("ab") as log:
            with self._lock:
                if self._closed:
                    raise LostError("the run was stopped")
                started = subprocess.Popen(
                    [sys.executable, "-P", "-m", __name__, *task.arguments, "-o", str(folder)],
                    cwd=task.home if Path(task.home).is_dir() else folder,
                    env=limits.environment() | dict(task.variables),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                self._running.add(started)
            code: int | None = None
            try:
                code = started.wait(task.seconds)
            except subprocess.TimeoutExpired:
                started.terminate()
                started.wait()
            finally:
                self._running.discard(started)
        return Ended(code, round(time.monotonic() - began, 1), node())

    def close(self) -> None:
        """End what runs, and start nothing more."""
        with self._lock:
            self._closed = True
            for started in tuple(self._running):
                with contextlib.suppress(ProcessLookupError):
                    started.terminate()


def variables(threads: int) -> dict[str, str]:
    """The variables of a cell: those of this process that edgekit reads, and how many threads it may take; 0: any."""
    own = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    return own | ({"EDGEKIT_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)} if threads else {})


def _export() -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-P", "-m", "edgekit", "export", *sys.argv[1:]])  # noqa: S606 - as Popen's


if __name__ == "__main__":
    keeper.exit_as(keeper.keep(_export, sys.maxsize))
