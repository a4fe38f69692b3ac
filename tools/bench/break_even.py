"""Whether `edgekit profile` says the break-even that a stopwatch says: `python -m tools.bench.break_even`.

A module of pointwise operators is profiled. Then eager and compiled runs are counted in wall time, from opening on,
until the compiled ones have caught up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch._inductor.utils import fresh_cache

from edgekit.analysis.modes import COMPILED, EAGER, torch_modes
from edgekit.analysis.profile import Request, profile
from edgekit.model.spec import Input, ModelSpec, Output

EDGE = 600
MOST = 5_000
"""Runs that are counted, at most."""


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

    def passed(name: str) -> Iterator[float]:
        began = time.perf_counter()
        runtime = modes[name].open(inputs)
        for _ in range(MOST):
            runtime.run(inputs)
            yield time.perf_counter() - began

    torch._dynamo.reset()
    with fresh_cache():
        compiled = [each for each, _ in zip(passed(COMPILED), range((said or MOST) * 2), strict=False)]
    eager = [each for each, _ in zip(passed(EAGER), range(len(compiled)), strict=False)]
    counted = next((n for n, (a, b) in enumerate(zip(compiled, eager, strict=True), 1) if a <= b), None)
    print(f"profile: after {said} runs; stopwatch: after {counted} runs")


if __name__ == "__main__":
    main()
