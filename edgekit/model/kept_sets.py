"""Evaluation and calibration sets that travel with a model as arrays, since no factory can make them again.

The task metric is a function and does not travel, unless it is one of `edgekit.metrics` that was named in words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit import metrics
from edgekit.model.evaluation_set import calibration_of, evaluation_of
from edgekit.model.spec import Array, Evaluation, ModelSpec

SETS = {"evaluation": "evaluation.safetensors", "calibration": "calibration.safetensors"}
COUNT = 300
"""Calibration samples that are taken where there are more, and that travel: a full search asks for as many."""


def write_sets(spec: ModelSpec, folder: Path, which: Collection[str] = tuple(SETS)) -> dict[str, Any]:
    """Write the sets that a model has of these; returns what config.json says of them."""
    sets = {
        "evaluation": evaluation_of(spec) if "evaluation" in which else None,
        "calibration": calibration_of(spec, COUNT) if "calibration" in which else None,
    }
    found = {name: samples for name, samples in sets.items() if samples is not None}
    for name, samples in found.items():
        _write_set(samples, folder / SETS[name])
    return {name: _described(samples) for name, samples in found.items()}


def with_sets(spec: ModelSpec, folder: Path, described: Mapping[str, Any]) -> ModelSpec:
    """A model with the sets that travelled with it."""
    sets: dict[str, Any] = {name: _reader(folder / SETS[name], each) for name, each in described.items()}
    return replace(spec, **sets, brought=frozenset(sets))


def _write_set(samples: Evaluation, path: Path) -> None:
    from safetensors.numpy import save_file

    arrays = {f"inputs/{name}": np.ascontiguousarray(array) for name, array in samples.inputs.items()}
    if samples.truth is not None:
        arrays["truth"] = np.ascontiguousarray(samples.truth)
    save_file(arrays, path)


def _described(samples: Evaluation) -> dict[str, Any]:
    names, captions = list(samples.names), list(samples.captions)
    words = samples.metric.words if isinstance(samples.metric, metrics.Named) else ""
    return {"names": names, "captions": captions, "metric_name": samples.metric_name, "metric": words}


def _reader(path: Path, described: Mapping[str, Any]) -> Callable[[], Evaluation]:
    def read() -> Evaluation:
        from safetensors.numpy import load_file

        arrays: dict[str, Array] = load_file(path)
        return Evaluation(
            inputs={n.removeprefix("inputs/"): a for n, a in arrays.items() if n.startswith("inputs/")},
            names=tuple(described["names"]),
            captions=tuple(described["captions"]),
            truth=arrays.get("truth"),
            metric=metrics.named(described["metric"]) if described["metric"] else None,
            metric_name=described["metric_name"],
        )

    return read
