"""The process between a call and its worker: it ends the worker, and all that the worker started, wherever they went.

On Linux it is the one that orphans of its worker come to (PR_SET_CHILD_SUBREAPER of prctl(2)), so that nothing leaves
it by a session of its own, and it watches the memory that processes share, which no limit of the system counts. It ends
them when the worker has ended, when it gets SIGTERM, and when who started it is gone; their temporary files go too.
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
"""Exit code of a keeper whose worker shared more memory than it may have."""
WATCHED = 0.5  # seconds between two looks at the memory and at the parent
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}


def keep(work: Callable[[], NoReturn], memory: int, started: Callable[[], None] = lambda: None) -> int:
    """Run a function in a child process, with temporary files of its own, until it and all that it started have ended.

    Args:
        work: What the child does.
        memory: Bytes that its processes may share with each other.
        started: Called in this process once there is a child.

    Returns:
        The child's exit code, minus the signal's number where one ended it, or `SHARED_MEMORY`.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a full disk: the worker says so where it needs it
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
        tempfile.tempdir = None  # what it was before is not this worker's
        work()
    started()
    code = _watch(worker, parent, memory)
    _end_all(worker)
    return code


def exit_as(code: int) -> NoReturn:
    """End this process as its worker ended."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the worker's own is enough
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.kill(os.getpid(), -code)
    os._exit(code)


def fork_process() -> int:
    """`os.fork`, of a process whose threads are those of a library that ends them before."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # OpenBLAS
        return os.fork()


def _watch(worker: int, parent: int, memory: int) -> int:
    """Wait for the worker to end; -SIGTERM where this process shall end it."""
    while True:
        if (code := _reap(worker)) is not None:
            return code
        if _wait_for_signal() or os.getppid() != parent:
            return -signal.SIGTERM
        if sys.platform == "linux" and sum(map(_shared_memory, _descendants(os.getpid()))) > memory:
            return SHARED_MEMORY


def _wait_for_signal() -> bool:
    """Wait a little; whether this process got SIGTERM."""
    if sys.platform != "linux":  # macOS has no sigtimedwait
        time.sleep(WATCHED / 10)
        return signal.SIGTERM in signal.sigpending()
    info = signal.sigtimedwait(_SIGNALS, WATCHED)
    return info is not None and info.si_signo == signal.SIGTERM


def _reap(worker: int) -> int | None:
    """Reap what has ended; the worker's exit code, where it has."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == worker:
                code = os.waitstatus_to_exitcode(ended[1])
    return code


def _end_all(worker: int) -> None:
    """Kill what is left of the worker's group and of all descendants, until there is none."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: none but zombies is left
        os.killpg(worker, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            for process in _descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.001)


def _descendants(process: int) -> Iterator[int]:
    """All processes below one, as Linux knows them."""
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for child in map(int, thread.read_text().split()):
                yield child
                yield from _descendants(child)


def _shared_memory(process: int) -> int:
    """Bytes of memory that a process shares with others and has touched."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssShmem:"):
                return int(line.split()[1]) << 10
    return 0
