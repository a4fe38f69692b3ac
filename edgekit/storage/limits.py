"""Memory and time limits of processes that run the code or the files of others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from edgekit.errors import UsageError

MEMORY_VARIABLE, SECONDS_VARIABLE = "EDGEKIT_WORKER_GIB", "EDGEKIT_WORKER_SECONDS"
# Shorter if latency does not matter, as in tests.
TIMED_VARIABLE = "EDGEKIT_TIMED_SECONDS"
_confined = False


@dataclass(frozen=True)
class Limits:
    """Limits of one worker: bytes of memory, and seconds until it is killed.

    The memory counts the data of the worker and of each process that it starts, and what they share. The operating
    system enforces it on Linux.
    """

    memory: int
    seconds: float

    @property
    def memory_sentence(self) -> str:
        """Reason why a worker that exceeded its memory was stopped."""
        most = f"{self.memory / (1 << 30):.3g}"
        return f"the worker needed more memory than this host has, or than its {most} GiB, which {MEMORY_VARIABLE} sets"

    @property
    def seconds_sentence(self) -> str:
        """Reason why a worker that exceeded its time was stopped."""
        return f"the worker was stopped after {self.seconds:.3g} s, which {SECONDS_VARIABLE} sets"


def limits_for(size: int) -> Limits:
    """Return limits for a model of so many bytes, far above the needs of a working converter or runtime.

    Raises:
        UsageError: If the environment sets a limit that is not a number above zero.
    """
    return Limits(
        memory=int(_set(MEMORY_VARIABLE, 16 + 64 * size / (1 << 30)) * (1 << 30)),
        seconds=_set(SECONDS_VARIABLE, 3600 + 30 * size / 1e6),
    )


def limits_of_answer(size: int) -> Limits:
    """Return limits for one answer of a file of so many bytes: two minutes plus 30 s for each MB.

    Raises:
        UsageError: As `limits_for`.
    """
    return Limits(limits_for(size).memory, _set(SECONDS_VARIABLE, 120 + 30 * size / 1e6))


def require_settings() -> None:
    """Check the limits in the environment before anything is written or judged.

    Raises:
        UsageError: Naming the variable.
    """
    limits_for(0)
    timed_seconds(0.0)


def timed_seconds(default: float) -> float:
    """Return the minimum timing of each runtime in seconds, unless the environment sets another; 0 for no timing.

    Raises:
        UsageError: If the environment's value is not a number.
    """
    return _set(TIMED_VARIABLE, default, zero=True)


def _set(variable: str, default: float, zero: bool = False) -> float:
    text = os.environ.get(variable, "")
    try:
        value = float(text) if text else default
        if 0 < value < 1e9 or (zero and value == 0):
            return value
    except ValueError:
        pass
    least = "of 0 or more" if zero else "above 0"
    raise UsageError(f"{variable} is '{text}'. Set a number {least}, or nothing for {default:.4g}")


def confine(memory: int) -> None:
    """Limit the data of this process, and of each that it starts, to so many bytes; a lower existing limit stays."""
    # Not the address space, of which browsers and CUDA reserve terabytes.
    import resource

    global _confined
    _confined = True
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))


def free_unused() -> None:
    """Return memory that this process freed to the system; the C library of Linux (glibc) otherwise keeps it."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def is_confined() -> bool:
    """Return whether this process is a worker with limits."""
    return _confined


def environment() -> dict[str, str]:
    """Return the environment of a child, with this process's module path."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p or str(Path.cwd()) for p in sys.path)}


def ending(code: int) -> str:
    """Return how a child ended, from its return code: `SIGSEGV`, or `exit code 1`."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
