"""Calls of one function in a separate process: paths and JSON in, JSON out.

Converters and runtimes crash, hang, fill the memory, print and conflict; none of that reaches the calling process. The
worker writes lines of JSON behind a random word from its call: progress, then one result or one error; any other output
comes from a library. A supervisor (`supervisor.py`) ends the worker and all that it started with its call and
with its parent. It is a new process, or is forked from one that has imported the needed modules (`fork_server.py`).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TextIO

from edgekit import errors
from edgekit.errors import DependencyError, EdgekitError, ExportError, HostError, out_of_memory, traceback_of
from edgekit.hosts import fork_server, supervisor
from edgekit.hosts.fork_server import ForkedWorker
from edgekit.storage import limits as child
from edgekit.storage.files import hashed_files, trust_hashes
from edgekit.storage.host_errors import as_sentences
from edgekit.storage.limits import Limits, confine, limits_for
from edgekit.target import silent

Progress = Callable[[float, str], None]
Worker = subprocess.Popen[str] | ForkedWorker
MAIN = f"{__name__}:main"
# Characters of one line of a worker's pipe; real ones are below 1 MiB.
LONGEST_LINE = 64 << 20


def call(
    function: Callable[..., Mapping[str, object]],
    arguments: Mapping[str, object],
    progress: Progress = silent,
    limits: Limits | None = None,
    modules: Sequence[str] = (),
) -> dict[str, object]:
    """Call `function(**arguments, progress=...)` in a worker process.

    Args:
        function: A top-level function of a module that the worker can import; returns JSON values.
        arguments: JSON values.
        progress: Called with the worker's progress.
        limits: Limits of the worker; None for those of a small model.
        modules: Slow imports of the worker, which it may share with other workers (`fork_server.py`). Empty
            for a new process, which shares nothing.

    Raises:
        EdgekitError: The worker's error, by its class.
        HostError: If it exceeded its limits, or the operating system killed it.
        ExportError: If it died, has a bug or returned an invalid message; the message holds the end of its output.
    """
    limits = limits or limits_for(0)
    with tempfile.TemporaryFile("w+", errors="replace") as stderr_file:
        forked = fork_server.fork(MAIN, modules, stderr_file.fileno(), limits.memory) if modules else None
        worker = forked or _start_worker(stderr_file, limits.memory)
        alarm = threading.Timer(limits.seconds, _stop, [worker.pid])
        # An interruption between here and the `try` must not make Python wait for the timer.
        alarm.daemon = True
        try:
            alarm.start()
            name = f"{function.__module__}:{function.__qualname__}"
            word = secrets.token_hex(16)
            request = {
                "function": name,
                "memory": limits.memory,
                "word": word,
                "arguments": dict(arguments),
                "hashes": hashed_files(),
            }
            answer = _converse(worker, request, word, progress)
            code = worker.wait()
        finally:
            timed_out = not alarm.is_alive()
            alarm.cancel()
            # After an error or an interruption it still runs.
            if worker.returncode is None:
                _stop(worker.pid)
                worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        stderr_file.seek(0)
        return _outcome(answer, code, stderr_file.read(), limits, timed_out)


def _start_worker(text_io: TextIO, memory: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, str(memory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=text_io,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        env=child.environment(),
    )


def main() -> NoReturn:
    """Run the worker: one call, read from standard input."""
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    # Output of libraries goes to standard error.
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    confine(request["memory"])
    trust_hashes(request["hashes"])

    def say(**message: object) -> None:
        answer.write(f"{request['word']}{json.dumps(message)}\n")
        answer.flush()

    def progress(share: float, text: str) -> None:
        say(progress=[share, text])

    try:
        module, _, function = request["function"].partition(":")
        with as_sentences():
            result = getattr(importlib.import_module(module), function)(**request["arguments"], progress=progress)
        say(result=result)
    except EdgekitError as error:
        say(error=type(error).__name__, message=str(error), report=traceback_of(error))
    except ModuleNotFoundError as error:
        say(error=DependencyError.__name__, message=f"{error}. Install it", report="")
    except Exception:
        say(bug=traceback.format_exc())
    # Some libraries crash in their teardown, so skip it.
    sys.stderr.flush()
    os._exit(0)


def _converse(worker: Worker, request: Mapping[str, object], word: str, progress: Progress) -> dict[str, object]:
    """Send the request, and read until a result, an error or the end of the output."""
    if worker.stdin is None or worker.stdout is None:
        raise ExportError("the worker process has no pipes")
    with contextlib.suppress(BrokenPipeError):
        worker.stdin.write(json.dumps(dict(request)) + "\n")
        worker.stdin.flush()
    while line := worker.stdout.readline(LONGEST_LINE):
        _, own, payload = line.rpartition(word)
        if not own:
            continue
        try:
            message: dict[str, object] = json.loads(payload)
        except ValueError:
            raise ExportError(f"the worker process returned an invalid message: '{payload[:80].strip()}'") from None
        progress_message = message.get("progress")
        if not isinstance(progress_message, list):
            return message
        progress(progress_message[0], progress_message[1])
    return {}


def _outcome(answer: dict[str, object], code: int, stderr: str, limits: Limits, timed_out: bool) -> dict[str, object]:
    if isinstance(answer.get("result"), dict):
        return answer["result"]  # type: ignore[return-value]  # checked on the line above
    if code == supervisor.SHARED_MEMORY or out_of_memory(str(answer) if answer else stderr):
        raise HostError(limits.memory_sentence)
    if "error" in answer:
        raised: EdgekitError = getattr(errors, str(answer["error"]), ExportError)(str(answer["message"]))
        raised.report = str(answer.get("report", ""))
        raise raised
    if "bug" in answer:
        raise ExportError(f"the worker met a bug:\n{answer['bug']}")
    if timed_out:
        raise HostError(limits.seconds_sentence)
    if code == -signal.SIGKILL:
        why = "which happens when memory or processor time (`ulimit -t`) runs out"
        raise HostError(f"the operating system killed the worker, {why}")
    tail = "\n".join(stderr.strip().splitlines()[-5:])
    raise ExportError(
        f"the worker process died ({child.ending(code)})" + (f"; its last output was: {tail}" if tail else "")
    )


def _stop(process: int) -> None:
    """Signal a keeper to end its worker."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)


if __name__ == "__main__":
    supervisor.exit_as(supervisor.keep(main, int(sys.argv[1])))
