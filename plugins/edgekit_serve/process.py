"""The server's processes: one listens and supervises, the other answers and is restarted if it crashes or hangs.

Both log to standard error, one JSON object a line.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from threading import Event
from types import FrameType

from edgekit.errors import UsageError

SOCKET = "EDGEKIT_SERVE_SOCKET"
"""Environment variable of the answering process: its listening socket, its supervisor, and a pipe for signs of life."""
STUCK, LATE = 70, 71
"""Exit codes of a process that hangs: while it answers, and in its start."""
SILENCE = 15.0
"""Seconds without a sign of life, after which a process that had started is killed; it gives one every second."""
START = 600.0
"""Seconds in which a process has to start: it checks signatures and files, and opens and compiles each artifact."""
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
    """Run a command with the socket, again if it crashes or hangs; return its exit code when it ends normally.

    It receives Ctrl-C and SIGTERM, and answers the waiting requests before it ends.
    """
    crashes: deque[float] = deque(maxlen=CRASHES)
    child: subprocess.Popen[bytes] | None = None
    ending = Event()

    def end(number: int, frame: FrameType | None) -> None:
        ending.set()
        if child is not None:
            child.send_signal(signal.SIGTERM)
            # It has the socket too. When it closes it, new clients are refused instead of waiting for nobody.
            listener.close()

    before = [(number, signal.signal(number, end)) for number in (signal.SIGTERM, signal.SIGINT)]
    inherited = listener.fileno()
    try:
        while not ending.is_set():
            signs, writer = os.pipe()
            environment = os.environ | {SOCKET: f"{inherited} {os.getpid()} {writer}"}
            child = subprocess.Popen(command, env=environment, pass_fds=(inherited, writer), process_group=0)
            os.close(writer)
            if ending.is_set():
                child.send_signal(signal.SIGTERM)
            code = _wait(child, signs, ending)
            os.close(signs)
            if not ending.is_set() and not _again(code, crashes, ending):
                return code if code > 0 and code not in (STUCK, LATE) else 1
        return 0
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _wait(child: subprocess.Popen[bytes], signs: int, ending: Event) -> int:
    """Return the exit code of a process; kill it if it does not start, or if its signs of life stop."""
    last, started = time.monotonic(), False
    while (code := child.poll()) is None:
        # A process that is still starting ends at once by SIGTERM, unless it is stopped.
        limit = SILENCE if started or ending.is_set() else START
        if select.select([signs], [], [], min(1.0, limit))[0]:
            if not os.read(signs, 4096):
                return child.wait()
            last, started = time.monotonic(), True
        elif time.monotonic() - last > limit:
            child.kill()
            child.wait()
            return STUCK if started else LATE
    return code


def _again(code: int, crashes: deque[float], ending: Event) -> bool:
    """Return whether to restart a process after this exit code.

    A process that cannot start is given up, unless it had served before: a missing build may come back.
    """
    what = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    what = {STUCK: "it hangs", LATE: f"it did not start within {START:g} s"}.get(code, what)
    cannot_start = code >= 0 and code != STUCK
    if cannot_start and not crashes:
        if code == LATE:
            log("end", reason=what)
        return False
    crashes.append(time.monotonic())
    log("crash", reason=what)
    resumes = crashes[-1] + (PAUSE if cannot_start else 0.0)
    # A signal's handler does not shorten a sleep.
    while time.monotonic() < resumes and not ending.is_set():
        time.sleep(0.1)
    if len(crashes) == CRASHES and crashes[-1] - crashes[0] < WITHIN:
        log("end", reason=f"{CRASHES} crashes in a minute, the last by {what}")
        return False
    return True


def inherited_socket() -> tuple[socket.socket, Callable[[], None]] | None:
    """Return the supervisor's listening socket, and a function that gives it a sign of life; None in the supervisor.

    This process ends with the supervisor.
    """
    words = os.environ.pop(SOCKET, "").split()
    if len(words) != 3:
        return None
    number, parent, signs = map(int, words)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGTERM)
        # It ended before.
        if os.getppid() != parent:
            raise SystemExit(1)
    os.set_inheritable(signs, False)
    os.set_blocking(signs, False)

    def live() -> None:
        # The supervisor may be stopped, or gone.
        with suppress(OSError):
            os.write(signs, b".")

    return socket.socket(fileno=number), live


def log(event: str, **fields: object) -> None:
    """Write one line, without the fields that equal None."""
    record = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
    record |= {name: value for name, value in fields.items() if value is not None}  # type: ignore[misc]  # any JSON
    sys.stderr.write(json.dumps(record) + "\n")
    sys.stderr.flush()
