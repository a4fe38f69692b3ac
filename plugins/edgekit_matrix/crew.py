"""Executors of cells: processes of this machine, or the workers of a Ray cluster. Both return a future for a task.

A task is `edgekit export` in a separate process, with a log and a time limit. Between the two is a keeper
(`edgekit.hosts.supervisor`): it ends the export and all that it started at the time limit, and when the caller is
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
"""Prefixes of the variables that a cell gets from the caller, on another host too."""


class Executor(Protocol):
    """Runs tasks on this machine or elsewhere."""

    def start(self, task: Task, folder: Path, earlier: Path | None) -> Future[JobResult]:
        """Start a task as soon as there is room for it.

        Args:
            task: The task.
            folder: The cell's folder, which holds the build at the end.
            earlier: A build of the same model that provides the task's parts.
        """

    def result(self, started: Future[JobResult], folder: Path) -> JobResult:
        """Return the result of an ended task; its files are in the cell's folder.

        Raises:
            LostError: If its worker is gone.
        """

    def close(self) -> None:
        """End the running tasks."""


class Local:
    """An executor with up to `jobs` processes at once on this machine."""

    def __init__(self, jobs: int) -> None:
        self._processes, self._threads = Processes(), ThreadPoolExecutor(jobs, "cell")

    def start(self, task: Task, folder: Path, earlier: Path | None) -> Future[JobResult]:
        """Start a task as `Executor` does; it works directly in the cell's folder."""

        def work() -> JobResult:
            begin(folder, task.name, earlier, task.parts)
            return self._processes.run(task, folder)

        return self._threads.submit(work)

    def result(self, started: Future[JobResult], folder: Path) -> JobResult:
        """Return a result as `Executor` does."""
        return started.result()

    def close(self) -> None:
        """End the running tasks as `Executor` does."""
        self._processes.close()
        self._threads.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class Task:
    """A worker's task.

    Attributes:
        name: Name of the model and its build.
        arguments: Arguments of `edgekit export`, without the folder.
        parts: Folders to copy from an earlier build of the model.
        home: The working directory, if it exists on the worker.
        seconds: Time limit.
        variables: Environment variables to set.
    """

    name: str
    arguments: tuple[str, ...]
    parts: tuple[str, ...]
    home: str
    seconds: float
    variables: Mapping[str, str]


@dataclass(frozen=True)
class JobResult:
    """The result of an attempt.

    Attributes:
        code: The exit code, or minus the signal's number; None if it exceeded its time limit.
        seconds: Its duration.
        host: Its host.
        archive: If it ran elsewhere: its folder as a tar file.
    """

    code: int | None
    seconds: float
    host: str
    archive: bytes = b""


class LostError(Exception):
    """An attempt without a known result: its worker or its node is gone. The text names it."""


class Processes:
    """The running attempts of this process, which another thread can stop."""

    def __init__(self) -> None:
        self._lock, self._running, self._closed = threading.Lock(), set[subprocess.Popen[bytes]](), False

    def run(self, task: Task, folder: Path) -> JobResult:
        """Run an attempt in a folder until it ends or its time is up."""
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
        """End the running attempts, and start no more."""
        with self._lock:
            self._closed = True
            for started in tuple(self._running):
                with contextlib.suppress(ProcessLookupError):
                    started.terminate()


def variables(threads: int) -> dict[str, str]:
    """Return a cell's variables: those of this process that edgekit reads, and its number of threads; 0: no limit."""
    own = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    return own | ({"EDGEKIT_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)} if threads else {})


def begin(folder: Path, name: str, earlier: Path | None, parts: Sequence[str]) -> None:
    """Make a cell's folder. A new build begins with parts of another build of its model.

    `edgekit export` checks all of them and replaces those that do not fit, so an artifact's content does not depend
    on them.

    Args:
        folder: The cell's folder.
        name: Name of the model and its build.
        earlier: The other build, or None.
        parts: Its folders to copy, as far as they exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if earlier is None or (folder / name).exists():
        return
    with staging(folder / name) as build:
        for part in parts:
            if (earlier / part).is_dir():
                shutil.copytree(earlier / part, build / part)


def pack_folder(folder: Path, parts: Sequence[str]) -> bytes:
    """Return the existing ones of a folder's parts as a tar file."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for part in parts:
            if (folder / part).exists():
                archive.add(folder / part, part)
    return written.getvalue()


def unpack(archive: bytes, folder: Path, parts: Collection[str] | None = None) -> None:
    """Unpack a tar file into a folder; with `parts` only these folders."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        members = [m for m in files if parts is None or m.name.partition("/")[0] in parts]
        files.extractall(folder, members, filter="data")


def take(archive: bytes, folder: Path) -> None:
    """Replace a cell's folder by an archive from another machine, in one step."""
    shutil.rmtree(folder, ignore_errors=True)
    with staging(folder) as fresh:
        unpack(archive, fresh)


if __name__ == "__main__":
    command = [sys.executable, "-P", "-m", "edgekit", "export", *sys.argv[1:]]
    supervisor.exit_as(supervisor.keep(lambda: os.execv(command[0], command), sys.maxsize))  # noqa: S606 - as Popen's
