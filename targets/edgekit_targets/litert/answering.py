"""Answers from one `.tflite` file until its connection closes, run by the interpreter of the environment `litert`.

It imports nothing of edgekit. Answers go through a connection whose number is an argument, so libraries may print. A
message is a letter, then arrays or a text, framed by `multiprocessing.connection`. The runtime imports this file too,
for its side of the connection.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

DELEGATE = "DELEGATE"
"""The name of an operator with which XNNPACK replaced others."""
RUN, CLOCK, ANSWER, TEXT, REFUSED = b"R", b"C", b"A", b"T", b"E"
"""Requests to run and to time, then the answers: arrays, a JSON object, an error."""
NARROW = {"int64": "int32", "float64": "float32"}
"""The programs have no 64-bit numbers, so inputs get 32 bits."""


def main() -> None:
    """Describe the file, then answer each message."""
    model, threads, handle = sys.argv[1:]
    connection = Connection(int(handle))

    def encode(**facts: object) -> bytes:
        return TEXT + json.dumps(facts).encode()

    try:
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_path=model, num_threads=int(threads))
        # Before this call XNNPACK has taken nothing.
        interpreter.allocate_tensors()
        runner: Any = interpreter.get_signature_runner() if interpreter.get_signature_list() else Unnamed(interpreter)
        ran = [str(ops_detail["op_name"]) for ops_detail in interpreter._get_ops_details()]
        facts = {"version": version("ai-edge-litert"), "parts": ran.count(DELEGATE)}
        names = {"inputs": _tensors(runner.get_input_details()), "outputs": _tensors(runner.get_output_details())}
    except Exception as error:
        connection.send_bytes(REFUSED + _reason(error).encode())
        return
    connection.send_bytes(encode(**facts, **names))
    while True:
        try:
            message = connection.recv_bytes()
        except EOFError:
            return
        try:
            arrays = unpack(message[1:])
            if message[:1] == CLOCK:
                connection.send_bytes(encode(milliseconds=_time_runs(runner, arrays)))
            else:
                connection.send_bytes(ANSWER + pack(runner(**arrays)))
        except Exception as error:
            connection.send_bytes(REFUSED + _reason(error).encode())


class Unnamed:
    """The runner of a file without signatures, as older converters write it: inputs by the names of their tensors."""

    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter

    def get_input_details(self) -> dict[str, Any]:
        """Return the inputs by name."""
        return {details["name"]: details for details in self._interpreter.get_input_details()}

    def get_output_details(self) -> dict[str, Any]:
        """Return the outputs by name."""
        return {details["name"]: details for details in self._interpreter.get_output_details()}

    def __call__(self, **arrays: Any) -> dict[str, Any]:
        """Run once; return the outputs by name."""
        inputs = self.get_input_details()
        for name, array in arrays.items():
            if tuple(inputs[name]["shape"]) != array.shape:
                self._interpreter.resize_tensor_input(inputs[name]["index"], array.shape)
        self._interpreter.allocate_tensors()
        for name, array in arrays.items():
            self._interpreter.set_tensor(inputs[name]["index"], array)
        self._interpreter.invoke()
        return {n: self._interpreter.get_tensor(d["index"]) for n, d in self.get_output_details().items()}


def _tensors(details: Mapping[str, Any]) -> dict[str, tuple[str, list[int], float, int]]:
    """Return dtype, sizes (-1 if open), scale and zero point of tensors by name."""
    rows = {}
    for name, tensor in details.items():
        signature = tensor.get("shape_signature")
        shape = tensor["shape"] if signature is None or not len(signature) else signature
        scale, zero_point = tensor["quantization"]
        rows[name] = (np.dtype(tensor["dtype"]).name, [int(size) for size in shape], float(scale), int(zero_point))
    return rows


def _time_runs(runner: Any, arrays: dict[str, Any]) -> list[float]:
    """Return the milliseconds of each run. Arrays of one number say how long and how often to run."""
    seconds, warm_ups, least = (arrays.pop(name).item() for name in (" seconds", " warm_ups", " least"))
    for _ in range(int(warm_ups)):
        runner(**arrays)
    seconds_taken: list[float] = []
    began = time.perf_counter()
    while len(seconds_taken) < least or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        runner(**arrays)
        seconds_taken.append(1e3 * (time.perf_counter() - start))
    return seconds_taken


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def pack(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays by name as bytes."""
    buffer = io.BytesIO()
    # A leading letter, since "file" is an argument of `savez`.
    np.savez(buffer, **{f"_{name}": array for name, array in arrays.items()})
    return buffer.getvalue()


def unpack(content: bytes) -> dict[str, Any]:
    """Return bytes as arrays by name."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name[1:]: archive[name] for name in archive.files}


if __name__ == "__main__":
    main()
