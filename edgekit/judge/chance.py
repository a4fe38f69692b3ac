"""How many of some rows may exceed a limit, and when so few rows prove nothing."""

from __future__ import annotations

import math

from edgekit.artifact.result import Measure

# Share of the rows that may exceed a limit with a `worst`, and of resized ones: no calibration set has these, and
# sound INT8 exceeds it in up to 11 % of them where the model itself answers worse. Nobody can give more of these, so
# what chance explains passes.
BEYOND, BEYOND_RESIZED = 0.01, 0.1
# Share of the rows that may exceed a `worst`: a single one of hundreds is no proof.
BEYOND_WORST = 0.002
# Least rows of which one may exceed a limit on 99 of 100: in fewer, one proves with SURE that more than BEYOND do.
FEW_ROWS = 6
# Confidence needed to reject an artifact for the share of its rows beyond a limit (binomial).
SURE = 0.95
# Standard errors of that confidence, of a mean.
SURE_ERRORS = 1.645


def may_pass(rows: int, share: float) -> int:
    """Return how many of some rows may exceed a limit that this share of all may exceed."""
    if share == BEYOND_WORST:
        return 0
    allowed = int(rows >= FEW_ROWS)
    if share < BEYOND_RESIZED:
        return max(int(share * rows), allowed)
    while chance_of_fewer(allowed + 1, rows, share) < SURE:
        allowed += 1
    return allowed


def chance_of_fewer(beyond: int, rows: int, share: float) -> float:
    """Return the chance that fewer of some rows exceed a limit, if this share of all does."""
    # Logarithms: of thousands of rows, the number of ways is beyond the largest float.
    ways = (math.lgamma(rows + 1) - math.lgamma(n + 1) - math.lgamma(rows - n + 1) for n in range(beyond))
    return sum(math.exp(w + n * math.log(share) + (rows - n) * math.log1p(-share)) for n, w in enumerate(ways))


def is_unsure(check: Measure) -> bool:
    """Return whether so many rows beyond a limit may be chance in so few rows."""
    in_doubt = check.rows > 0 and not check.passed and check.share < BEYOND_RESIZED
    return in_doubt and chance_of_fewer(check.beyond, check.rows, check.share) < SURE
