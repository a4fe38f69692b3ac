"""ONNX Runtime in this process, on the CPU provider."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import ArtifactError, DependencyError, ModelError
from edgekit.model.onnx_check import check_onnx
from edgekit.model.spec import Array
from edgekit.runtime.threads import threads

if TYPE_CHECKING:
    import onnx
    import onnxruntime

PROVIDER = "CPUExecutionProvider"


class OrtRuntime:
    """An ONNX model in ONNX Runtime.

    Args:
        model: Path of the `.onnx` file.
        settings: Session configuration entries, for example `session.x64quantprecision`.
        beside: Name of the file in the same folder that holds its weights, where it does not hold them itself.

    Raises:
        DependencyError: If not exactly one build of ONNX Runtime is installed.
        ArtifactError: If ONNX Runtime refuses the model.
    """

    def __init__(self, model: Path, settings: Mapping[str, str] | None = None, beside: str = "") -> None:
        self._session = _open(model, settings or {}, beside)
        self._names = [output.name for output in self._session.get_outputs()]

    @property
    def device(self) -> str:
        """Library, version, provider and threads, in words."""
        import onnxruntime

        return f"ONNX Runtime {onnxruntime.__version__}, {PROVIDER}, {threads()} threads"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch; non-contiguous arrays are copied first."""
        feed = {name: np.asarray(array, order="C") for name, array in inputs.items()}
        return dict(zip(self._names, self._session.run(None, feed), strict=True))

    def close(self) -> None:
        """Free the session."""
        del self._session


def tapped(graph: onnx.ModelProto, tensors: Sequence[str]) -> OrtRuntime:
    """A graph in ONNX Runtime that also answers with the named inner tensors; these are not fused away."""
    import onnx

    named = {value.name for value in (*graph.graph.input, *graph.graph.output)}
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors if name not in named)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        path = Path(folder) / "tapped.onnx"
        path.write_bytes(copy.SerializeToString())
        return OrtRuntime(path)


def require_onnxruntime() -> None:
    """See that exactly one build of ONNX Runtime is installed: two overwrite each other's files.

    Raises:
        DependencyError: If there is none, or both are there.
    """
    found = [name for name in ("onnxruntime", "onnxruntime-gpu") if _installed(name)]
    if len(found) == 2:
        raise DependencyError(
            "both onnxruntime and onnxruntime-gpu are installed and overwrite each other: "
            "pip uninstall onnxruntime onnxruntime-gpu, then pip install 'edgekit[cpu]' or 'edgekit[gpu]'"
        )
    if not found:
        raise DependencyError("ONNX Runtime is not installed: pip install 'edgekit[cpu]' or 'edgekit[gpu]'")


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _open(model: Path, settings: Mapping[str, str], beside: str) -> onnxruntime.InferenceSession:
    require_onnxruntime()
    import onnxruntime

    try:
        check_onnx(model, beside)
    except ModelError as error:
        raise ArtifactError(str(error)) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # warnings about unused initializers are not the user's
    # Threads that spin on after a run would slow whoever is measured next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    for key, value in settings.items():
        options.add_session_config_entry(key, value)
    try:
        return onnxruntime.InferenceSession(str(model), options, providers=[PROVIDER])
    except Exception as error:
        raise ArtifactError(f"ONNX Runtime refuses '{model.name}': {str(error).splitlines()[0]}") from error
