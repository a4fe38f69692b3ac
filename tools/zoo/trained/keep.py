"""What takes long to make and is kept in the cache folder: spoken sets, and weights that are trained here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import nn

from edgekit.model.spec import EvaluationSet

FOLDER = "EDGEKIT_TRAINED"
"""Variable with the cache folder; nothing is kept where it is not set."""


def keep_set(name: str, make: Callable[[], EvaluationSet]) -> EvaluationSet:
    """Return a set with its truth, from the cache folder if it is there."""
    if FOLDER not in os.environ:
        return make()
    path = Path(os.environ[FOLDER]) / "sets" / f"{name}.npz"
    if not path.is_file():
        made = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, names=np.array(made.names), truth=np.asarray(made.truth), **dict(made.inputs))  # type: ignore[arg-type]  # numpy's stub
    arrays = dict(np.load(path))
    names, truth = arrays.pop("names"), arrays.pop("truth")
    return EvaluationSet(arrays, tuple(str(word) for word in names), (), truth)


def keep_weights(name: str, module: nn.Module, train: Callable[[nn.Module], None]) -> nn.Module:
    """Return a module in eval mode, trained, or with the weights that the cache folder has."""
    import safetensors.torch

    path = Path(os.environ.get(FOLDER, "build/trained")) / "weights" / f"{name}.safetensors"
    if not path.is_file():
        train(module)
        path.parent.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(module.state_dict(), path)
    module.load_state_dict(safetensors.torch.load_file(path))
    return module.eval()
