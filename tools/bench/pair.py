"""Two artifacts of one model in turn, in this process: how many times as fast the second answers.

    python -m tools.bench.pair BEFORE/arr-coc-tiny/executorch AFTER/arr-coc-tiny/executorch

Each round runs both, every second one in the other order; the figure is the median over the rounds of their ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import edgekit
from edgekit.model.folder import load_builds_model

WARM_UPS = 10


def main() -> None:
    """Print both medians in milliseconds, the ratio and the quartiles of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=300)
    chosen = parser.parse_args()
    inputs = load_builds_model(chosen.after.parent / "model", trusted=False).random(0)
    with edgekit.load(chosen.before) as before, edgekit.load(chosen.after) as after:
        times: list[list[float]] = [[], []]
        for number in range(chosen.rounds + WARM_UPS):
            for place in (0, 1) if number % 2 else (1, 0):
                began = time.perf_counter()
                (before, after)[place].run(inputs)
                times[place].append(1e3 * (time.perf_counter() - began))
    first, second = (one[WARM_UPS:] for one in times)
    ratios = [a / b for a, b in zip(first, second, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"p50 {statistics.median(first):.2f} and {statistics.median(second):.2f} ms; ", end="")
    print(f"{middle:.2f} times as fast, half of the rounds from {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    main()
