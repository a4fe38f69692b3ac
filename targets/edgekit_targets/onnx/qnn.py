"""Qualcomm's QNN provider, if `onnxruntime-qnn` is installed: its compiler for the NPU (HTP), and the emulator.

On x86-64 the package has both. The compiler checks each node by the real rules of a chip, and the emulator computes
the accepted ones, in fp16. This module needs numpy and ONNX Runtime, and is part of packs. It trusts the file.
"""

from __future__ import annotations

import contextlib
import platform
from collections import Counter
from collections.abc import Mapping
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ArtifactError, NotVerifiedHere, RuntimeMissingError, whole_reason
from edgekit.runtime.processor import processor

if TYPE_CHECKING:
    from edgekit.model.spec import Array

PACKAGE, PROVIDER = "onnxruntime_qnn", "QNNExecutionProvider"
INSTALL = "pip install onnxruntime-qnn (Qualcomm's licence, 90 MB)"
CHIP, NAME = "57", "Snapdragon 8 Gen 3"
"""The target chip, by its number in Qualcomm's list of SoC models (SM8650)."""
EMULATED = ("x86_64", "AMD64")
"""Processors whose package has the emulator; other packages have the NPU's own driver instead."""


class QnnRuntime:
    """An ONNX model in the emulator of the NPU; each shape is compiled on its first use.

    Args:
        model: Path of the `.onnx` file.
        settings: Not used.

    Raises:
        NotVerifiedHere: If the package is not installed, or does not support this processor.
        ArtifactError: If ONNX Runtime refuses the model.
    """

    def __init__(self, model: Path, settings: Mapping[str, str] | None = None) -> None:
        if not is_installed():
            raise RuntimeMissingError("QNN is not installed")
        if platform.machine() not in EMULATED:
            raise NotVerifiedHere(f"QNN's emulator is for x86-64, and this host has {platform.machine()}")
        import onnxruntime

        self._model = model
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            plain = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ArtifactError(f"ONNX Runtime refuses '{model.name}': {whole_reason(error)}") from error
        self._inputs: dict[str, list[int | str]] = {value.name: value.shape for value in plain.get_inputs()}
        self._names: list[str] = [output.name for output in plain.get_outputs()]
        self._compiled: tuple[dict[str, tuple[int, ...]], Any] | None = None

    @property
    def device(self) -> str:
        """Library, version, precision and chip, in words."""
        import onnxruntime

        version = metadata.version("onnxruntime-qnn")
        runtime = f"ONNX Runtime {onnxruntime.__version__}, QNN {version}"
        return f"{runtime}, fp16, in the emulator of Qualcomm's NPU ({NAME})"

    @property
    def hardware(self) -> str:
        """The processor that runs the emulator."""
        return processor()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch."""
        feed = {name: np.asarray(array, order="C") for name, array in inputs.items()}
        session = self._session({name: array.shape for name, array in feed.items()})
        return dict(zip(self._names, session.run(None, feed), strict=True))

    def facts(self) -> dict[str, str]:
        """Return the number of nodes and partitions in the emulator, and the operators that the CPU computes."""
        if self._compiled is None:
            return {}
        parts = self._compiled[1].get_provider_graph_assignment_info()
        node_counts = [len(part.get_nodes()) for part in parts if part.ep_name == PROVIDER]
        fallbacks = Counter(node.op_type for part in parts if part.ep_name != PROVIDER for node in part.get_nodes())
        by_operator = ", ".join(f"{count} {name}" for name, count in fallbacks.most_common())
        return {
            "nodes in the emulator": f"{sum(node_counts)}, in {len(node_counts)} partition"
            + "s" * (len(node_counts) > 1),
            "nodes on the CPU, in fp32": by_operator or "none",
        }

    def close(self) -> None:
        """Free the session."""
        self._compiled = None

    def _session(self, shapes: dict[str, tuple[int, ...]]) -> Any:
        """Return the session of these shapes; only one is kept, since each holds the compiled weights."""
        if self._compiled is None or self._compiled[0] != shapes:
            self._compiled = None
            options = _options()
            for name, shape in shapes.items():
                for dimension, size in zip(self._inputs[name], shape, strict=True):
                    if isinstance(dimension, str):
                        options.add_free_dimension_override_by_name(dimension, size)
            session = _open_session(self._model, options)
            if not any(part.ep_name == PROVIDER for part in session.get_provider_graph_assignment_info()):
                raise NotVerifiedHere(f"QNN's compiler accepts no node of '{self._model.name}'")
            self._compiled = shapes, session
        return self._compiled[1]


def is_installed() -> bool:
    """Return whether the package is installed."""
    return util.find_spec(PACKAGE) is not None


def _options() -> Any:
    """Return a session's options with the provider for the chip.

    Raises:
        NotVerifiedHere: If it cannot start here.
    """
    import onnxruntime
    import onnxruntime_qnn

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        # It may be registered already.
        with contextlib.suppress(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
            onnxruntime.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
        devices = [ep_device for ep_device in onnxruntime.get_ep_devices() if ep_device.ep_name == PROVIDER]
        settings = {"enable_htp_fp16_precision": "1", "soc_model": CHIP}
        options.add_provider_for_devices(devices, {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), **settings})
    except Exception as error:
        raise NotVerifiedHere(f"QNN cannot run here: {whole_reason(error)}") from error
    return options


def _open_session(path: Path, options: Any) -> Any:
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(str(path), options)
    except Exception as error:
        raise ArtifactError(f"QNN's compiler refuses the graph at fixed sizes: {whole_reason(error)}") from error
    if PROVIDER not in session.get_providers():
        raise NotVerifiedHere("QNN cannot run here: its provider did not start")
    return session
