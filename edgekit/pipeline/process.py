"""One function in a process of its own: paths and JSON in, JSON out.

Converters and runtimes crash, hang, print and clash; none of that reaches the process that asked. The worker speaks
lines of JSON: progress, then one result or one error. It ends itself when its parent is gone.
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
from collections.abc import Callable, Mapping
from typing import TextIO

from edgekit import errors
from edgekit.errors import EdgekitError, ExportError
from edgekit.storage.host_errors import as_sentences
from edgekit.target import silent

Progress = Callable[[float, str], None]


def call(
    function: Callable[..., Mapping[str, object]],
    arguments: Mapping[str, object],
    progress: Progress = silent,
    timeout: float = 3600,
    python: str = sys.executable,
) -> dict[str, object]:
    """Call `function(**arguments, progress=...)` in a worker process.

    Args:
        function: A top-level function of a module that the worker can import; returns what JSON can hold.
        arguments: What JSON can hold.
        progress: Told what the worker says of its progress.
        timeout: Seconds after which the worker is killed.
        python: The interpreter; another one where libraries clash.

    Raises:
        EdgekitError: The worker's own, by its class.
        ExportError: If the worker died, hung or met a bug; the message holds the end of what it said.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        worker = subprocess.Popen(
            [python, "-m", __name__, f"{function.__module__}:{function.__qualname__}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([p for p in sys.path if p])},
        )
        alarm = threading.Timer(timeout, worker.kill)
        alarm.daemon = True  # an interruption between here and the `try` must not make Python wait for it
        try:
            alarm.start()
            answer = _converse(worker, arguments, progress)
            code = worker.wait()
        finally:
            timed_out = not alarm.is_alive()
            alarm.cancel()
            _end(worker)
        said.seek(0)
        return _outcome(answer, code, said.read(), timeout if timed_out else None)


def main() -> None:
    """The worker: one call, read from standard input."""
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever libraries print goes to standard error
    arguments = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def progress(done: float, text: str) -> None:
        _say(answer, {"progress": [done, text]})

    try:
        module, _, function = sys.argv[1].partition(":")
        with as_sentences():
            result = getattr(importlib.import_module(module), function)(**arguments, progress=progress)
        _say(answer, {"result": result})
    except EdgekitError as error:
        report = "".join(traceback.format_exception(error))
        _say(answer, {"error": type(error).__name__, "message": str(error), "report": report})
    except Exception:
        _say(answer, {"bug": traceback.format_exc()})
    answer.flush()
    # Some libraries crash while they are taken down; nothing is left to do that a crash could spoil.
    sys.stderr.flush()
    os._exit(0)


def _converse(worker: subprocess.Popen[str], arguments: Mapping[str, object], progress: Progress) -> dict[str, object]:
    if worker.stdin is None or worker.stdout is None:
        raise ExportError("the worker process has no pipes")
    answer: dict[str, object] = {}
    with contextlib.suppress(BrokenPipeError):
        worker.stdin.write(json.dumps(dict(arguments)) + "\n")
        worker.stdin.flush()
    for line in worker.stdout:
        message = json.loads(line)
        if "progress" in message:
            progress(*message["progress"])
        else:
            answer = message
    return answer


def _outcome(answer: dict[str, object], code: int, said: str, timeout: float | None) -> dict[str, object]:
    if isinstance(answer.get("result"), dict):
        return answer["result"]  # type: ignore[return-value]  # checked on the line above
    if "error" in answer:
        raised: EdgekitError = getattr(errors, str(answer["error"]), ExportError)(str(answer["message"]))
        raised.report = str(answer.get("report", ""))
        raise raised
    if "bug" in answer:
        raise ExportError(f"the worker met a bug:\n{answer['bug']}")
    if timeout is not None:
        raise ExportError(f"the worker was stopped after {timeout:.0f} s")
    cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    tail = "\n".join(said.strip().splitlines()[-5:])
    raise ExportError(f"the worker process died ({cause})" + (f"; it said last: {tail}" if tail else ""))


def _end(worker: subprocess.Popen[str]) -> None:
    if worker.poll() is None:
        worker.kill()
        worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _end_with_parent() -> None:
    while os.read(0, 1):  # not sys.stdin: its lock would be held for good in what a library forks
        pass
    os._exit(1)


def _say(stream: TextIO, message: Mapping[str, object]) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


if __name__ == "__main__":
    main()
