"""Processes in turn: each opens one model, times one input, prints its median and ends; the next round goes backwards.

Two sessions in one process share threads, caches and what the allocator kept; one process after the other shares none
of it, and a machine that slows down slows down all of a round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runtime.processor import VARIABLE

WARM_UPS, LEAST_RUNS, THREADS = 10, 40, 2
Contender = tuple[str, Path]
"""One of `RUNTIMES`, and the file or folder that it opens."""


def in_turn(contenders: Mapping[str, Contender], inputs: Path, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Medians in milliseconds of each contender, one a round; every second round begins with the last.

    Args:
        contenders: By name.
        inputs: One input, as numpy.savez wrote it.
        rounds: How often each is measured.
        seconds: How long each process times, at least.
    """
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        order = list(contenders) if number % 2 == 0 else list(contenders)[::-1]
        for name in order:
            kind, path = contenders[name]
            command = [sys.executable, __file__, kind, str(path), str(inputs), str(seconds)]
            environment = {**os.environ, VARIABLE: str(THREADS)}
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                raise SystemExit(f"'{name}' failed: {done.stderr.strip().splitlines()[-1]}")
            found[name].append(json.loads(done.stdout)["p50"])
    return found


def ratio(one: list[float], other: list[float]) -> tuple[float, float, float]:
    """How many times as fast the other is: the median over the rounds, the least and the most."""
    shares = [a / b for a, b in zip(one, other, strict=True)]
    return statistics.median(shares), min(shares), max(shares)


def main() -> None:
    """Time one model in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=RUNTIMES)
    parser.add_argument("model", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("seconds", type=float)
    chosen = parser.parse_args()
    feed = dict(np.load(chosen.inputs))
    run = RUNTIMES[chosen.kind](chosen.model, feed)
    for _ in range(WARM_UPS):
        run()
    times: list[float] = []
    while sum(times) < chosen.seconds or len(times) < LEAST_RUNS:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    print(json.dumps({"p50": 1e3 * statistics.median(times), "runs": len(times)}))


def _ort(model: Path, feed: Mapping[str, Any]) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = THREADS, 1, 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return partial(session.run, None, dict(feed))


def _openvino(model: Path, feed: Mapping[str, Any]) -> Callable[[], object]:
    """With fp32 arithmetic where the graph is not INT8, as artifacts are judged."""
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": THREADS, "NUM_STREAMS": 1}
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    return partial(compiled, dict(feed))


def _own(artifact: Path, feed: Mapping[str, Any]) -> Callable[[], object]:
    """An artifact's folder in its target's own runtime."""
    import edgekit

    return partial(edgekit.load(artifact, trust_build=True).run, dict(feed))


RUNTIMES = {"ort": _ort, "openvino": _openvino, "own": _own}


if __name__ == "__main__":
    main()
