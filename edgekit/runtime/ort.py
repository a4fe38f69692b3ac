"""ONNX Runtime in this process, for files that are checked first."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ArtifactError, DependencyError, ModelError, install_command
from edgekit.model.onnx_check import check_onnx, data_name
from edgekit.model.onnx_write import write_graph
from edgekit.runtime.ort_session import OrtSession

if TYPE_CHECKING:
    import onnx


class OrtRuntime(OrtSession):
    """An ONNX file from any source, on the CPU provider: it is checked before ONNX Runtime opens it.

    Args:
        model: Path of the `.onnx` file.
        settings: As `OrtSession` takes them, for example `session.x64quantprecision`.

    Raises:
        DependencyError: If not exactly one build of ONNX Runtime is installed.
        ArtifactError: If the check or ONNX Runtime refuses the model.
    """

    def __init__(self, model: Path, settings: Mapping[str, str] | None = None) -> None:
        require_onnxruntime()
        check_file(model)
        super().__init__(model, settings)


def check_file(model: Path, beside: str = "") -> None:
    """Check a file before a runtime opens it. A file named `beside`, or `model.onnx.data`, may hold its weights.

    Raises:
        ArtifactError: If the check refuses it.
    """
    own = data_name(model)
    try:
        check_onnx(model, beside or (own if (model.parent / own).is_file() else ""))
    except ModelError as error:
        raise ArtifactError(str(error)) from error


def open_with_taps(graph: onnx.ModelProto, tensors: Sequence[str]) -> OrtRuntime:
    """Open a graph in ONNX Runtime with the named inner tensors as extra outputs, which prevents their fusion."""
    import onnx

    names = {value.name for value in (*graph.graph.input, *graph.graph.output)}
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors if name not in names)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        path = Path(folder) / "tapped.onnx"
        write_graph(copy, path)
        return OrtRuntime(path)


def require_onnxruntime() -> None:
    """Check that exactly one build of ONNX Runtime is installed: two overwrite each other's files.

    Raises:
        DependencyError: If none or both are installed.
    """
    installed = [name for name in ("onnxruntime", "onnxruntime-gpu") if _is_installed(name)]
    if len(installed) == 2:
        raise DependencyError(
            "both onnxruntime and onnxruntime-gpu are installed and overwrite each other. Run "
            f"pip uninstall onnxruntime onnxruntime-gpu, then {install_command('cpu')} or {install_command('gpu')}"
        )
    if not installed:
        raise DependencyError(
            f"ONNX Runtime is not installed. Run {install_command('cpu')}, or {install_command('gpu')}"
        )


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
