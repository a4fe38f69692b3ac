"""OpenVINO's intermediate representation (IR), for all targets of it: an ONNX file is read, `model.xml` is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.errors import ExportError
from edgekit.runtime import openvino as runtime
from edgekit.target import Place, Runtime

ENTRY = "model.xml"


def read_model(path: Path, name: str) -> Any:
    """An ONNX file as OpenVINO's model.

    Raises:
        ExportError: If OpenVINO cannot read the graph; the message names the user's model.
    """
    import openvino

    try:
        return openvino.Core().read_model(path)  # `convert_model` starts processes that report its use
    except Exception as error:
        raise ExportError(f"OpenVINO cannot convert '{name}': {runtime.reason(error)}") from error


def save_model(model: Any, path: Path, facts: Mapping[str, str], half: bool = False) -> None:
    """Write model.xml and model.bin with facts of the model, its weights in fp16 if `half`."""
    import openvino

    for key, value in facts.items():
        model.set_rt_info(value, ["edgekit", key])
    openvino.save_model(model, path, compress_to_fp16=half)


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in OpenVINO's CPU plugin."""
    return runtime.OpenvinoRuntime(artifact / ENTRY)
