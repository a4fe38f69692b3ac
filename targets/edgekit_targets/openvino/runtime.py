"""OpenVINO in this process, on its CPU plugin: an intermediate representation (IR) or an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ArtifactError, RuntimeMissingError
from edgekit.runtime.processor import processor, threads
from edgekit.runtime.protocol import FileTensor

if TYPE_CHECKING:
    from edgekit.model.spec import Array

CPU = "openvino-cpu"
"""The name of this place."""
PRECISION = "f32"
"""Precision of the arithmetic.

The plugin may choose bf16 where a processor has it, and a verdict must not depend on that
(https://docs.openvino.ai/2026/openvino-workflow/running-inference/optimize-inference/precision-control.html)."""

SINK = "/sink_port_0"
"""Suffix that OpenVINO appends to an output's name to name its node."""


class OpenvinoRuntime:
    """A model compiled for OpenVINO's CPU plugin.

    A damaged file can end the process, so the pipeline checks hashes first and runs this in a worker.

    Args:
        model: Path of a `.xml` file, with its `.bin` in the same folder, or of a `.onnx` file.
        settings: Further properties of the plugin, for example `LP_TRANSFORMS_MODE`. `threads` is the number of
            threads.

    Raises:
        NotVerifiedHere: If OpenVINO is not installed.
        ArtifactError: If OpenVINO refuses the model.
    """

    def __init__(self, model: Path, settings: Mapping[str, str] | None = None) -> None:
        own = dict(settings or {})
        self._threads = int(own.pop("threads", "0")) or threads()
        self._compiled = _compile(model, {"INFERENCE_NUM_THREADS": self._threads, **own})
        self._inputs = {_name(port, number): port for number, port in enumerate(self._compiled.inputs)}
        self._names = [_output_name(port, number) for number, port in enumerate(self._compiled.outputs)]

    @property
    def device(self) -> str:
        """Library, version, device, arithmetic and threads."""
        return f"OpenVINO {version()}, CPU, {PRECISION}, {self._threads} threads"

    @property
    def hardware(self) -> str:
        """The processor."""
        return processor()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch. They are copied, since the plugin reuses the memory."""
        # A tensor may have further names, by which OpenVINO finds it.
        feed = {self._inputs.get(name, name): np.asarray(array, order="C") for name, array in inputs.items()}
        try:
            answers = self._compiled(feed)
        except Exception as error:
            raise ArtifactError(f"OpenVINO failed: {reason(error)}") from error
        return {name: np.array(answers[number]) for number, name in enumerate(self._names)}

    def inputs(self) -> tuple[FileTensor, ...]:
        """Return the model's inputs, in its order."""
        return tuple(_tensor(port, name) for name, port in self._inputs.items())

    def outputs(self) -> tuple[FileTensor, ...]:
        """Return the model's outputs, in its order."""
        return tuple(map(_tensor, self._compiled.outputs, self._names))

    def close(self) -> None:
        """Free the compiled model."""
        del self._compiled


def _tensor(port: Any, name: str) -> FileTensor:
    sizes = tuple(size.get_length() if size.is_static else None for size in port.get_partial_shape())
    return FileTensor(name, np.dtype(port.get_element_type().to_dtype()).name, sizes)


def _name(port: Any, number: int) -> str:
    """Return the name of a tensor; its number if a converter named none."""
    return str(port.get_any_name()) if port.get_names() else str(number)


def _output_name(port: Any, number: int) -> str:
    """Return an output's name in the model.

    A tensor after a cast that OpenVINO removed has the name of the cast too.
    """
    name = str(port.get_node().get_friendly_name()).removesuffix(SINK)
    return name if name in port.get_names() else _name(port, number)


def version() -> str:
    """Return OpenVINO's version, without its build number."""
    import openvino

    return str(openvino.__version__).partition("-")[0]


def reason(error: Exception) -> str:
    """Return OpenVINO's last line about an error, since the lines before it name places in its source."""
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
