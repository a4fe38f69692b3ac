"""Who runs cells: processes of this machine, or the workers of a Ray cluster. Both give a future for a task."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from edgekit_matrix.attempt import Ended, Processes, Task
from edgekit_matrix.folder import begin


class Crew(Protocol):
    """Runs tasks somewhere."""

    def start(self, task: Task, folder: Path, earlier: Path | None) -> Future[Ended]:
        """Start a task as soon as there is room for it.

        Args:
            task: What to do.
            folder: The cell's folder, which holds the build at the end.
            earlier: A build of the same model, of which the task's parts are taken over.
        """

    def result(self, started: Future[Ended], folder: Path) -> Ended:
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

    def start(self, task: Task, folder: Path, earlier: Path | None) -> Future[Ended]:
        """As `Crew`: it works in the cell's folder itself."""

        def work() -> Ended:
            begin(folder, task.name, earlier, task.parts)
            return self._processes.run(task, folder)

        return self._threads.submit(work)

    def result(self, started: Future[Ended], folder: Path) -> Ended:
        """As `Crew`."""
        return started.result()

    def close(self) -> None:
        """As `Crew`."""
        self._processes.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
