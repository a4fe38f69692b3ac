"""One `.tflite` file that answers until nobody asks any more: run by the interpreter of the environment `litert`.

It imports nothing of edgekit but the file beside it. Answers go through a connection whose number it is given, so that
libraries may print what they like.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

DELEGATE = "DELEGATE"
"""The name of an operator that XNNPACK took the place of others with."""


def main() -> None:
    """Say what the file is, then answer each message."""
    model, threads, handle = sys.argv[1:]
    connection = Connection(int(handle))
    sys.path.insert(0, str(Path(__file__).parent))
    import frames  # type: ignore[import-not-found]  # beside this file

    def told(**facts: object) -> bytes:
        return frames.TEXT + json.dumps(facts).encode()  # type: ignore[no-any-return]  # bytes

    try:
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_path=model, num_threads=int(threads))
        interpreter.allocate_tensors()  # until then XNNPACK has taken nothing
        runner = interpreter.get_signature_runner()
        ran = [str(one["op_name"]) for one in interpreter._get_ops_details()]
        facts = {"version": version("ai-edge-litert"), "parts": ran.count(DELEGATE)}
        names = {"inputs": sorted(runner.get_input_details()), "outputs": sorted(runner.get_output_details())}
    except Exception as error:
        connection.send_bytes(frames.REFUSED + _reason(error).encode())
        return
    connection.send_bytes(told(**facts, **names))
    while True:
        try:
            message = connection.recv_bytes()
        except EOFError:
            return
        try:
            arrays = frames.unpacked(message[1:])
            if message[:1] == frames.CLOCK:
                connection.send_bytes(told(milliseconds=_timed(runner, arrays)))
            else:
                connection.send_bytes(frames.ANSWER + frames.packed(runner(**arrays)))
        except Exception as error:
            connection.send_bytes(frames.REFUSED + _reason(error).encode())


def _timed(runner: Any, arrays: dict[str, Any]) -> list[float]:
    """Milliseconds of each run; how long and how often is asked for in arrays of one number."""
    seconds, warm_ups, least = (arrays.pop(name).item() for name in (" seconds", " warm_ups", " least"))
    for _ in range(int(warm_ups)):
        runner(**arrays)
    taken: list[float] = []
    began = time.perf_counter()
    while len(taken) < least or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        runner(**arrays)
        taken.append(1e3 * (time.perf_counter() - start))
    return taken


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


if __name__ == "__main__":
    main()
