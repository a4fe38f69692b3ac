"""All questions of a pack to one artifact in one place, one after the other, and some of them twice."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .runtimes import RUNTIMES, Arrays

WARM_UP, RUNS, MOST_RUNS, PLENTY = 10, 100, 20_000, 10.0
"""Of the timing: runs before the first timed one, timed runs at least and at most, times the seconds asked for."""


class Answers:
    """First answers by `<batch>/<output>`, rows first; second answers that differ from them, and of which rows."""

    def __init__(self, axes: Mapping[str, int | None]) -> None:
        self._axes = axes
        self.arrays: Arrays = {}
        self.again: dict[str, list[int]] = {}
        self.repeated = 0

    def first(self, batch: str, runs: list[Arrays]) -> None:
        """The answers of all runs of a batch."""
        self.arrays.update({f"{batch}/{name}": rows for name, rows in self._rows(runs).items()})

    def second(self, batch: str, row: int, answer: Arrays) -> None:
        """The answer to a row that was asked again: kept where it differs in any bit."""
        self.repeated += 1
        rows = self._rows([answer])
        if all(_same(array, self.arrays[f"{batch}/{name}"][row : row + 1]) for name, array in rows.items()):
            return
        self.again.setdefault(f"{batch} again", []).append(row)
        for name, array in rows.items():
            key = f"{batch} again/{name}"
            self.arrays[key] = np.concatenate([self.arrays[key], array]) if key in self.arrays else array

    def _rows(self, runs: list[Arrays]) -> Arrays:
        return {
            name: np.concatenate([_rows_first(given[name], self._axes.get(name, 0)) for given in runs])
            for name in runs[0]
        }


def answer(pack: dict[str, Any], home: Path, place: str, target: str, out: Path) -> dict[str, Any]:
    """Answer everything; writes answers.npz into a folder, returns what was found beside the answers.

    Args:
        pack: What pack.json says.
        home: The unpacked folder.
        place: Name of a place of the pack.
        target: Name of an artifact of the pack.
        out: Where to write.
    """
    where, artifact = pack["places"][place], pack["artifacts"][target]
    folder = home / "artifacts" / target
    for name, digest in artifact["files"].items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise SystemExit(f"'{target}/{name}' is damaged: copy the pack again")
    batches = pack["batches"]
    one = next(_runs(home, batches[0]))
    with contextlib.suppress(ImportError):  # that it is missing is said where it is used
        importlib.import_module(where["runtime"])
    began = time.perf_counter()
    runtime = RUNTIMES[where["runtime"]](folder / artifact["entry"], where["settings"], {})
    start_up: dict[str, float | int | None] = {"open_ms": _since(began)}
    runtime.run(one)
    start_up["first_answer_ms"] = _since(began)
    start_up["peak_memory"] = peak_memory()
    facts: dict[str, str] = {}
    answers = Answers(pack["row_axes"])
    failures: dict[str, str] = {}
    for batch in batches:
        runs = list(_runs(home, batch))
        try:
            answers.first(batch["name"], [runtime.run(inputs) for inputs in runs])
            for row in reversed(range(min(pack["repeated"], len(runs)) if batch["single"] else 0)):
                answers.second(batch["name"], row, runtime.run(runs[row]))
        except Exception as error:
            failures[batch["name"]] = first_line(error)
    timed: dict[str, list[float]] = {}
    late: list[Arrays] = []
    if not failures and where["timed"]:
        timed, late = _timed(runtime, one, pack["seconds"])
        if getattr(runtime, "on_gpu", False):
            graph = {**where["settings"], "provider.enable_cuda_graph": "1"}
            try:
                captured = RUNTIMES[where["runtime"]](folder / artifact["entry"], graph, pack["sizes"])
                timed["CUDA graph"] = _clock(captured.bound(one), pack["seconds"])
                late.append(captured.bound_answer())
            except Exception as error:
                facts["CUDA graph"] = f"not possible: {first_line(error)}"
    if batches[0]["single"]:
        for given in late:
            answers.second(batches[0]["name"], 0, given)
    out.mkdir(parents=True, exist_ok=True)
    np.savez(out / "answers.npz", **answers.arrays)  # type: ignore[arg-type]  # numpy's stubs take no names from a dictionary
    return {
        "device": runtime.device,
        "failures": failures,
        "again": answers.again,
        "repeated": answers.repeated - len(late),
        "timed_answers": len(late),
        "milliseconds": timed,
        "facts": {**facts, **runtime.facts()},
        "start_up": start_up,
    }


def first_line(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:400]


def peak_memory() -> int | None:
    """Bytes that this process had at its peak; Linux's rusage would count the process that started it too."""
    try:
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


def _timed(runtime: Any, one: Arrays, seconds: float) -> tuple[dict[str, list[float]], list[Arrays]]:
    """Plain runs, and on a GPU with bound buffers; with an answer of each."""
    timed, late = {"run": _clock(lambda: runtime.run(one), seconds)}, [runtime.run(one)]
    if getattr(runtime, "on_gpu", False):
        timed["bound buffers"] = _clock(runtime.bound(one), seconds)
        late.append(runtime.bound_answer())
    return timed, late


def _clock(run: Callable[[], object], seconds: float) -> list[float]:
    for _ in range(WARM_UP):
        run()
    taken: list[float] = []
    began = time.perf_counter()
    while len(taken) < RUNS or (time.perf_counter() - began < seconds and len(taken) < MOST_RUNS):
        start = time.perf_counter()
        run()
        taken.append(1000.0 * (time.perf_counter() - start))
        if time.perf_counter() - began > PLENTY * max(seconds, 0.1):
            break
    return taken


def _runs(home: Path, batch: dict[str, Any]) -> Iterator[Arrays]:
    """The inputs of one run each: single rows, or the whole batch."""
    with np.load(home / "questions" / f"{batch['name']}.npz", allow_pickle=False) as stored:
        inputs: Arrays = {name: stored[name] for name in stored.files}
    if not batch["single"]:
        yield inputs
        return
    shapes = batch.get("shapes", {})
    for row in range(batch["rows"]):
        yield {n: np.asarray(_row(a, row, batch, shapes.get(n, ["batch"])), order="C") for n, a in inputs.items()}


def _row(array: NDArray[Any], row: int, batch: dict[str, Any], shape: list[int | str]) -> NDArray[Any]:
    """One row of an input, as `edgekit.model.input_rows` says: of one run by its batch axis, or stacked."""
    if batch.get("sizes"):
        return np.take(array, [row], shape.index("batch")) if "batch" in shape else array
    if not shape:
        return np.asarray(array[row])
    step = len(array) // batch["rows"]
    return array[row * step : (row + 1) * step]


def _rows_first(array: NDArray[Any], axis: int | None) -> NDArray[Any]:
    return array[None] if axis is None or axis >= array.ndim else np.moveaxis(array, axis, 0)


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _since(began: float) -> float:
    return 1000.0 * (time.perf_counter() - began)
