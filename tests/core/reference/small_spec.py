"""A small model of pictures and a number, for the tests of batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.artifact.manifest import AxisInfo, Manifest, TensorInfo
from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output
from tests.manifests import manifest


def spec() -> ModelSpec:
    import torch

    return ModelSpec(
        name="net",
        module=torch.nn.Identity(),
        inputs=(
            Input("images", ("batch", 3, "height", 4), low=-1.0, high=3.0, kind="image"),
            Input("n", ("batch",), dtype="int64"),
        ),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 3), "height": Axis(8, 4, 16, 4)},
    )


def evaluation(count: int = 5) -> EvaluationSet:
    images = np.arange(count * 96, dtype=np.float32).reshape(count, 3, 8, 4)
    return EvaluationSet({"images": images, "n": np.arange(count)}, tuple(f"image {i}" for i in range(count)))


def made(batch: bool = True, height: bool = True, **changes: Any) -> Manifest:
    axes = {n: AxisInfo.of_axis(a, {"batch": batch, "height": height}[n]) for n, a in spec().axes.items()}
    inputs = tuple(TensorInfo.of_input(i) for i in spec().inputs)
    return manifest(axes=axes, inputs=inputs).model_copy(update=changes)
