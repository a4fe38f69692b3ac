"""The process between a call and its worker, which ends the worker and all processes that the worker started.

On Linux it adopts the worker's orphans (PR_SET_CHILD_SUBREAPER of prctl(2)), so that no process escapes by a new
session, and it watches the shared memory, which no system limit counts. It ends them when the worker has ended, when it
gets SIGTERM, and when its parent is gone, and removes their temporary files.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from edgekit.storage.files import scratch

SHARED_MEMORY = 97
"""Exit code of a keeper whose worker exceeded its shared memory."""
# Seconds between two checks of the memory and of the parent.
WATCHED = 0.5
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}


def keep(work: Callable[[], NoReturn], memory: int, started: Callable[[], None] = lambda: None) -> int:
    """Run a function in a child process with its own temporary files, until it and all that it started have ended.

    Args:
        work: The child's work.
        memory: Bytes that its processes may share with each other.
        started: Called in this process when the child exists.

    Returns:
        The child's exit code, minus the signal's number if one ended it, or `SHARED_MEMORY`.
    """
    with contextlib.ExitStack() as stack:
        # On a full disk, the worker reports it when it needs space.
        with contextlib.suppress(OSError):
            os.environ["TMPDIR"] = str(stack.enter_context(scratch()))
        return _memory_with_children(work, memory, started)


def _memory_with_children(work: Callable[[], NoReturn], memory: int, started: Callable[[], None]) -> int:
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    worker = fork_process()
    if worker == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.setsid()
        # The parent's temporary folder is not the worker's.
        tempfile.tempdir = None
        work()
    started()
    code = _watch(worker, parent, memory)
    _end_all(worker)
    return code


def exit_as(code: int) -> NoReturn:
    """End this process in the same way as its worker."""
    if code < 0:
        # The worker's core dump is enough.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # SIGKILL has no handler.
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.kill(os.getpid(), -code)
    os._exit(code)


def fork_process() -> int:
    """Call `os.fork`; the only threads of this process belong to a library that ends them first (OpenBLAS)."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return os.fork()


def _watch(worker: int, parent: int, memory: int) -> int:
    """Wait for the worker's end and return its exit code; -SIGTERM if this process must end it."""
    while True:
        if (code := _reap(worker)) is not None:
            return code
        if _wait_for_signal() or os.getppid() != parent:
            return -signal.SIGTERM
        if sys.platform == "linux" and sum(map(_shared_memory, _descendants(os.getpid()))) > memory:
            return SHARED_MEMORY


def _wait_for_signal() -> bool:
    """Wait a little; return whether this process got SIGTERM."""
    # macOS lacks sigtimedwait.
    if sys.platform != "linux":
        time.sleep(WATCHED / 10)
        return signal.SIGTERM in signal.sigpending()
    info = signal.sigtimedwait(_SIGNALS, WATCHED)
    return info is not None and info.si_signo == signal.SIGTERM


def _reap(worker: int) -> int | None:
    """Reap ended processes; return the worker's exit code if it has ended."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == worker:
                code = os.waitstatus_to_exitcode(ended[1])
    return code


def _end_all(worker: int) -> None:
    """Kill the rest of the worker's group and all descendants, until none is left."""
    # On macOS only zombies may be left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            for process in _descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.001)


def _descendants(process: int) -> Iterator[int]:
    """Yield all descendants of a process, from Linux's /proc."""
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            for child in map(int, thread.read_text().split()):
                yield child
                yield from _descendants(child)


def _shared_memory(process: int) -> int:
    """Return the bytes of memory that a process shares with others and has touched."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssShmem:"):
                return int(line.split()[1]) << 10
    return 0
