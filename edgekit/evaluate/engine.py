"""Evaluation of one artifact on all inputs: outputs, repeated outputs, times, and start-up of a fresh process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import HostError, NotVerifiedHere, out_of_memory
from edgekit.evaluate.rows import Array, Axes, rows_of
from edgekit.evaluate.timing import RUNS, Latency, measure
from edgekit.runtime.protocol import (
    Answers,
    ConcurrentRuntime,
    DescribedRuntime,
    MultiModeRuntime,
    Runtime,
    SelfTimedRuntime,
)

# Suffix of a batch's name: its rows whose second output differed.
AGAIN = "again"
# Name of the artifact's own plain runs among the timed ones.
RUN = "run"
# Most differing outputs stored of each batch: these suffice to judge it.
MOST = 64
EVALUATION = "evaluation"
# Seconds between two progress messages on timing.
TELL_SECONDS = 10.0


@dataclass(frozen=True)
class InputBatch:
    """Inputs that belong together.

    Attributes:
        name: Name of the batch.
        runs: Yields the inputs of each run, by name.
        rows_a_run: Rows of one run.
        repeated: Rows to run twice, of those that are run one at a time.
    """

    name: str
    runs: Callable[[], Iterator[dict[str, Array]]]
    rows_a_run: int
    repeated: int


@dataclass(frozen=True)
class Timing:
    """Settings for timing an artifact.

    Attributes:
        seconds: Least time of each runtime.
        baselines: Opens the baselines by name; they are closed afterwards.
    """

    seconds: float
    baselines: Callable[[], Mapping[str, Runtime]] = dict


class OutputRecorder:
    """First outputs by `<batch>/<output>`, rows first, and second outputs that differ in any bit.

    Args:
        axes: The batch axis of each output.
    """

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self.arrays: dict[str, Array] = {}
        self.again: dict[str, list[int]] = {}
        self.failures: dict[str, str] = {}
        self.repeated = 0
        self.timed = 0

    def first(self, batch: str, rows_a_run: int, answers: Sequence[Mapping[str, Array]]) -> None:
        """Store the outputs of all runs of a batch."""
        rows = rows_of([(rows_a_run, answer) for answer in answers], self._axes)
        self.arrays.update({f"{batch}/{name}": array for name, array in rows.items()})

    def second(self, batch: str, row: int, answer: Mapping[str, Array]) -> None:
        """Store the second output of a row if it differs in any bit."""
        rows, name = rows_of([(1, answer)], self._axes), f"{batch} {AGAIN}"
        first = {output: self.arrays[f"{batch}/{output}"][row : row + 1] for output in rows}
        same = all(np.array_equal(a, first[n], equal_nan=a.dtype.kind == "f") for n, a in rows.items())
        if same or len(self.again.get(name, ())) >= MOST:
            return
        self.again.setdefault(name, []).append(row)
        for output, array in rows.items():
            before = self.arrays.get(f"{name}/{output}")
            self.arrays[f"{name}/{output}"] = array.copy() if before is None else np.concatenate([before, array])


def evaluate(
    runtime: Runtime,
    questions: Sequence[InputBatch],
    axes: Axes,
    timing: Timing | None,
    progress: Callable[[float, str], None],
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Run all inputs, some of them twice, and time the artifact; return the outputs and a record for JSON.

    Args:
        runtime: The opened artifact.
        questions: The batches.
        axes: The batch axis of each output.
        timing: None if latency has no meaning. An artifact that fails is not timed.
        progress: Called with the share done and the current step.

    Raises:
        HostError: If this host has too little memory.
        NotVerifiedHere: If the runtime finds during a run that this host cannot run the artifact.

    Returns:
        Arrays by `<batch>/<output>`, differing second outputs by `<batch> again/<output>`; and the fields of
        `edgekit.hosts.run_record.Run` that an engine knows.
    """
    recorder = OutputRecorder(axes)
    stream = _side_by_side(runtime, questions)
    for number, question in enumerate(questions):
        progress(0.8 * number / len(questions), f"running {question.name} in {runtime.device}")
        try:
            answers = stream(question)
            recorder.first(question.name, question.rows_a_run, answers)
        except Exception as error:
            recorder.failures[question.name] = _failure(error, question.name)
    if not recorder.failures:
        progress(0.75, "running again, in another order")
        _ask_again(runtime, questions, recorder)
    times: dict[str, Latency] = {}
    metadata: dict[str, Any] = {"facts": runtime.facts() if isinstance(runtime, DescribedRuntime) else {}}
    if timing is not None and not recorder.failures:
        why = f"measuring latency: {RUNS} runs of it and of each baseline in turn, fewer if they take long"
        progress(0.8, why)
        metadata["load"] = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
        tell = _every(TELL_SECONDS, lambda count: progress(0.8, f"{why}; {count} runs in all so far"))
        question = next((q for q in questions if q.name == EVALUATION), questions[0])
        # The batch whose first row is timed, if it is a single row.
        first_row = question.name if question.repeated else ""
        times, more = _measure_latency(runtime, next(question.runs()), timing, recorder, first_row, tell)
        metadata["facts"] |= more.pop("facts", {})
        metadata |= more
    return recorder.arrays, {
        "device": runtime.device,
        "failures": recorder.failures,
        "again": recorder.again,
        "repeated": recorder.repeated,
        "timed_answers": recorder.timed,
        "devices": {name: timing.device for name, timing in times.items()},
        "milliseconds": {name: list(timing.milliseconds) for name, timing in times.items()},
        **metadata,
    }


