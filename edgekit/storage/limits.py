"""What a process that runs the code or the files of others may take of this host: memory and time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from edgekit.errors import UsageError

MEMORY_VARIABLE, SECONDS_VARIABLE = "EDGEKIT_WORKER_GIB", "EDGEKIT_WORKER_SECONDS"
TIMED_VARIABLE = "EDGEKIT_TIMED_SECONDS"  # shorter where latency is not the point, as in tests
_confined = False


@dataclass(frozen=True)
class Limits:
    """What one worker may take: bytes of memory, and seconds until it is killed.

    The memory is that of its own data, and of each process that it starts, and what they share with each other; the
    operating system holds to it on Linux.
    """

    memory: int
    seconds: float

    @property
    def memory_sentence(self) -> str:
        """Why a worker that needed more was stopped."""
        most = f"{self.memory / (1 << 30):.3g}"
        return f"the worker needed more memory than there is, or than its {most} GiB, which {MEMORY_VARIABLE} sets"

    @property
    def seconds_sentence(self) -> str:
        """Why a worker that took longer was stopped."""
        return f"the worker was stopped after {self.seconds:.3g} s, which {SECONDS_VARIABLE} sets"


def limits_for(size: int) -> Limits:
    """Limits for a model of so many bytes that no converter or runtime comes near that does what it should.

    Raises:
        UsageError: If the environment, which may set others, sets anything but a number above zero.
    """
    return Limits(
        memory=int(_set(MEMORY_VARIABLE, 16 + 64 * size / (1 << 30)) * (1 << 30)),
        seconds=_set(SECONDS_VARIABLE, 3600 + 30 * size / 1e6),
    )


def limits_of_answer(size: int) -> Limits:
    """As `limits_for`, for one answer of a file of so many bytes: two minutes, and 30 s for each MB.

    Raises:
        UsageError: As `limits_for`.
    """
    return Limits(limits_for(size).memory, _set(SECONDS_VARIABLE, 120 + 30 * size / 1e6))


def require_settings() -> None:
    """See that what the environment sets can be used, before anything is written or judged.

    Raises:
        UsageError: Naming the variable.
    """
    limits_for(0)
    timed_seconds(0.0)


def timed_seconds(default: float) -> float:
    """How long each runtime is timed at least, if the environment does not say otherwise; 0 for no timing.

    Raises:
        UsageError: If it says anything but a number.
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
    raise UsageError(f"{variable} is '{text}': set a number {least}, or nothing for {default:.4g}")


def confine(memory: int) -> None:
    """Let this process and each that it starts have so many bytes of data; a lower limit of the user's own stays.

    Not the address space: browsers and CUDA reserve terabytes of it.
    """
    import resource

    global _confined
    _confined = True
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))


def is_confined() -> bool:
    """Whether this process is a worker, which has limits."""
    return _confined


def environment() -> dict[str, str]:
    """The environment of a child, which finds modules where this process does."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p or str(Path.cwd()) for p in sys.path)}


def ending(code: int) -> str:
    """How a child ended, by its return code: `SIGSEGV`, or `exit code 1`."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
