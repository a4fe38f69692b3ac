"""The source `numpy:FILE.npz`: the arrays `weight` [outputs, inputs] and `bias` [outputs] as a linear model."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from edgekit.errors import ModelError
from edgekit.model.overrides import SpecOverrides
from edgekit.model.sources.factory import apply_overrides
from edgekit.model.spec import Axis, Input, ModelSpec, Output

KEPT = "arrays.npz"
"""The file in a build's model folder, from which `spec_of_files` makes the model again."""


def open_file(path: str, words: SpecOverrides, task: str) -> ModelSpec:
    """Return the model of a file, with what the user says of its inputs, outputs and axes."""
    return apply_overrides(spec_of_files({KEPT: Path(path)}), words)


def spec_of_files(files: Mapping[str, Path]) -> ModelSpec:
    """Return the model of a file in a build.

    Raises:
        ModelError: If the file cannot be read, or its arrays are not those of a linear model.
    """
    import torch

    path = files[KEPT]
    try:
        with np.load(path, allow_pickle=False) as arrays:
            weight, bias = arrays["weight"], arrays["bias"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"'{path}' cannot be read: {error}. It must hold the arrays 'weight' and 'bias'.") from error
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise ModelError(f"'{path}' has a weight of {weight.shape} and a bias of {bias.shape}: give [m, n] and [m].")
    module = torch.nn.Linear(weight.shape[1], weight.shape[0])
    module.load_state_dict({"weight": torch.from_numpy(weight).float(), "bias": torch.from_numpy(bias).float()})
    return ModelSpec(
        name=path.stem.lower(),
        module=module.eval(),
        inputs=(Input("x", ("batch", weight.shape[1])),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 8)},
        factory=f"numpy:{path.name}",
        files={KEPT: path},
    )
