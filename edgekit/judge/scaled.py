"""What is measured of an output in units of its spread, and what its role is for: rows, then channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgekit.judge.deviation import channel_deviations, row_deviations, unmoved
from edgekit.judge.faults import Answers
from edgekit.judge.roles import role_measures
from edgekit.judge.rows import matched, taken
from edgekit.judge.spread import arranged
from edgekit.model.spec import Array, Output

_Rows = Iterator[tuple[str, Array, Array]]  # metric, values [n] or [channels], worst positions


def scaled_measures(output: Output, outputs: Sequence[Output], answers: Answers, scale: Array) -> _Rows:
    """Deviations of a floating output, and the measures of its role.

    Args:
        output: Which.
        outputs: All of the model.
        answers: Of both sides; without faults.
        scale: The spread of each channel.
    """
    if output.role in ("counts", "ranking"):
        return
    r, c = (arrays[output.name] for arrays in answers)
    if r.dtype.kind == "f":
        yield from _deviations(output, answers, scale)
    if output.role not in ("scores", "features"):
        base = next((o for o in outputs if o.name == output.of and o.name in answers[0]), None)
        yield from role_measures(output, r.astype(np.float64), c.astype(np.float64), _classes(base, answers))


def _classes(base: Output | None, answers: Answers) -> tuple[Output, Array, Array] | None:
    """What labels are the largest of, of both sides; the reference's twice where the artifact's cannot be compared."""
    if base is None:
        return None
    r, c = answers[0][base.name], answers[1].get(base.name)
    return base, r.astype(np.float64), (r if c is None or c.shape != r.shape else c).astype(np.float64)


def _deviations(output: Output, answers: Answers, scale: Array) -> _Rows:
    z, y = (arranged(output, arrays[output.name]) / scale for arrays in answers)
    there = np.ones(z.shape[:2], bool)
    if output.role == "features":
        places, there = matched(*(arrays[output.of].astype(np.int64) for arrays in answers))
        y = taken(y, places)
    if output.role == "scores":
        yield next(row_deviations(z, y, there))
        return
    yield from row_deviations(z, y, there)
    yield from channel_deviations(z, y, there)
    yield from unmoved(z, y, there)
