"""The fp32 graph that a user gets without edgekit: PyTorch's own exporter with its defaults."""

from __future__ import annotations

from pathlib import Path

import torch

from edgekit.model.spec import ModelSpec


def export_plain(spec: ModelSpec, path: Path) -> None:
    """Write a model by `torch.onnx.export`, every named axis left to it."""
    inputs = tuple(torch.from_numpy(spec.random(0, {"batch": 2})[i.name]) for i in spec.inputs)
    sizes = {
        i.name: {n: torch.export.Dim.AUTO for n, size in enumerate(i.shape) if isinstance(size, str)}
        for i in spec.inputs
    }
    torch.onnx.export(
        spec.module,
        inputs,
        path,
        dynamo=True,
        verbose=False,
        external_data=False,
        input_names=[i.name for i in spec.inputs],
        output_names=[o.name for o in spec.outputs],
        dynamic_shapes=sizes,
    )
