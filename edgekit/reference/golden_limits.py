"""What a device may show on the golden vectors of a model without scores, and whether it shows more.

Limits are those of the gate for the artifact's precision, in units of the reference's spread over the evaluation set,
and at least `MARGIN` times what the artifact itself shows here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from edgekit.judge.limits import FP16, FP32, FP32_DELEGATED, INT8, Tolerance
from edgekit.model.spec import Array

MOST = 65536
"""Values of an output that are kept; of a larger one every second, third ... value, from the first."""
MARGIN = 2.0
LARGEST_INT8 = 0.3
"""In units of the spread, of single values: the gate's limit on a row's error, which it has no larger one beside."""
ERROR_INT8 = 0.1
"""Of all values: a third of the gate's, since what an artifact shows here is known and widens it."""
TOLERANCES: Mapping[str, Tolerance] = {"fp32": FP32, "delegated": FP32_DELEGATED, "fp16": FP16, "int8": INT8}
"""Precision, or what runs fp32 by other kernels -> the gate's limits."""
Limits = Mapping[str, Mapping[str, float]]
"""Output -> "max_abs" and "rms" in its own units, or "wrong", a share of its integers."""


def limits(
    kind: str, spread: Mapping[str, float], integers: Collection[str], shown: Limits
) -> dict[str, dict[str, float]]:
    """What a device may show of each output.

    Args:
        kind: A key of `TOLERANCES`.
        spread: Of each output of floats, the standard deviation of the reference's answers.
        integers: The other outputs.
        shown: What the artifact shows here, in the same metrics.
    """
    tolerance = TOLERANCES[kind]
    error = ERROR_INT8 if kind == "int8" else tolerance.limit("error", "tensor") or 0.0
    largest = tolerance.limit("deviation", "tensor") or LARGEST_INT8
    bases = {name: {"max_abs": unit * largest, "rms": unit * error} for name, unit in spread.items()}
    bases |= {name: {"wrong": tolerance.limit("flips", "tensor") or 0.0} for name in integers}

    def limit(name: str, metric: str, least: float) -> float:
        return _rounded(max(least, MARGIN * shown.get(name, {}).get(metric, 0.0)))

    return {
        name: {metric: limit(name, metric, least) for metric, least in base.items()} for name, base in bases.items()
    }


def failure(expected: Mapping[str, Array], answers: Mapping[str, Array], allowed: Limits) -> str:
    """Why answers fail, as browsers and phones say it; empty where they pass."""
    for name, wanted in expected.items():
        found = answers.get(name)
        if found is None or found.shape != wanted.shape:
            return f"the output '{name}' is missing or has another shape"
        for metric, value in errors(wanted, found).items():
            if not value <= allowed[name][metric]:
                return f"{metric} of the output '{name}' is {value:.2g} (limit {allowed[name][metric]:.2g})"
    return ""


def errors(expected: Array, found: Array) -> dict[str, float]:
    """How far one output is off, by metric: only of the values that golden.bin holds."""
    a, b = (values.ravel()[:: step(values)] for values in (expected, found))
    if expected.dtype.kind != "f":
        return {"wrong": float((a != b).mean()) if a.size else 0.0}
    off = np.abs(a.astype(np.float64) - b.astype(np.float64))
    if not np.isfinite(off).all():
        return {"max_abs": math.inf, "rms": math.inf}
    return {"max_abs": float(off.max(initial=0.0)), "rms": float(np.sqrt((off**2).mean())) if off.size else 0.0}


def worst(found: Iterable[Limits]) -> dict[str, dict[str, float]]:
    """The largest of each output's errors in each metric."""
    largest: dict[str, dict[str, float]] = {}
    for one in found:
        for name, by_metric in one.items():
            for metric, value in by_metric.items():
                before = largest.setdefault(name, {}).get(metric, 0.0)
                largest[name][metric] = max(before, value)
    return largest


def difference(one: Mapping[str, Array], other: Mapping[str, Array], spread: Mapping[str, float]) -> float:
    """How far two answers lie apart: the largest of the outputs', in units of the spread, or a share of integers."""
    apart = 0.0
    for name, values in one.items():
        if name in other and values.shape == other[name].shape:
            found = errors(values, other[name])
            apart = max(apart, found.get("wrong", 0.0), found.get("rms", 0.0) / spread.get(name, 1.0))
    return apart


def spread_of(values: Array) -> float:
    """Of the reference's answers to the evaluation set; where all are equal, their size."""
    exact = values.astype(np.float64)
    found = float(exact.std())
    return found if found > 0 else max(float(np.abs(exact).max(initial=0.0)), 1.0)


def step(values: Array) -> int:
    """Which of an output's values are kept: every so many."""
    return max(-(-values.size // MOST), 1)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
