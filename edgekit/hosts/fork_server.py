"""Workers forked from a process that has already imported their modules (Linux).

Importing PyTorch and its exporter takes seconds, and each worker needs it. The server imports the requested modules
once, runs nothing of them, and forks a worker for each request. It has no state of a model, and ends with its parent. A
worker inherits the server's environment at its start. If the parent has changed its own since (`_inherited_state`), as
some libraries do when they are imported, another server takes the old one's place.

A command that needs PyTorch itself forks the server off (`fork_here`), so that both import it once.

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


class _Fork:
    """A forked process, as far as a server's needs `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid, self._code = pid, None if pid else 0

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._reap(os.WNOHANG)

    def kill(self) -> None:
        """End it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int | None:
        """Wait for its end and return its exit code."""
        return self._reap(0)

    def _reap(self, options: int) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, options)
                self._code = os.waitstatus_to_exitcode(status) if pid else None
            except ChildProcessError:
                self._code = 0
        return self._code


class _Server:
    """A server and the socket to it.

    Args:
        forked: True to fork it off this process, in place of a new Python.
    """

    def __init__(self, forked: bool = False) -> None:
        self.parent, self.inherited = os.getpid(), _inherited_state()
        self.socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process: subprocess.Popen[bytes] | _Fork
        with child_socket:
            if forked:
                sys.stdout.flush()
                sys.stderr.flush()
                self.process = _Fork(supervisor.fork_process())
                if self.process.pid == 0:
                    _serve_forked(child_socket)
                return
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


def fork_here(modules: Sequence[str]) -> None:
    """Import modules in this process and fork the server off it; for a command that needs them too, at its start.

    Nothing happens if PyTorch is loaded already or a second thread runs: its threads would not survive the fork.
    """
    if sys.platform != "linux" or os.environ.get(VARIABLE) == "0" or _servers:
        return
    if "torch" in sys.modules or threading.active_count() > 1:
        return
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    with _lock:
        _servers.append(_Server(forked=True))


def _serve_forked(requests: socket.socket) -> NoReturn:
    """Serve in a fork of the command: with the streams, files, signals and `__main__` of a process of its own."""
    with contextlib.suppress(BaseException):
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        number = os.dup2(requests.fileno(), 3)
        os.closerange(4, max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode, closefd=False) for n, mode in enumerate("rww"))
        for kind in (signal.SIGTERM, signal.SIGINT):
            signal.signal(kind, signal.SIG_DFL)
        sys.modules["__main__"] = sys.modules[__name__]
        serve(socket.socket(fileno=number))
    os._exit(1)


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
