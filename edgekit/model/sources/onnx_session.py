"""ONNX Runtime in a separate process for users' files, which can crash it, hang it or exhaust memory.

The process reads arrays as safetensors and replies with arrays or with an error sentence. It has a worker's limits, and
ends with its session and with its parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NoReturn, Protocol

import numpy as np

from edgekit.errors import HostError, ModelError, out_of_memory, whole_reason
from edgekit.model.onnx_check import check_onnx
from edgekit.model.spec import Array
from edgekit.storage import limits as child
from edgekit.storage.limits import confine, is_confined, limits_of_answer

# seconds; longest wait for the end of a process that no longer replies.
ENDING = 60.0

_OWN = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed: ?"
    r"|/\S+\.(cc|h):\d+ ((\S+ )?[^\s(]*::[^\s(]*\(.*?\) (const )?(?=[A-Za-z_]+ [=!<>]|[A-Z]))?|onnxruntime::\S+ "
)
"""Error numbers and source files in ONNX Runtime's messages."""


class Session(Protocol):
    """A session that maps arrays to arrays, in the order of the file's inputs and outputs."""

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Run one batch."""


def open_session(path: Path, threads: int) -> Session:
    """Open an ONNX file: in this process if it is a worker, else in a separate one.

    Raises:
        ModelError: If ONNX Runtime refuses the file or crashes on it.
        HostError: If it takes more memory or time than a worker's limits.
    """
    # The copy in a build may come from anyone.
    check_onnx(path)
    return _Here(path, threads) if is_confined() else _Elsewhere(path, threads)


class _Here:
    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self._path = path
        with self._sentences():
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._names = [i.name for i in self._session.get_inputs()]

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        with self._sentences():
            answers = self._session.run(None, dict(zip(self._names, arrays, strict=True)))
        if not all(isinstance(answer, np.ndarray) and answer.dtype.kind in "biuf" for answer in answers):
            raise ModelError(f"'{self._path}' returns texts or sequences. Use tensors of numbers only")
        return list(answers)

    @contextlib.contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except ModelError:
            raise
        except Exception as error:
            # Which size is wrong stands on the lines after the first.
            text = _OWN.sub("", whole_reason(error))
            raise ModelError(f"ONNX Runtime refuses '{self._path}': {text}") from error


class _Elsewhere:
    def __init__(self, path: Path, threads: int) -> None:
        self._path, self._limits = path, limits_of_answer(path.stat().st_size)
        self._lock, memory = threading.Lock(), str(self._limits.memory)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"import {__name__} as own; own.serve()", str(path), str(threads), memory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C is for the parent.
            start_new_session=True,
            env=child.environment(),
        )
        weakref.finalize(self, _end, self._process)
        self._exchange()

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        with self._lock:
            return self._exchange(arrays)

    def _exchange(self, arrays: Sequence[Array] | None = None) -> list[Array]:
        """Send arrays, if any, and read the reply, within a worker's time limit."""
        from safetensors import SafetensorError

        pipes = self._process.stdin, self._process.stdout
        if pipes[0] is None or pipes[1] is None:
            raise ModelError("the process of ONNX Runtime has no pipes")
        alarm = threading.Timer(self._limits.seconds, self._process.kill)
        alarm.daemon = True
        alarm.start()
        try:
            if arrays is not None:
                _write(pipes[0], arrays)
            return _read(pipes[1])
        except (OSError, EOFError, LookupError, ValueError, SafetensorError) as error:
            raise self._cause(timed_out=not alarm.is_alive()) from error
        except _RefusedError as refused:
            if out_of_memory(str(refused)):
                raise HostError(self._limits.memory_sentence) from refused
            raise ModelError(str(refused)) from refused
        finally:
            alarm.cancel()

    def _cause(self, timed_out: bool) -> Exception:
        """Return the reason why the process died without a reply."""
        code = self._process.wait(ENDING)
        if timed_out:
            return HostError(self._limits.seconds_sentence)
        if code == -signal.SIGKILL:
            return HostError(self._limits.memory_sentence)
        return ModelError(f"ONNX Runtime died ({child.ending(code)}) on '{self._path}'. Export it again")


class _RefusedError(Exception):
    """An error sentence of the process in place of a reply."""


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _write(stream: IO[bytes], arrays: Sequence[Array]) -> None:
    from safetensors.numpy import save

    data = save({str(place): np.asarray(array, order="C") for place, array in enumerate(arrays)})
    stream.write(json.dumps({"bytes": len(data), "arrays": len(arrays)}).encode() + b"\n" + data)
    stream.flush()


def _read(stream: IO[bytes]) -> list[Array]:
    from safetensors.numpy import load

    head = json.loads(stream.readline(1 << 20) or b"{}")
    if "refused" in head:
        raise _RefusedError(head["refused"])
    if not head:
        raise EOFError
    arrays = load(stream.read(head["bytes"]))
    return [arrays[str(place)] for place in range(head["arrays"])]


def serve() -> NoReturn:
    """Run the process: reply to the opening of the file, then to each batch."""
    path, threads, memory = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "wb")
    # Output of libraries must not mix with replies.
    os.dup2(2, 1)
    confine(memory)
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    try:
        session, arrays = _Here(path, threads), list[Array]()
        while True:
            _write(answers, arrays)
            arrays = session.run(_read(sys.stdin.buffer))
    except (ModelError, MemoryError) as error:
        answers.write(json.dumps({"refused": str(error) or type(error).__name__}).encode() + b"\n")
        answers.flush()
    # The parent has closed its ends.
    except (OSError, EOFError):
        pass
    os._exit(0)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