def start_up(load: Callable[[], Runtime], inputs: Mapping[str, Array]) -> dict[str, float | int | None]:
    """Measure the time and memory that this fresh process needs to open an artifact and run it once.

    Returns:
        The fields of `edgekit.artifact.result.StartUp`: milliseconds, and bytes.
    """
    # A first load excludes the imports of the runtime's library.
    load().close()
    began = time.perf_counter()
    with closing(load()) as runtime:
        opened = time.perf_counter()
        runtime.run(inputs)
        answered = time.perf_counter()
        peak = peak_memory()
    return {
        "open_ms": 1000 * (opened - began),
        "first_answer_ms": 1000 * (answered - began),
        "peak_memory": peak,
    }


def first_line(error: Exception) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:400]


def _failure(error: Exception, batch: str) -> str:
    """Return why an artifact returned no output, in one line.

    Raises:
        HostError: If this host lacks memory for it, which is not the artifact's fault.
        NotVerifiedHere: Raised again, with the batch's name, for the same reason.
    """
    if isinstance(error, NotVerifiedHere):
        raise NotVerifiedHere(f"{error}; it ran '{batch}'") from error
    line = first_line(error)
    if out_of_memory(line):
        raise HostError(f"this host has too little memory for it ({line})") from error
    return line


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes."""
    try:
        # On Linux, rusage would count the parent process too.
        [line] = [text for text in Path("/proc/self/status").read_text().splitlines() if text.startswith("VmHWM:")]
        return 1024 * int(line.split()[1])
    except (OSError, ValueError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _side_by_side(runtime: Runtime, questions: Sequence[InputBatch]) -> Callable[[InputBatch], list[dict[str, Array]]]:
    """Return a function that runs a batch, concurrently if the runtime supports it."""
    if not isinstance(runtime, ConcurrentRuntime):
        return lambda batch: [runtime.run(inputs) for inputs in batch.runs()]
    stream = runtime.run_many(inputs for question in questions for inputs in question.runs())

    def next_ones(batch: InputBatch) -> list[dict[str, Array]]:
        answers = [next(stream) for _ in batch.runs()]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return [answer for answer in answers if not isinstance(answer, Exception)]

    return next_ones


def _ask_again(runtime: Runtime, questions: Sequence[InputBatch], recorder: OutputRecorder) -> None:
    """Run the first rows of every batch again, from the last to the first, until one fails."""
    repeats = [
        (batch.name, number, inputs)
        for batch in reversed(questions)
        for number, inputs in reversed([*zip(range(batch.repeated), batch.runs(), strict=False)])
    ]
    answers = _answers(runtime, [inputs for _, _, inputs in repeats])
    for (name, number, _), answer in zip(repeats, answers, strict=False):
        try:
            if isinstance(answer, Exception):
                raise answer
            recorder.second(name, number, answer)
        except Exception as error:
            recorder.failures[f"{name} {AGAIN}"] = _failure(error, name)
            return
        recorder.repeated += 1


def _answers(runtime: Runtime, runs: Iterable[Mapping[str, Array]]) -> Answers:
    """Yield the outputs of runs, concurrently if the runtime supports it, until one fails."""
    if isinstance(runtime, ConcurrentRuntime):
        yield from runtime.run_many(runs)
        return
    for inputs in runs:
        try:
            answer = runtime.run(inputs)
        except Exception as error:
            yield error
            return
        yield answer


def _measure_latency(
    runtime: Runtime,
    inputs: Mapping[str, Array],
    timing: Timing,
    recorder: OutputRecorder,
    row: str,
    tell: Callable[[], None],
) -> tuple[dict[str, Latency], dict[str, Any]]:
    """Time a runtime interleaved with its baselines, or let it time itself if a clock here would add overhead.

    The outputs of timed runs on a first row are compared with its first output.
    """
    if isinstance(runtime, SelfTimedRuntime):
        own = runtime.benchmark(inputs, timing.seconds)
        notes = {"notes": list(own.notes)}
        return ({RUN: Latency(runtime.device, own.milliseconds)} if own.milliseconds else {}), notes

    def compare(name: str, answer: Mapping[str, Array]) -> None:
        tell()
        if name == RUN and row:
            recorder.second(row, 0, answer)
            recorder.timed += 1

    baselines = timing.baselines()
    times = measure({RUN: runtime, **baselines}, inputs, seconds=timing.seconds, answered=compare)
    for other in baselines.values():
        other.close()
    if not isinstance(runtime, MultiModeRuntime):
        return times, {}
    facts: dict[str, str] = {}
    for name, way in runtime.modes(inputs):
        try:
            times |= measure({name: way()}, inputs, seconds=timing.seconds)
            compare(RUN, runtime.mode_answer())
        except Exception as error:
            facts[name] = f"not possible: {first_line(error)}"
    return times, {"facts": facts}


def _every(seconds: float, tell: Callable[[int], None]) -> Callable[[], None]:
    """Return a function that counts calls and reports the count whenever this many seconds have passed."""
    count, latest = 0, time.monotonic()

    def count_call() -> None:
        nonlocal count, latest
        count += 1
        if (now := time.monotonic()) - latest >= seconds:
            latest = now
            tell(count)

    return count_call
