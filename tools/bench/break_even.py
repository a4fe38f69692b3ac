"""Whether `edgekit profile` says the break-even that a stopwatch says: `python -m tools.bench.break_even`.

A module of pointwise operators is profiled. Then eager and compiled runs take turns, each timed in all from opening on,
until the compiled ones have caught up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from torch._inductor.utils import fresh_cache

from edgekit.model.spec import Array, Input, ModelSpec, Output
from edgekit.runtime.protocol import Runtime
from edgekit_inspect.profiling import COMPILED, EAGER, Request, profile, torch_modes

EDGE = 600
MOST = 5_000
"""Runs that are counted, at most."""
TURN = 10
"""Runs of one mode before the other's turn, so that a slow spell of the host meets both."""


class Pointwise(torch.nn.Module):
    """Thirty operators that fuse into one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[EDGE, EDGE] -> [EDGE, EDGE]."""
        for _ in range(10):
            x = (x * 1.01 + 0.5).tanh()
        return x


def main() -> None:
    """Print both."""
    spec = ModelSpec("pointwise", Pointwise().eval(), (Input("x", (EDGE, EDGE)),), (Output("y"),))
    measured = profile(spec, Request(modes=(COMPILED,)))
    said = next(row.break_even for row in measured.batches[0].modes if row.mode == COMPILED)
    modes = {mode.name: mode for mode in torch_modes(spec, "cpu")}
    inputs = spec.random(7)

    torch._dynamo.reset()
    with fresh_cache():
        clocks = {name: _Clock(modes[name].open, inputs) for name in (EAGER, COMPILED)}
        runs = 1
        while clocks[COMPILED].spent > clocks[EAGER].spent and runs < MOST:
            for clock in clocks.values():
                clock.run(TURN)
            runs += TURN
    counted = runs if runs < MOST else None
    print(f"profile: after {said} runs; stopwatch: after {counted} runs")


class _Clock:
    """A stopwatch of one mode, which runs while the mode does: from opening it, turn by turn."""

    def __init__(self, opened: Callable[[Mapping[str, Array]], Runtime], inputs: Mapping[str, Array]) -> None:
        began = time.perf_counter()
        self._runtime, self._inputs = opened(inputs), inputs
        self._runtime.run(inputs)
        self.spent = time.perf_counter() - began

    def run(self, times: int) -> None:
        """Let it answer so many times."""
        began = time.perf_counter()
        for _ in range(times):
            self._runtime.run(self._inputs)
        self.spent += time.perf_counter() - began


if __name__ == "__main__":
    main()
