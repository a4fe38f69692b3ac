"""The reference's own noise: what it may excuse, and when the reference judges nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.artifact.fact import Code, Fact
from edgekit.artifact.metric import plain
from edgekit.judge.tolerance import Tolerance
from edgekit.model.spec import Array, Output

NOISE_MULTIPLE = 4.0
"""Times the reference's own noise: both sides have it, and a maximum over few images is a small estimate of it."""
NOISE_CAP = 10.0
"""Times the table's limit: a reference that is noisier proves nothing, and must not excuse anything."""
NOISE_LIMIT = 0.01
"""Score units, or share of a peak. Differences above this are judged by every measure, whatever the noise."""


def score_tolerance(tolerance: Tolerance, noise: float) -> float:
    """The limit on scores that a verdict uses, in score units, given the noise of that output: for `compare`."""
    return widened(tolerance.max_abs or 0.0, NOISE_MULTIPLE * noise)


def widened(table: float, own: float) -> float:
    """A limit: the table's, or the noise (times NOISE_MULTIPLE already) where that is larger, up to the cap."""
    return max(table, min(own, NOISE_CAP * table))


def too_noisy(
    tolerance: Tolerance, outputs: Sequence[Output], noise: Mapping[str, float], scales: Mapping[str, Array]
) -> Fact | None:
    """The first output whose noise would widen a limit past its cap, or excuse more than INT8 is allowed.

    Args:
        tolerance: The row of the table.
        outputs: Of the model.
        noise: Of the reference, by output.
        scales: The spread of each channel of each floating output, without its noise.
    """
    for output in (o for o in outputs if o.name in scales and np.isfinite(noise.get(o.name, 0.0))):
        scale = float(np.median(scales[output.name]))
        if output.role == "scores":
            allowed = NOISE_LIMIT if tolerance.max_abs is None else NOISE_CAP * tolerance.max_abs
        else:
            share = tolerance.error if tolerance.deviation is None else NOISE_CAP * tolerance.deviation
            allowed = np.inf if share is None else share * scale
        if NOISE_MULTIPLE * noise.get(output.name, 0.0) > allowed:
            told: dict[str, str | int | float] = {"multiple": NOISE_MULTIPLE, "allowed": plain(allowed, 2)}
            return Fact(code=Code.REFERENCE_TOO_NOISY, output=output.name, value=noise[output.name], details=told)
    return None
