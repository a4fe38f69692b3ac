"""The independent comparison of one model's verified cells: `python -m tools.zoo.look MODEL FOLDER TARGET...`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import torch

from edgekit.model.evaluation_set import calibration_of
from edgekit.model.sources import resolve_model
from edgekit.model.spec import Array, ModelSpec
from edgekit_matrix.report import CellRecord, read_cell
from tools.zoo.catalogue import MODELS
from tools.zoo.cell import Comparison, keep
from tools.zoo.comparison import compared

COUNT = 12
"""The comparison's own inputs."""


def main(model: str, folder: Path, targets: list[str]) -> None:
    """Compare one artifact after the other with their module, and keep what is found."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    spec = resolve_model(MODELS[model])
    for target in targets:
        record = read_cell(folder / "cells" / model / target)
        if record is not None:
            keep(looked_at(spec, record, folder), record, folder)


def looked_at(spec: ModelSpec, record: CellRecord, folder: Path) -> Comparison:
    """The largest error on inputs that edgekit has not asked."""
    artifact = folder / record.folder / record.model / record.target
    outputs = {output.name: output.role for output in spec.outputs}
    ratio, output = compared(spec.module, outputs, record.target, artifact, fresh(spec))
    return Comparison(float(f"{ratio:.2g}"), f"{output}, fresh samples", record.run.key)


def fresh(spec: ModelSpec) -> list[dict[str, Array]]:
    """Inputs that edgekit has not asked, of one run each: of the kind that the model is for."""
    every = calibration_of(spec, 200)  # seeded: its last ones are in no set that edgekit uses
    if every is None:
        raise ValueError(f"'{spec.name}' has no samples")
    shapes = {i.name: i.shape for i in spec.inputs}
    runs = len(every.names)

    def run(number: int, values: Array, shape: tuple[int | str, ...]) -> Array:
        step = len(values) // runs  # a state's first axis is not the batch
        return (
            np.ascontiguousarray(values[number * step : (number + 1) * step]) if shape else np.asarray(values[number])
        )

    numbers = range(runs - COUNT, runs)
    return [{n: run(number, v, shapes[n]) for n, v in every.inputs.items()} for number in numbers]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
