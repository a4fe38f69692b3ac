"""Workers forked from a process that has already imported their modules (Linux).

Importing PyTorch and its exporter takes seconds, and each worker needs it. The server imports the requested modules
once, runs nothing of them, and forks a worker for each request. It has no state of a model, and ends with its parent. A
worker inherits the server's environment at its start. If the parent has changed its own since (`_inherited_state`), as
some libraries do when they are imported, another server takes the old one's place.

On macOS system libraries do not survive a fork, and Windows does not have it: `fork` returns None there.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TextIO

from edgekit.hosts import supervisor
from edgekit.storage import limits as child

# With "0" each worker starts as a separate process.
VARIABLE = "EDGEKIT_FORK_WORKERS"
LONGEST_REQUEST = 1 << 16  # bytes
READ_LATE = ("EDGEKIT_", "PYTEST_", "CUBLAS_", "TORCHINDUCTOR_")
"""Prefixes of variables that are read when they are used: no library reads them at import."""


class ForkedWorker:
    """A worker, by its keeper's process and the ends of its pipes; as `subprocess.Popen`."""

    def __init__(self, pid: int, stdin: TextIO, stdout: TextIO, status: TextIO) -> None:
        self.pid, self.stdin, self.stdout, self._status = pid, stdin, stdout, status
        self.returncode: int | None = None

    def wait(self) -> int:
        """Wait for its end and return its exit code; minus the signal's number if a signal ended it."""
        if self.returncode is None:
            self.returncode = int(self._status.readline() or -signal.SIGKILL)
            self._status.close()
        return self.returncode


class _Server:
    """A server and the socket to it."""

    def __init__(self) -> None:
        self.parent, self.inherited = os.getpid(), _inherited_state()
        self.socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_socket:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(child_socket.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Ctrl-C is for the parent.
                start_new_session=True,
                pass_fds=[child_socket.fileno()],
                env=child.environment(),
            )

    def usable(self) -> bool:
        return self.parent == os.getpid() and self.process.poll() is None

    def retire(self) -> None:
        """Let the server end after its workers."""
        self.socket.close()

    def close(self) -> None:
        """End the server, even while it imports; workers end with their calls."""
        self.socket.close()
        if self.parent == os.getpid():
            self.process.kill()
            self.process.wait()


_lock = threading.Lock()
# The last one serves; those before it end after their workers.
_servers: list[_Server] = []


@atexit.register
def _close_all() -> None:
    while _servers:
        _servers.pop().close()


def prepare(modules: Sequence[str]) -> None:
    """Let the server import modules while this process does something else."""
    with contextlib.suppress(OSError):
        _send(modules, [], 0)


def fork(main: str, modules: Sequence[str], stderr: int, memory: int) -> ForkedWorker | None:
    """Return a worker that is about to run a function; None if the caller must start a process instead.

    Args:
        main: `package.module:name` of a function without arguments.
        modules: Modules that the server imports before it forks; the worker reports a failing one.
        stderr: Descriptor for its standard error.
        memory: Bytes that its processes may share with each other.
    """
    (stdin, to_worker), (from_worker, stdout), (progress_pipe, status) = (os.pipe() for _ in range(3))
    ends = (
        os.fdopen(to_worker, "w", encoding="utf-8", errors="replace"),
        os.fdopen(from_worker, encoding="utf-8", errors="replace"),
        os.fdopen(progress_pipe, encoding="ascii"),
    )
    setup = {"main": main, "environment": child.environment(), "path": sys.path, "folder": str(Path.cwd())}
    try:
        try:
            _send(modules, [stdin, stdout, stderr, status], memory)
        # If the server dies, this process must not keep the pipes open.
        finally:
            for end in (stdin, stdout, status):
                os.close(end)
        ends[0].write(json.dumps(setup) + "\n")
        ends[0].flush()
        return ForkedWorker(int(ends[2].readline()), *ends)
    except BaseException as error:
        # A worker that reads the end of its input ends.
        for pipe in ends:
            with contextlib.suppress(OSError):
                pipe.close()
        # The server does not exist, or has died.
        if isinstance(error, OSError | ValueError):
            return None
        raise


