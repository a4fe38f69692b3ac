"""OpenVINO in this process, on its CPU plugin: an intermediate representation (IR) or an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ArtifactError, RuntimeMissingError
from edgekit.runtime.processor import processor, threads

if TYPE_CHECKING:
    from edgekit.model.spec import Array

CPU = "openvino-cpu"
"""The name of this place."""
PRECISION = "f32"
"""Of the arithmetic. The plugin chooses bf16 by itself where a processor has it; a verdict shall not depend on that
(https://docs.openvino.ai/2026/openvino-workflow/running-inference/optimize-inference/precision-control.html)."""

SINK = "/sink_port_0"
"""What OpenVINO puts behind an output's name to name the node that gives it."""


class OpenvinoRuntime:
    """A model compiled for OpenVINO's CPU plugin.

    A damaged file can end the process: the pipeline checks hashes first and runs this in a worker.

    Args:
        model: Path of a `.xml` file, with its `.bin` beside it, or of a `.onnx` file.
        settings: Further properties of the plugin, for example `LP_TRANSFORMS_MODE`; `threads` is their number.

    Raises:
        NotVerifiedHere: If OpenVINO is not installed.
        ArtifactError: If OpenVINO refuses the model.
    """

    def __init__(self, model: Path, settings: Mapping[str, str] | None = None) -> None:
        own = dict(settings or {})
        self._threads = int(own.pop("threads", "0")) or threads()
        self._compiled = _compile(model, {"INFERENCE_NUM_THREADS": self._threads, **own})
        self._names = [_name(output) for output in self._compiled.outputs]

    @property
    def device(self) -> str:
        """Library, version, device, arithmetic and threads, in words."""
        return f"OpenVINO {version()}, CPU, {PRECISION}, {self._threads} threads"

    @property
    def hardware(self) -> str:
        """The processor."""
        return processor()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch; the answer is copied, since the plugin writes the next one into the same memory."""
        feed = {name: np.asarray(array, order="C") for name, array in inputs.items()}
        try:
            answers = self._compiled(feed)
        except Exception as error:
            raise ArtifactError(f"OpenVINO failed: {reason(error)}") from error
        return {name: np.array(answers[number]) for number, name in enumerate(self._names)}

    def close(self) -> None:
        """Free the compiled model."""
        del self._compiled


def _name(output: Any) -> str:
    """An output's name in the model: a tensor that passes through a cast that OpenVINO took out has that one's too."""
    name = str(output.get_node().get_friendly_name()).removesuffix(SINK)
    return name if name in output.get_names() else str(output.get_any_name())


def version() -> str:
    """OpenVINO's version, without its build number."""
    import openvino

    return str(openvino.__version__).partition("-")[0]


def reason(error: Exception) -> str:
    """What OpenVINO says of an error, in a line: its last, since the lines before it name places in its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _compile(model: Path, settings: Mapping[str, object]) -> Any:
    try:
        import openvino
    except ImportError as error:
        raise RuntimeMissingError(f"OpenVINO is not installed ({error})") from error
    properties: dict[str, object] = {"INFERENCE_PRECISION_HINT": PRECISION, "NUM_STREAMS": 1}
    try:
        return openvino.Core().compile_model(model, "CPU", {**properties, **settings})
    except Exception as error:
        raise ArtifactError(f"OpenVINO refuses '{model.name}': {reason(error)}") from error
