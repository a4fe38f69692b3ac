"""One model's process: `python -m tools.zoo.keeper MODEL FOLDER TARGET...` exports it and writes a cell a target."""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch

import edgekit
from edgekit.errors import EdgekitError
from edgekit.model.sources import resolve_model
from edgekit.model.spec import Array, ModelSpec
from edgekit.pipeline.outcome import TargetOutcome
from tools.exam.sitting import called_here
from tools.zoo import cell
from tools.zoo.catalogue import MODELS
from tools.zoo.cell import REFUSED, REJECTED, TRACEBACK, VERIFIED, Cell
from tools.zoo.comparison import compared

FRESH, COUNT = 77, 12
"""Seed and number of the comparison's own inputs."""
ELSEWHERE = "not verified here"
BUG = ("Traceback", "met a bug")
"""What a sentence says only where edgekit did not expect what happened."""


def main(name: str, folder: Path, targets: list[str]) -> None:
    """Write a cell for each target, one after the other."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with called_here():  # a worker of its own would load PyTorch again for each step
        for target in targets:
            cell.write(exported(name, folder, target), folder / "cells")


def exported(name: str, folder: Path, target: str) -> Cell:
    """Export, judge, and where it was verified compare."""
    began = time.monotonic()
    try:
        build = edgekit.export(MODELS[name], targets=(target,), output=folder / "builds", progress="none")
        outcome = build[target]
        status, sentence = said(outcome)
        seconds = round(time.monotonic() - began, 1)
        if status != VERIFIED or target == "web":
            return Cell(name, target, status, sentence, seconds=seconds)
        spec = resolve_model(MODELS[name])
        outputs = [output.name for output in spec.outputs]
        found = [(*compared(spec.module, outputs, target, outcome.path, x), kind) for kind, x in fresh(spec).items()]
        ratio, output, kind = max(found)
        return Cell(name, target, status, sentence, float(f"{ratio:.2g}"), f"{output}, {kind}", seconds)
    except EdgekitError as error:
        return Cell(name, target, REFUSED, str(error), seconds=round(time.monotonic() - began, 1))
    except Exception:
        return Cell(name, target, TRACEBACK, traceback.format_exc(), seconds=round(time.monotonic() - began, 1))


def said(outcome: TargetOutcome) -> tuple[str, str]:
    """What edgekit said of one target: the kind of its answer, and the first sentence.

    A place that this machine has not (Core ML itself) leaves the verdict to the places that it has.
    """
    here = {place.status for place in outcome.places} - {ELSEWHERE}
    if outcome.status in (VERIFIED, ELSEWHERE) and here == {VERIFIED}:
        return VERIFIED, ""
    sentence = next(iter(outcome.sentences), "")
    if any(word in sentence for word in BUG):
        return TRACEBACK, sentence
    return {"failed": REFUSED, "skipped": REFUSED, "rejected": REJECTED}.get(outcome.status, outcome.status), sentence


def fresh(spec: ModelSpec) -> dict[str, dict[str, Array]]:
    """Inputs that edgekit has not asked: of the kind that the model is for."""
    if spec.calibration is None:
        raise ValueError(f"'{spec.name}' has no samples")
    every = spec.calibration(200)  # seeded: its last ones are in no set that edgekit uses
    return {"fresh samples": {n: np.ascontiguousarray(values[-COUNT:]) for n, values in every.inputs.items()}}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