def _send(modules: Sequence[str], streams: list[int], memory: int) -> None:
    with _lock:
        server = _server()
        if server is None:
            raise ConnectionError("no fork server")
        request = {"modules": list(modules), "memory": memory}
        socket.send_fds(server.socket, [json.dumps(request).encode()], streams)


def _server() -> _Server | None:
    """Return a server with this process's state, started if needed; None where there is none."""
    if sys.platform != "linux" or os.environ.get(VARIABLE) == "0":
        return None
    for ended in [server for server in _servers if not server.usable()]:
        _servers.remove(ended)
        ended.close()
    state = _inherited_state()
    if not _servers or _servers[-1].inherited != state:
        if _servers:
            _servers[-1].retire()
        _servers.append(_Server())
    return _servers[-1]


def _inherited_state() -> tuple[object, ...]:
    """Return what a process inherits from its parent and libraries read at import."""
    import resource

    variables = {name: value for name, value in os.environ.items() if not name.startswith(READ_LATE)}
    status = Path("/proc/self/status").read_text()
    umask = [line for line in status.splitlines() if line.startswith("Umask")]
    kinds = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    limits = tuple(resource.getrlimit(getattr(resource, kind)) for kind in kinds)
    return variables, umask, limits, os.sched_getaffinity(0), os.nice(0)


def serve(requests: socket.socket) -> NoReturn:
    """Import and fork as requested, until the parent has closed its end or is gone."""
    parent = os.getppid()
    signal.signal(signal.SIGALRM, lambda *_: None if os.getppid() == parent else os._exit(0))
    # A timer, since an import may take seconds.
    signal.setitimer(signal.ITIMER_REAL, supervisor.WATCHED, supervisor.WATCHED)
    while True:
        message, streams, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 4)
        # Reap ended keepers, so that the time of their workers counts as this process's.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not message:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, 0)[0]:
                    pass
            os._exit(0)
        request = json.loads(message)
        for module in request["modules"]:
            with contextlib.suppress(Exception):
                importlib.import_module(module)
        if streams:
            gc.collect()
            # Garbage collection in a worker would copy the memory that it visits.
            gc.freeze()
            if supervisor.fork_process() == 0:
                requests.close()
                _keep(streams, request["memory"])
        for stream in streams:
            os.close(stream)


def _keep(streams: list[int], memory: int) -> NoReturn:
    """Fork the worker, and report through `status` its keeper and its exit code."""
    *standard, status = streams
    signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def work() -> NoReturn:
        for number, stream in enumerate(standard):
            os.dup2(stream, number)
        for stream in streams:
            os.close(stream)
        _work()

    def started() -> None:
        os.write(status, b"%d\n" % os.getpid())
        for stream in standard:
            os.close(stream)

    code = supervisor.keep(work, memory, started)
    # The reader may be gone.
    with contextlib.suppress(OSError):
        os.write(status, b"%d\n" % code)
    os._exit(0)


def _work() -> NoReturn:
    line = sys.stdin.readline()
    # The caller is gone.
    if not line:
        os._exit(1)
    setup = json.loads(line)
    try:
        own = {"TMPDIR": os.environ["TMPDIR"]} if "TMPDIR" in os.environ else {}
        os.environ.clear()
        os.environ.update(setup["environment"] | own)
        os.chdir(setup["folder"])
        sys.path[:] = [path or setup["folder"] for path in setup["path"]]
        importlib.invalidate_caches()
        if numpy := sys.modules.get("numpy"):
            # Otherwise every worker would draw the same numbers.
            numpy.random.seed()
        module, _, name = setup["main"].partition(":")
        main: Callable[[], None] = getattr(importlib.import_module(module), name)
        main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
