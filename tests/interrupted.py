"""Work that is cut off at one of its file-system calls: a kill, or an error of the operating system.

The work runs in a fork of the test's process, in which an audit hook counts the calls below a folder (opening,
creating, renaming, removing, listing) and fsync. At the given one the process is killed with SIGKILL before the call,
or the call fails with an errno, once or from then on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgekit.errors import EdgekitError

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir", "os.truncate"}
KILL = 0
DONE, TOLD, BUG, KILLED = "done", "told", "bug", "killed"


@dataclass(frozen=True)
class End:
    """How work ended: DONE, TOLD (one sentence of edgekit's), BUG (anything else) or KILLED; how many calls it made."""

    how: str
    text: str = ""
    calls: int = 0


def run(root: Path, work: Callable[[], object], stop: int = -1, fault: int = KILL, lasting: bool = False) -> End:
    """Run work in a fork.

    Args:
        root: Calls below this folder count.
        work: What to do.
        stop: Number of the call that is cut off, from 0; -1 for none.
        fault: KILL, or the errno with which the call fails.
        lasting: Whether all calls after it that write fail too, as on a full disk.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            hook = _Hook(root, stop, fault, lasting)
            end = _worked(work, hook)
            os.write(writing, json.dumps([end.how, end.text[-6000:], hook.calls]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return End(KILLED)
    return End(*json.loads(said))


def spread(calls: int, points: int) -> list[int]:
    """So many of the calls, evenly, the first and the last among them."""
    return sorted({round(n * (calls - 1) / max(points - 1, 1)) for n in range(min(points, calls))})


class _Hook:
    """Counts calls and cuts one off."""

    def __init__(self, root: Path, stop: int, fault: int, lasting: bool) -> None:
        self.root, self.stop, self.fault, self.lasting = f"{root}/", stop, fault, lasting
        self.calls, self.on = 0, True
        # A kill cuts no power: nothing needs the disk itself.
        os.fsync = lambda fd: self.call(writes=True)
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.on or event not in EVENTS or not self.counts(event, arguments):
            return
        mode = arguments[2] if event == "open" and len(arguments) > 2 else 0
        self.call(event != "open" or bool(isinstance(mode, int) and mode & (os.O_WRONLY | os.O_RDWR)))

    def counts(self, event: str, arguments: tuple[object, ...]) -> bool:
        """Whether a call is below the folder; names relative to an open folder are those of a tree being removed."""
        path = arguments[0]
        if isinstance(path, int) or path is None:
            return event == "os.scandir"
        text = os.fsdecode(path)  # type: ignore[arg-type]
        below = text.startswith(self.root) or f"{text}/" == self.root
        return below or (event in ("os.remove", "os.rmdir") and not text.startswith("/"))

    def call(self, writes: bool) -> None:
        number, self.calls = self.calls, self.calls + 1
        if self.stop < 0 or (number != self.stop and not (self.lasting and writes and number > self.stop)):
            return
        if self.fault == KILL:
            self.on = False
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(self.fault, os.strerror(self.fault))


def _worked(work: Callable[[], object], hook: _Hook) -> End:
    try:
        work()
    except EdgekitError as error:
        return End(TOLD, str(error))
    except BaseException:
        return End(BUG, traceback.format_exc())
    finally:
        hook.on, hook.stop = False, -1
    return End(DONE)
