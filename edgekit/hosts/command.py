"""A command of this host that reaches another one: what it printed, or a sentence on why not."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from edgekit.errors import NotVerifiedHere

LONGEST = 300  # characters of what another host says
LOOK = 2.0  # seconds


def ran(
    command: Sequence[str],
    what: str,
    seconds: float,
    stdin: Any = subprocess.DEVNULL,
    alive: Callable[[], None] = lambda: None,
    **options: Any,
) -> bytes:
    """Run a command to its end; returns what it printed.

    Args:
        command: The command and its arguments.
        what: Stands before the reason where it fails.
        seconds: That it may take.
        stdin: As for `subprocess.run`.
        alive: Called every LOOK seconds; what it raises ends the command.
        **options: As for `subprocess.run`.

    Raises:
        NotVerifiedHere: If it fails or takes longer.
    """
    late = time.monotonic() + seconds
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, **options) as process:
        try:
            while True:
                try:
                    printed, said = process.communicate(timeout=min(LOOK, max(0, late - time.monotonic())))
                    break
                except subprocess.TimeoutExpired:
                    alive()
                    if time.monotonic() > late:
                        raise NotVerifiedHere(f"{what}: no end after {seconds:.0f} s") from None
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise NotVerifiedHere(f"{what}: {_why(said or printed) or f'ended with code {process.returncode}'}")
    return bytes(printed)


def _why(said: bytes) -> str:
    """The first line that speaks of an error, or the last one."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    return plain(next((line for line in lines if "error:" in line), lines[-1] if lines else ""))


def plain(text: str) -> str:
    """Another host's words in one line, without what cannot be printed."""
    return "".join(c if c.isprintable() else "?" for c in text.strip())[:LONGEST]
