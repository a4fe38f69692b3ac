"""One function in a process of its own: paths and JSON in, JSON out.

Converters and runtimes crash, hang, fill the memory, print and clash; none of that reaches the process that asked. The
worker speaks lines of JSON: progress, then one result or one error. It leads a process group, which ends with its call
and with its parent, whatever it started itself. It is a new process, or is forked from one that has imported what it
needs (`fork_server.py`).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from edgekit import errors
from edgekit.errors import DependencyError, EdgekitError, ExportError, HostError, UsageError, out_of_memory
from edgekit.hosts import fork_server
from edgekit.hosts.fork_server import ForkedWorker
from edgekit.storage.host_errors import as_sentences
from edgekit.target import silent

Progress = Callable[[float, str], None]
Worker = subprocess.Popen[str] | ForkedWorker
MAIN = f"{__name__}:main"
MEMORY_VARIABLE, SECONDS_VARIABLE = "EDGEKIT_WORKER_GIB", "EDGEKIT_WORKER_SECONDS"
LONGEST_LINE = 64 << 20  # characters of one line of a worker's answer; real ones are below 1 MiB


@dataclass(frozen=True)
class Limits:
    """What one worker may take: bytes of memory, and seconds until it is killed.

    The memory is that of its own data, and of each process that it starts; the operating system holds to it on Linux.
    """

    memory: int
    seconds: float


def limits_for(size: int) -> Limits:
    """Limits for a model of so many bytes that no converter or runtime comes near that does what it should.

    Raises:
        UsageError: If the environment, which may set others, sets anything but a number above zero.
    """
    return Limits(
        memory=int(_set(MEMORY_VARIABLE, 16 + 64 * size / (1 << 30)) * (1 << 30)),
        seconds=_set(SECONDS_VARIABLE, 3600 + 30 * size / 1e6),
    )


def _set(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    try:
        value = float(text) if text else default
        if 0 < value < 1e9:
            return value
    except ValueError:
        pass
    raise UsageError(f"{variable} is '{text}': set a number above 0, or nothing for {default:.4g}")


def call(
    function: Callable[..., Mapping[str, object]],
    arguments: Mapping[str, object],
    progress: Progress = silent,
    limits: Limits | None = None,
    modules: Sequence[str] = (),
) -> dict[str, object]:
    """Call `function(**arguments, progress=...)` in a worker process.

    Args:
        function: A top-level function of a module that the worker can import; returns what JSON can hold.
        arguments: What JSON can hold.
        progress: Told what the worker says of its progress.
        limits: What the worker may take; None for those of a small model.
        modules: What it needs that takes long to import, and may be shared with other workers (`fork_server.py`). None
            for a new process, which shares nothing.

    Raises:
        EdgekitError: The worker's own, by its class.
        HostError: If it took more than its limits, or the operating system killed it.
        ExportError: If it died, met a bug or returned an invalid message; the message holds the end of its output.
    """
    limits = limits or limits_for(0)
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        worker = (fork_server.fork(MAIN, modules, said.fileno()) if modules else None) or _started(said)
        alarm = threading.Timer(limits.seconds, _kill, [worker.pid])
        alarm.daemon = True  # an interruption between here and the `try` must not make Python wait for it
        try:
            alarm.start()
            name = f"{function.__module__}:{function.__qualname__}"
            asked = {"function": name, "memory": limits.memory, "arguments": dict(arguments)}
            answer = _converse(worker, asked, progress)
            code = worker.wait()
        finally:
            timed_out = not alarm.is_alive()
            alarm.cancel()
            _end(worker)
        said.seek(0)
        return _outcome(answer, code, said.read(), limits, timed_out)


def _started(said: TextIO) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        env=fork_server.environment(),
    )


def main() -> None:
    """The worker: one call, read from standard input."""
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever libraries print goes to standard error
    asked = json.loads(sys.stdin.readline())
    _limit_memory(asked["memory"])
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def progress(done: float, text: str) -> None:
        _say(answer, {"progress": [done, text]})

    try:
        module, _, function = asked["function"].partition(":")
        with as_sentences():
            result = getattr(importlib.import_module(module), function)(**asked["arguments"], progress=progress)
        _say(answer, {"result": result})
    except EdgekitError as error:
        report = "".join(traceback.format_exception(error))
        _say(answer, {"error": type(error).__name__, "message": str(error), "report": report})
    except ModuleNotFoundError as error:
        _say(answer, {"error": DependencyError.__name__, "message": f"{error}: install it", "report": ""})
    except Exception:
        _say(answer, {"bug": traceback.format_exc()})
    answer.flush()
    # Some libraries crash while they are taken down; nothing is left to do that a crash could spoil.
    sys.stderr.flush()
    os._exit(0)


def _converse(worker: Worker, asked: Mapping[str, object], progress: Progress) -> dict[str, object]:
    """Ask, and listen until there is a result or an error, or nobody speaks any more."""
    if worker.stdin is None or worker.stdout is None:
        raise ExportError("the worker process has no pipes")
    with contextlib.suppress(BrokenPipeError):
        worker.stdin.write(json.dumps(dict(asked)) + "\n")
        worker.stdin.flush()
    while line := worker.stdout.readline(LONGEST_LINE):
        message = _message(line)
        told = message.get("progress")
        if not isinstance(told, list):
            return message
        progress(float(told[0]), str(told[1]))
    return {}


def _message(line: str) -> dict[str, object]:
    """One line of a worker: progress of two parts, a result, an error with its message, or a bug.

    Raises:
        ExportError: For anything else, as a library leaves it that writes to every open file.
    """
    try:
        said = json.loads(line)
        told = said.get("progress", [0.0, ""])
        if len(told) == 2 and isinstance(told[0], int | float) and set(said) & {"progress", "result", "error", "bug"}:
            return dict(said)
    except (ValueError, RecursionError, AttributeError, TypeError):
        pass
    raise ExportError(f"the worker process returned an invalid message: '{line[:80].strip()}'")


def _outcome(answer: dict[str, object], code: int, said: str, limits: Limits, timed_out: bool) -> dict[str, object]:
    if isinstance(answer.get("result"), dict):
        return answer["result"]  # type: ignore[return-value]  # checked on the line above
    if out_of_memory(str(answer) if answer else said):
        most = f"{limits.memory / (1 << 30):.3g}"
        raise HostError(
            f"the worker needed more memory than there is, or than its {most} GiB, which {MEMORY_VARIABLE} sets"
        )
    if "error" in answer:
        raised: EdgekitError = getattr(errors, str(answer["error"]), ExportError)(str(answer["message"]))
        raised.report = str(answer.get("report", ""))
        raise raised
    if "bug" in answer:
        raise ExportError(f"the worker met a bug:\n{answer['bug']}")
    if timed_out:
        raise HostError(f"the worker was stopped after {limits.seconds:.3g} s, which {SECONDS_VARIABLE} sets")
    if code == -signal.SIGKILL:
        raise HostError("the operating system killed the worker, as it does where memory runs out")
    cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    tail = "\n".join(said.strip().splitlines()[-5:])
    raise ExportError(f"the worker process died ({cause})" + (f"; its last output was: {tail}" if tail else ""))


def _end(worker: Worker) -> None:
    _kill(worker.pid)  # what it started may still run
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _kill(group: int) -> None:
    """Kill a worker and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: none but zombies is left
        os.killpg(group, signal.SIGKILL)


def _limit_memory(most: int) -> None:
    """Let this process and each that it starts have so many bytes of data; a lower limit of the user's own stays.

    Not the address space: browsers and CUDA reserve terabytes of it.
    """
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))


def _end_with_parent() -> None:
    while os.read(0, 1):  # not sys.stdin: its lock would be held for good in what a library forks
        pass
    _kill(os.getpid())
    os._exit(1)


def _say(stream: TextIO, message: Mapping[str, object]) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


if __name__ == "__main__":
    main()
