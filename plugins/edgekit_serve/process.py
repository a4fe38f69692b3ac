"""The server's processes: one listens and supervises, the other answers and is restarted after a crash.

Both log to standard error, one JSON object a line.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from datetime import UTC, datetime
from threading import Event
from types import FrameType

from edgekit.errors import UsageError

SOCKET = "EDGEKIT_SERVE_SOCKET"
"""Environment variable of the answering process with the number of its listening socket."""
STUCK = 70
"""Exit code of a process with a run that hangs."""
CRASHES, WITHIN = 5, 60.0
"""The server gives up after so many crashes in so many seconds."""
BACKLOG = 1024
# Seconds before the restart of a process that could not start.
PAUSE = 15.0
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; it outlives the answering process, so that clients wait instead of failing.

    Raises:
        UsageError: If the address is in use or unknown.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def supervise(listener: socket.socket, command: list[str]) -> int:
    """Run a command with the socket, again after each crash; return its exit code when it ends normally.

    It receives Ctrl-C and SIGTERM, and answers the waiting requests before it ends.
    """
    crashes: deque[float] = deque(maxlen=CRASHES)
    child: subprocess.Popen[bytes] | None = None
    ending = Event()

    def end(number: int, frame: FrameType | None) -> None:
        ending.set()
        if child is not None:
            child.send_signal(signal.SIGTERM)

    before = [(number, signal.signal(number, end)) for number in (signal.SIGTERM, signal.SIGINT)]
    environment = os.environ | {SOCKET: f"{listener.fileno()} {os.getpid()}"}
    try:
        while not ending.is_set():
            child = subprocess.Popen(command, env=environment, pass_fds=(listener.fileno(),), process_group=0)
            if ending.is_set():
                child.send_signal(signal.SIGTERM)
            code = child.wait()
            if not ending.is_set() and not _again(code, crashes):
                return code if code > 0 and code != STUCK else 1
        return 0
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _again(code: int, crashes: deque[float]) -> bool:
    """Return whether to restart a process after this exit code.

    A process that cannot start is given up, unless it had served before: a missing build may come back.
    """
    if code >= 0 and code != STUCK and not crashes:
        return False
    crashes.append(time.monotonic())
    what = "its run never ended" if code == STUCK else signal.Signals(-code).name if code < 0 else f"exit code {code}"
    log("crash", reason=what)
    if code >= 0 and code != STUCK:
        time.sleep(PAUSE)
    if len(crashes) == CRASHES and crashes[-1] - crashes[0] < WITHIN:
        log("end", reason=f"{CRASHES} crashes in a minute, the last by {what}")
        return False
    return True


def inherited_socket() -> socket.socket | None:
    """Return the listening socket from the supervisor, with which this process ends; None in the supervisor itself."""
    number, _, parent = os.environ.pop(SOCKET, "").partition(" ")
    if not number.isdigit():
        return None
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGTERM)
        # It ended before.
        if os.getppid() != int(parent):
            raise SystemExit(1)
    return socket.socket(fileno=int(number))


def log(event: str, **fields: object) -> None:
    """Write one line, without the fields that equal None."""
    record = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
    record |= {name: value for name, value in fields.items() if value is not None}  # type: ignore[misc]  # any JSON
    sys.stderr.write(json.dumps(record) + "\n")
    sys.stderr.flush()
