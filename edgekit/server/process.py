"""The server's processes: one that listens and watches, one that answers and is started again where it crashes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from types import FrameType

from edgekit.errors import UsageError
from edgekit.server.log import log

SOCKET = "EDGEKIT_SERVE_SOCKET"
"""In the answering process: the number of the listening socket that it was given."""
STUCK = 70
"""Exit code of one whose run never ended."""
CRASHES, WITHIN = 5, 60.0
"""So many in so many seconds are given up on."""
BACKLOG = 1024


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; it outlives the process that answers, so that clients wait instead of failing.

    Raises:
        UsageError: If the address is taken or unknown.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def supervise(listener: socket.socket, command: list[str]) -> int:
    """Run a command with the socket, again after each crash; its exit code once it ends by itself.

    Ctrl-C and SIGTERM reach it, and it answers what waits before it ends.
    """
    crashes: deque[float] = deque(maxlen=CRASHES)
    ending = False
    while True:
        environment = os.environ | {SOCKET: str(listener.fileno())}
        child = subprocess.Popen(command, env=environment, pass_fds=(listener.fileno(),), process_group=0)

        def end(number: int, frame: FrameType | None, child: subprocess.Popen[bytes] = child) -> None:
            nonlocal ending
            ending = True
            child.send_signal(signal.SIGTERM)

        before = [(number, signal.signal(number, end)) for number in (signal.SIGTERM, signal.SIGINT)]
        try:
            code = child.wait()
        finally:
            for number, handler in before:
                signal.signal(number, handler)
        if ending or (code >= 0 and code != STUCK):
            return 0 if ending else code
        crashes.append(time.monotonic())
        what = "its run never ended" if code == STUCK else signal.Signals(-code).name
        log("crash", reason=what)
        if len(crashes) == CRASHES and crashes[-1] - crashes[0] < WITHIN:
            print(f"edgekit: the server crashed {CRASHES} times in a minute ({what})", file=sys.stderr)  # noqa: T201
            return 1


def inherited() -> socket.socket | None:
    """The listening socket that a supervisor gave this process; None in the supervisor itself."""
    number = os.environ.pop(SOCKET, "")
    return socket.socket(fileno=int(number)) if number.isdigit() else None
