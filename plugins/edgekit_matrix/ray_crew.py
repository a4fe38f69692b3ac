"""Cells on a Ray cluster: each is a task that works in a folder of its node and sends it back as one object.

Ray does not retry (`max_retries=0`): the matrix's run counts the attempts. A cell's folder travels through
Ray's object store, so nodes need no shared folder; the model must have the same name or path there.
"""

from __future__ import annotations

import logging
import os
import socket
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from platform import node
from typing import Any

from edgekit.errors import DependencyError, UsageError, install_command, reason
from edgekit.storage.environment import package_digest
from edgekit.storage.files import scratch
from edgekit_matrix.crew import JobResult, LostError, Processes, Task, pack_folder, take, unpack
from edgekit_matrix.report import LOG

LOCAL, AUTO = "local", "auto"
"""Addresses: a new cluster on this machine for this run; the cluster of which this machine is a node."""
# Seconds for a head node to accept a connection.
CONNECTED = 10.0


class Cluster:
    """The workers of a cluster.

    Args:
        address: HOST:PORT of the head node, "auto" for the cluster that this machine is a node of, or "local" for a new
            one on this machine.
        jobs: Of a local cluster: cells at once.
        threads: Processors of a cell.

    Raises:
        DependencyError: If Ray is not installed.
        UsageError: If the cluster does not exist, or none of its nodes has so many processors.
    """

    def __init__(self, address: str, jobs: int, threads: int) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise DependencyError(f"a Ray cluster needs ray. Run: {install_command('ray')}") from error
        _require_head(address)
        self._ray, self._seeds, self._running = ray, dict[Path, Any](), dict[Future[Any], Any]()
        own: dict[str, Any] = {"num_cpus": jobs * threads} if address == LOCAL else {}
        try:
            # The dashboard's agent takes a minute to start on a small machine and is not needed.
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(f"no Ray cluster at '{address}' ({reason(error)}). Start one with `ray start`") from error
        largest = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        if largest < threads:
            self.close()
            raise UsageError(f"--threads {threads}: the largest node of '{address}' has {largest:g} processors")
        self._work = ray.remote(max_retries=0, num_cpus=threads, scheduling_strategy="SPREAD")(work)

    def start(self, task: Task, folder: Path, earlier: Path | None) -> Future[JobResult]:
        """Start a task as `Executor` does."""
        if earlier is not None and earlier not in self._seeds:
            folders = sorted(part.name for part in earlier.iterdir() if part.is_dir())
            self._seeds[earlier] = self._ray.put(pack_folder(earlier, folders))
        seed = b"" if earlier is None else self._seeds[earlier]
        reference = self._work.remote(task, seed, package_digest("edgekit"))
        started: Future[JobResult] = reference.future()
        self._running[started] = reference
        return started

    def result(self, started: Future[JobResult], folder: Path) -> JobResult:
        """Return a result as `Executor` does."""
        self._running.pop(started, None)
        try:
            ended = started.result()
        # An error of the worker's own code, such as a full disk.
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UsageError):
                raise error.cause from error
            raise LostError(reason(error.cause)) from error
        except self._ray.exceptions.RayError as error:
            # Ray's further sentences are about its own tools.
            raise LostError(reason(error).partition(". ")[0]) from error
        take(ended.archive, folder)
        return replace(ended, archive=b"")

    def close(self) -> None:
        """End the running tasks as `Executor` does."""
        for reference in self._running.values():
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()


def _require_head(address: str) -> None:
    """Check that a head node listens."""
    # Ray itself tries for minutes, and then ends the process.
    if address in (LOCAL, AUTO):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"no Ray cluster at '{address}'. Use HOST:PORT, {AUTO} or {LOCAL}")
    try:
        socket.create_connection((host, int(port)), CONNECTED).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"no Ray cluster at '{address}' ({reason(error)}). Start one with `ray start`") from error


def work(task: Task, seed: bytes, digest: str) -> JobResult:
    """Run a task on a node; its folder is in the result's archive.

    Raises:
        UsageError: If the node has another edgekit than the caller.
    """
    if package_digest("edgekit") != digest:
        raise UsageError(f"the node '{node()}' has another edgekit than this machine. Install the same one everywhere")
    with scratch() as folder:
        if seed:
            (folder / task.name).mkdir()
            unpack(seed, folder / task.name, task.parts)
        ended = Processes().run(task, folder)
        return replace(ended, archive=pack_folder(folder, (LOG, task.name)))
