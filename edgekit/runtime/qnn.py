"""Qualcomm's QNN provider, where `onnxruntime-qnn` is installed: what its compiler for the NPU (HTP) takes of a graph.

On x86-64 the package holds that compiler and an emulator of the NPU. It checks each node by the real rules of a chip.
"""

from __future__ import annotations

import contextlib
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ArtifactError, NotVerifiedHere, reason

if TYPE_CHECKING:
    import onnx

PACKAGE, PROVIDER = "onnxruntime_qnn", "QNNExecutionProvider"
INSTALL = "pip install onnxruntime-qnn (Qualcomm's licence, 90 MB)"
CHIP, NAME = "57", "Snapdragon 8 Gen 3"
"""The chip that is compiled for, by its number in Qualcomm's list of SoC models (SM8650)."""


def installed() -> bool:
    """Whether the package is there."""
    return util.find_spec(PACKAGE) is not None


def named() -> str:
    """The package with its version, in words."""
    return f"QNN's own compiler (onnxruntime-qnn {metadata.version('onnxruntime-qnn')}) for the NPU of {NAME}, in fp16"


def assigned(graph: onnx.ModelProto) -> tuple[int, set[str]]:
    """How many partitions it makes of a graph with fixed sizes, and the names of the nodes that it leaves to the CPU.

    Nodes that it takes may have other names by then, as in another layout.

    Raises:
        NotVerifiedHere: If it cannot start here.
        ArtifactError: If it refuses the graph as a whole.
    """
    import onnxruntime
    import onnxruntime_qnn

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # ONNX Runtime's own fusions would rename nodes.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        with contextlib.suppress(onnxruntime.capi.onnxruntime_pybind11_state.Fail):  # registered already
            onnxruntime.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
        devices = [one for one in onnxruntime.get_ep_devices() if one.ep_name == PROVIDER]
        settings = {"enable_htp_fp16_precision": "1", "soc_model": CHIP}
        options.add_provider_for_devices(devices, {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), **settings})
    except Exception as error:
        raise NotVerifiedHere(f"QNN cannot be asked here: {reason(error)}") from error
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        path = Path(folder) / "asked.onnx"
        path.write_bytes(graph.SerializeToString())
        try:
            session = onnxruntime.InferenceSession(str(path), options)
        except Exception as error:
            raise ArtifactError(f"QNN's compiler refuses the graph at fixed sizes: {reason(error)}") from error
    if PROVIDER not in session.get_providers():
        raise NotVerifiedHere("QNN cannot be asked here: its provider did not start")
    parts = session.get_provider_graph_assignment_info()
    left = {node.name for part in parts if part.ep_name != PROVIDER for node in part.get_nodes()}
    return sum(part.ep_name == PROVIDER for part in parts), left
