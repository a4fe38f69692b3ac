"""The fp32 graph of a model without a verdict: by PyTorch's own exporter with its defaults, and as edgekit makes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from edgekit.model.folder import save_model
from edgekit.model.graph import capture
from edgekit.model.program import save_program
from edgekit.model.records import model_digest
from edgekit.model.spec import Array, ModelSpec
from edgekit.target import Job
from edgekit_targets.onnx import export as onnx_target


def export_plain(spec: ModelSpec, path: Path) -> None:
    """Write a model by `torch.onnx.export`, every named axis left to it."""
    inputs = tuple(torch.from_numpy(spec.random(0, {"batch": 2})[i.name]) for i in spec.inputs)
    # By position: a module's own argument names may differ from the model's.
    sizes = tuple(
        {n: torch.export.Dim.AUTO for n, size in enumerate(i.shape) if isinstance(size, str)} for i in spec.inputs
    )
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


def reader_of(rows: Iterable[Mapping[str, Array]]) -> Any:
    """Return calibration rows as ONNX Runtime's quantizer reads them."""
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rows = iter(rows)

        def get_next(self) -> Any:
            return next(self._rows, None)

    return Reader()


def export_own(spec: ModelSpec, place: Path) -> Path:
    """Write a model, its program and `onnx/model.onnx` into a folder, as `-t onnx` does; returns the last."""
    save_model(spec, place / "model")
    save_program(capture(spec), place / "program", model_digest(place / "model"))
    (place / "onnx").mkdir(parents=True, exist_ok=True)
    options = {option.name: option.default for option in onnx_target.TARGET.options}
    onnx_target.export(place / "program", place / "onnx", Job(model=place / "model", reference=place, options=options))
    return place / "onnx" / onnx_target.ENTRY
