"""What cannot be compared: an output that is missing, of a wrong shape or dtype, not finite, or against its role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edgekit.artifact.fact import Code, Fact
from edgekit.model.spec import Array, Output

BASES = {"counts": "scores", "ranking": "scores", "features": "ranking", "count": "detections"}
"""Role -> role of the output that it is derived from."""
Answers = tuple[Mapping[str, Array], Mapping[str, Array]]
"""Of the reference and of the artifact: arrays by output name."""
_RANKS = {"scores": 2, "counts": 2, "ranking": 2, "features": 3, "detections": 3, "count": 1}


def faults_of(output: Output, base: Output | None, answers: Answers, names: Sequence[str]) -> list[Fact]:
    """What makes one output of n named rows incomparable, on either side; empty where it can be compared."""

    def fault(code: Code, **details: str | int | float) -> Fact:
        return Fact(code=code, output=output.name, details=details)

    role = BASES.get(output.role)
    if role and (base is None or base.role != role):
        return [fault(Code.BASE_MISSING, base=output.of, role=role)]
    sides = tuple(zip(("reference", "artifact"), answers, strict=True))
    missing = [side for side, arrays in sides if output.name not in arrays]
    if missing:
        return [fault(Code.OUTPUT_MISSING, side=side) for side in missing]
    found, candidate = (arrays[output.name] for arrays in answers)
    nothing = not candidate.size and candidate.shape == found.shape  # beside an empty answer any other one is wrong
    shape = (len(names), *found.shape[1:])
    width = answers[0][base.name].shape[1] if base else 0
    if output.role in ("counts", "features"):  # one for each score, one row for each place of the ranking
        shape = (len(names), width, *shape[2:])
    faults = []
    for side, arrays in sides:
        array, declared = arrays[output.name], np.dtype(output.dtype)
        if array.dtype != declared if side == "artifact" else array.dtype.kind != declared.kind:
            faults.append(fault(Code.WRONG_DTYPE, side=side, dtype=str(array.dtype), expected=str(declared)))
        elif array.shape != shape or array.ndim != _RANKS.get(output.role, array.ndim) or nothing:
            shapes = {"shape": str(list(array.shape)), "expected": str(list(shape))}
            faults.append(fault(Code.WRONG_SHAPE, side=side, **shapes))
        else:
            faults += _impossible(output, array, names, width, side)
    return faults


def _impossible(output: Output, array: Array, names: Sequence[str], width: int, side: str) -> Iterator[Fact]:
    code, bad = Code.NOT_FINITE, ~np.isfinite(array)
    if output.role == "counts":
        good = (array >= output.low) & (array <= output.high) & (array == np.floor(array))
        code, bad = Code.BAD_COUNTS, ~good
    elif output.role == "ranking":
        array = np.sort(array, axis=1)
        good = (array >= 0) & (array < width) & (np.diff(array, axis=1, prepend=-1) >= 1)
        code, bad = Code.BAD_RANKING, ~good
    if not bad.any():
        return
    row, *place = np.argwhere(bad)[0].tolist()
    index = int(place[0]) if output.role in ("scores", "counts") else -1
    details: dict[str, str | int | float] = {"side": side, "wrong": int(bad.sum()), "all": bad.size}
    details |= {"low": output.low, "high": output.high} if code is Code.BAD_COUNTS else {}
    details |= {"places": width} if code is Code.BAD_RANKING else {}
    yield Fact(code=code, output=output.name, row=names[row], index=index, details=details)
