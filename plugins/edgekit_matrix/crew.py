"""Who runs cells: processes of this machine, or the workers of a Ray cluster. Both give a future for a task.

A task is `edgekit export` in a process of its own, with a log and a time limit. Between the two stands a keeper
(`edgekit.hosts.supervisor`): it ends the export and all that it started when the time is up, and when whoever asked is
gone, so that a killed run leaves no process behind.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from platform import node
from typing import Protocol

from edgekit.hosts import supervisor
from edgekit.storage import limits
from edgekit.storage.files import staging
from edgekit_matrix.report import LOG

PASSED_ON = ("EDGEKIT_", "OMP_NUM_THREADS")
"""Beginnings of the variables that a cell gets from whoever asked, on another host too."""


class Executor(Protocol):
    """Runs tasks somewhere."""

    def start(self, task: Task, folder: Path, earlier: Path | None) -> Future[JobResult]:
        """Start a task as soon as there is room for it.

        Args:
            task: What to do.
            folder: The cell's folder, which holds the build at the end.
            earlier: A build of the same model, of which the task's parts are taken over.
        """

    def result(self, started: Future[JobResult], folder: Path) -> JobResult:
        """How an ended task ended; what it made lies in the cell's folder.

        Raises:
            LostError: If its worker is gone.
        """

    def close(self) -> None:
        """End what runs."""


class Local:
    """So many processes at once on this machine."""

    def __init__(self, jobs: int) -> None:
        self._processes, self._threads = Processes(), ThreadPoolExecutor(jobs, "cell")

    def start(self, task: Task, folder: Path, earlier: Path | None) -> Future[JobResult]:
        """As `Executor`: it works in the cell's folder itself."""

        def work() -> JobResult:
            begin(folder, task.name, earlier, task.parts)
            return self._processes.run(task, folder)

        return self._threads.submit(work)

    def result(self, started: Future[JobResult], folder: Path) -> JobResult:
        """As `Executor`."""
        return started.result()

    def close(self) -> None:
        """As `Executor`."""
        self._processes.close()
        self._threads.shutdown(wait=True, cancel_futures=True)


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
class JobResult:
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

    def run(self, task: Task, folder: Path) -> JobResult:
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
        return JobResult(code, round(time.monotonic() - began, 1), node())

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


def begin(folder: Path, name: str, earlier: Path | None, parts: Sequence[str]) -> None:
    """Make a cell's folder. A build that is not there yet begins with parts of another one of its model.

    `edgekit export` checks all of them and makes again what does not fit, so that what an artifact holds does not
    depend on them.

    Args:
        folder: The cell's folder.
        name: Of the model and its build.
        earlier: The other build; None for none.
        parts: Its folders that are taken over, as far as they are there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if earlier is None or (folder / name).exists():
        return
    with staging(folder / name) as build:
        for part in parts:
            if (earlier / part).is_dir():
                shutil.copytree(earlier / part, build / part)


def pack_folder(folder: Path, parts: Sequence[str]) -> bytes:
    """Return some parts of a folder, as far as they are there, as a tar file."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for part in parts:
            if (folder / part).exists():
                archive.add(folder / part, part)
    return written.getvalue()


def unpack(archive: bytes, folder: Path, parts: Collection[str] | None = None) -> None:
    """Put a tar file's content into a folder; with `parts` only that of these folders."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        members = [m for m in files if parts is None or m.name.partition("/")[0] in parts]
        files.extractall(folder, members, filter="data")


def take(archive: bytes, folder: Path) -> None:
    """Put what came back from another machine into a cell's place, in one step."""
    shutil.rmtree(folder, ignore_errors=True)
    with staging(folder) as fresh:
        unpack(archive, fresh)


if __name__ == "__main__":
    command = [sys.executable, "-P", "-m", "edgekit", "export", *sys.argv[1:]]
    supervisor.exit_as(supervisor.keep(lambda: os.execv(command[0], command), sys.maxsize))  # noqa: S606 - as Popen's
