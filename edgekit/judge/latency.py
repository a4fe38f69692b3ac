"""How much faster one runtime is than another, of two that were timed in turn (`edgekit.evaluate.timing`).

A claim of "slower" needs the whole bootstrap interval of the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgekit.artifact.result import CANDIDATE, Ratio
from edgekit.evaluate.timing import Latency
from edgekit.model.spec import Array

MOST_ROUNDS = 2000
"""Rounds that a bootstrap looks at, evenly thinned: it bounds memory, and errs on the wide side."""
RESAMPLES = 2000
"""Bootstrap resamples of a ratio: enough for the ends of a 95 % interval (Efron and Tibshirani 1993, chapter 13)."""
CONFIDENCE = 0.95
"""Coverage of a ratio's interval."""


def ratio(timed: Mapping[str, Latency], baseline: str, candidate: str = CANDIDATE) -> Ratio:
    """The candidate's speed as a multiple of the baseline's, of two runtimes that were measured together.

    Whole rounds are resampled in blocks of neighbours (about the square root of their number), because a slow spell of
    the host lasts for many runs; independent draws would take it for many independent facts (Kuensch 1989).

    Raises:
        ValueError: If a median is not above zero.
    """
    rounds = min(len(timed[baseline].milliseconds), len(timed[candidate].milliseconds))
    pair = np.array([timed[name].milliseconds[:rounds] for name in (baseline, candidate)])
    medians = np.median(pair, axis=1)
    if not medians.min() > 0:
        raise ValueError(f"no ratio of the medians {medians.tolist()} ms: the clock is too coarse")
    thinned = pair[:, :: math.ceil(rounds / MOST_ROUNDS)]
    resampled = np.median(thinned[:, _blocks(thinned.shape[1])], axis=2)
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(resampled[0] / resampled[1], (tail, 100.0 - tail))
    return Ratio(baseline=baseline, value=float(medians[0] / medians[1]), low=float(low), high=float(high))


def _blocks(rounds: int) -> Array:
    """Indices [RESAMPLES, about rounds]: blocks of neighbours, from the last on to the first; the same every time."""
    length = math.ceil(math.sqrt(rounds))
    starts = np.random.Generator(np.random.PCG64(0)).integers(0, rounds, (RESAMPLES, math.ceil(rounds / length), 1))
    return np.asarray(((starts + np.arange(length)) % rounds).reshape(RESAMPLES, -1))
