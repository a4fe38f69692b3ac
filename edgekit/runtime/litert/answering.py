"""One `.tflite` file that answers until nobody asks any more: run by the interpreter of the environment `litert`.

It imports nothing of edgekit but the file beside it. Libraries print to standard error here; answers go where standard
output went.
"""

from __future__ import annotations

import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

DELEGATE = "DELEGATE"
"""The name of an operator that XNNPACK took the place of others with."""


def main() -> None:
    """Say what the file is, then answer each frame."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asked = sys.stdin.buffer
    sys.path.insert(0, str(Path(__file__).parent))
    import frames  # type: ignore[import-not-found]  # beside this file

    try:
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_path=sys.argv[1], num_threads=int(sys.argv[2]))
        interpreter.allocate_tensors()  # until then XNNPACK has taken nothing
        runner = interpreter.get_signature_runner()
        ran = [str(one["op_name"]) for one in interpreter._get_ops_details()]
        facts = {"version": version("ai-edge-litert"), "parts": ran.count(DELEGATE)}
        names = {"inputs": sorted(runner.get_input_details()), "outputs": sorted(runner.get_output_details())}
    except Exception as error:
        frames.send(answers, frames.REFUSED, _reason(error).encode())
        return
    frames.send(answers, frames.TEXT, frames.told(**facts, **names))
    while True:
        kind, content = frames.receive(asked)
        if not kind:
            return
        try:
            arrays = frames.unpacked(content)
            if kind == frames.CLOCK:
                frames.send(answers, frames.TEXT, frames.told(milliseconds=_timed(runner, arrays)))
            else:
                frames.send(answers, frames.ANSWER, frames.packed(runner(**arrays)))
        except Exception as error:
            frames.send(answers, frames.REFUSED, _reason(error).encode())


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
