"""Timing protocol: warm-up, then runtimes take turns, so that a slow spell of the host affects all of them.

Each runtime is timed at least RUNS times and for SECONDS, or FEWEST times and for LONG seconds, in turns of a few runs.
Warm-ups end after WARM_SECONDS. The first runtime of a round changes from round to round. A turn starts with a run that
is not timed: threads of the previous runtime spin for a while (OpenMP's do) and occupy a core. On 2 cores, after eager
PyTorch, an ONNX model of 8.4 ms took 11 to 16 without this.

Warm-ups and runs are those of winml-cli's and Olive's benchmarks; the turns are edgekit's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from edgekit.evaluate.rows import Array
    from edgekit.runtime.protocol import Runtime

# Runs of each runtime before the first timed one.
WARM_UP = 10
# Seconds after which a runtime has warmed up with fewer runs, but at least two.
WARM_SECONDS = 0.5
# Least timed runs of each runtime, if they take less than LONG seconds.
RUNS = 100
# Timed seconds after which fewer runs suffice: RUNS of a large model would cost more than its export.
LONG = 1.0
# Least timed runs of each runtime, if they take LONG seconds.
FEWEST = 10
# Least timed seconds of each runtime: shorter runs see only one state of the host.
SECONDS = 1.0
# Timed runs of a turn, if several runtimes take turns; a turn ends after TURN_SECONDS.
TURN, TURN_SECONDS = 10, 0.5
# Times SECONDS (and at least RUNS): a runtime with so much time leaves, and no longer delays the others.
PLENTY = 10.0
# Most timed runs of each runtime: a run of microseconds costs more outside the clock than inside.
MOST_RUNS = 1_000


@dataclass(frozen=True)
class Latency:
    """Timed runs of one runtime.

    Attributes:
        device: Description of the device, with threads.
        milliseconds: Every timed run, in order; the i-th runs of interleaved runtimes belong to one round.
    """

    device: str
    milliseconds: tuple[float, ...]

    def percentile(self, share: float) -> float:
        """Return a percentile in milliseconds, linear between neighbours; `share` is 50 for the median."""
        return float(np.percentile(self.milliseconds, share))

    def as_record(self) -> dict[str, object]:
        """Return the fields of `edgekit.artifact.result.Timing`; times in milliseconds."""
        points = {f"p{share}": self.percentile(share) for share in (50, 90, 95, 99)}
        spread = {"mean": float(np.mean(self.milliseconds)), "std": float(np.std(self.milliseconds))}
        return {"device": self.device, "runs": len(self.milliseconds), **points, **spread}


def measure(
    runtimes: Mapping[str, Runtime],
    inputs: Mapping[str, Array],
    *,
    warm_up: int = WARM_UP,
    runs: int = RUNS,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.perf_counter,
    answered: Callable[[str, Mapping[str, Array]], None] = lambda name, answer: None,
) -> dict[str, Latency]:
    """Time runtimes on the same inputs, in turns.

    Args:
        runtimes: By name.
        inputs: One batch.
        warm_up: Runs before the first timed one.
        runs: Least timed runs of each (1 to MOST_RUNS); FEWEST if these take LONG seconds.
        seconds: Least timed seconds of each.
        clock: Returns seconds.
        answered: Called with every output of every runtime, timed or not, while the clock is stopped.

    Raises:
        ValueError: If `runs` is not in its range.
    """
    if not 1 <= runs <= MOST_RUNS:
        raise ValueError(f"runs must be 1 to {MOST_RUNS}, not {runs}")
    for name, runtime in runtimes.items():
        began = clock()
        for number in range(warm_up):
            if number > 1 and clock() - began > WARM_SECONDS:
                break
            answered(name, runtime.run(inputs))
    times: dict[str, list[float]] = {name: [] for name in runtimes}
    total = dict.fromkeys(runtimes, 0.0)
    names = list(runtimes)
    # A runtime with its minimum keeps running, so that the load stays the same for the others.
    while any(_short(times[name], total[name], runs, seconds) for name in names):
        names = [name for name in names if _short(times[name], total[name], runs, PLENTY * seconds)]
        several = len(names) > 1
        for name in names:
            if several:
                answered(name, runtimes[name].run(inputs))
            before = total[name]
            for _ in range(TURN if several else 1):
                start = clock()
                answer = runtimes[name].run(inputs)
                total[name] += (spent := clock() - start)
                times[name].append(spent)
                answered(name, answer)
                if total[name] - before > TURN_SECONDS or not _short(times[name], total[name], runs, PLENTY * seconds):
                    break
        names.append(names.pop(0))
    return {name: Latency(runtimes[name].device, tuple(1000.0 * s for s in times[name])) for name in runtimes}


def _short(times: list[float], total: float, runs: int, seconds: float) -> bool:
    fewest = min(runs, FEWEST) if total >= LONG else runs
    return len(times) < fewest or (total < seconds and len(times) < MOST_RUNS)
