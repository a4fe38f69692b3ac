"""ONNX Runtime on any provider: it opens a model with settings, runs it, and describes itself.

It needs numpy and ONNX Runtime, and is part of packs. It trusts the file: `edgekit.runtime.ort` checks one first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ArtifactError, NotVerifiedHere, RuntimeMissingError, whole_reason
from edgekit.runtime.processor import gpu_facts, processor, threads
from edgekit.runtime.protocol import FileTensor

if TYPE_CHECKING:
    from edgekit.model.spec import Array
    from edgekit.runtime.protocol import Runtime

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"
_PROVIDER = "provider."
# Names of types in ONNX Runtime that are not NumPy's.
_DTYPES = {"float": "float32", "double": "float64"}
_ENTRIES = {
    "session.record_ep_graph_assignment_info": "1",
    # Spinning threads would slow the next measurement.
    "session.force_spinning_stop": "1",
}


class OrtSession:
    """An ONNX model in ONNX Runtime.

    Args:
        model: Path of the `.onnx` file.
        settings: `provider` and its options as `provider.NAME`, `optimization` (a graph optimisation level), `threads`;
            anything else is an entry of the session's configuration, such as `session.x64quantprecision`.
        sizes: Sizes of named dimensions, if they are fixed.

    Raises:
        NotVerifiedHere: If ONNX Runtime or the provider is missing.
        ArtifactError: If ONNX Runtime refuses the model.
    """

    def __init__(
        self, model: Path, settings: Mapping[str, str] | None = None, sizes: Mapping[str, int] | None = None
    ) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise RuntimeMissingError(f"ONNX Runtime is not installed ({error})") from error
        self._model, self._settings = model, dict(settings or {})
        self._provider = self._settings.get("provider", CPU)
        self._require_provider(onnxruntime)
        try:
            self._session = self._open(onnxruntime, _options(self._settings, sizes or {}))
        except Exception as error:
            raise ArtifactError(f"ONNX Runtime refuses '{model.name}': {whole_reason(error)}") from error
        if self._session.get_providers()[0] != self._provider:
            raise RuntimeMissingError(f"{self._provider} could not start: {_lacking(self._provider)}")
        if self._provider == TENSORRT and (nodes := self.facts()) and f"nodes in {TENSORRT}" not in nodes:
            raise NotVerifiedHere(f"{TENSORRT} runs no node of '{model.name}'")
        self._names = [output.name for output in self._session.get_outputs()]
        self._way: _Bound | None = None

    memory = "cuda"
    """ONNX Runtime's name of the device in whose memory bound inputs and outputs lie."""

    @property
    def device(self) -> str:
        """Library, version, provider with its options, and threads, in words."""
        import onnxruntime

        level = self._settings.get("optimization", "")
        words = [f"ONNX Runtime {onnxruntime.__version__}", self._provider]
        words += [f"{name} {value}" for name, value in sorted(self._provider_options.items())]
        words += [level] if level else []
        words += [] if self._on_gpu else [f"{_threads(self._settings)} threads"]
        return ", ".join(words)

    @property
    def hardware(self) -> str:
        """The GPU with its driver, or the processor."""
        if not self._on_gpu:
            return processor()
        return ", driver ".join(gpu_facts("name", "driver_version")) or "unnamed GPU"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch; non-contiguous arrays are copied first."""
        feed = {name: np.asarray(array, order="C") for name, array in inputs.items()}
        return dict(zip(self._names, self._session.run(None, feed), strict=True))

    def close(self) -> None:
        """Free the session."""
        self._way = None
        del self._session

    def names(self) -> tuple[list[str], list[str]]:
        """Return the names of the inputs and of the outputs, in the graph's order."""
        return [value.name for value in self._session.get_inputs()], list(self._names)

    def inputs(self) -> tuple[FileTensor, ...]:
        """Return the graph's inputs, in its order."""
        return tuple(map(_tensor, self._session.get_inputs()))

    def outputs(self) -> tuple[FileTensor, ...]:
        """Return the graph's outputs, in its order."""
        return tuple(map(_tensor, self._session.get_outputs()))

    def facts(self) -> dict[str, str]:
        """Return the number of nodes that each provider runs, if ONNX Runtime reports it."""
        try:
            parts = self._session.get_provider_graph_assignment_info()
        except (AttributeError, RuntimeError):
            return {}
        counts: dict[str, int] = {}
        for part in parts:
            counts[part.ep_name] = counts.get(part.ep_name, 0) + len(part.get_nodes())
        return {f"nodes in {name}": str(count) for name, count in sorted(counts.items())}

    def modes(self, inputs: Mapping[str, Array]) -> Iterator[tuple[str, Callable[[], Runtime]]]:
        """Yield, on CUDA, a mode with bound buffers, and one with a captured CUDA graph, which holds one shape."""
        if self._provider == CUDA:
            yield "bound buffers", lambda: self._bind(self, inputs)
            yield "CUDA graph", lambda: self._bind(self._at_sizes(inputs, {"enable_cuda_graph": "1"}), inputs)

    def mode_answer(self) -> dict[str, Array]:
        """Return the outputs of the last bound run, from the device's memory."""
        return self._way.answer() if self._way is not None else {}

    def _require_provider(self, onnxruntime: Any) -> None:
        """Check that the provider is there, and load its libraries.

        Raises:
            NotVerifiedHere: If something is missing.
        """
        if self._provider not in onnxruntime.get_available_providers():
            raise RuntimeMissingError(f"its ONNX Runtime {onnxruntime.__version__} does not have {self._provider}")
        if self._on_gpu and hasattr(onnxruntime, "preload_dlls"):
            onnxruntime.preload_dlls()

    def _open(self, onnxruntime: Any, options: Any) -> Any:
        """Return the session of the file on the provider."""
        own = [(self._provider, self._provider_options), *([(CUDA, {})] if self._provider == TENSORRT else [])]
        return onnxruntime.InferenceSession(str(self._model), options, providers=own)

    @property
    def _on_gpu(self) -> bool:
        return self._provider in (CUDA, TENSORRT)

    @property
    def _provider_options(self) -> dict[str, str]:
        return {k.removeprefix(_PROVIDER): v for k, v in self._settings.items() if k.startswith(_PROVIDER)}

    def _at_sizes(self, inputs: Mapping[str, Array], options: Mapping[str, str]) -> OrtSession:
        """Open the file again for the sizes of these inputs, with further options of the provider."""
        shapes = {value.name: value.shape for value in self._session.get_inputs()}
        dimensions = [pair for name, array in inputs.items() for pair in zip(shapes[name], array.shape, strict=True)]
        sizes = {dimension: size for dimension, size in dimensions if isinstance(dimension, str)}
        more = {_PROVIDER + name: value for name, value in options.items()}
        return type(self)(self._model, {**self._settings, **more}, sizes)

    def _bind(self, session: OrtSession, inputs: Mapping[str, Array]) -> _Bound:
        self._way = _Bound(session, inputs, self.run(inputs))
        return self._way


class _Bound:
    """Runs with inputs and outputs in the device's memory, as in an application written for its device.

    Args:
        opened: The session.
        inputs: The inputs of each run.
        like: Outputs of these shapes and types.
    """

    def __init__(self, opened: OrtSession, inputs: Mapping[str, Array], like: Mapping[str, Array]) -> None:
        import onnxruntime

        self.device, self._opened = opened.device, opened
        self._session, self._names = opened._session, opened._names
        self._binding = self._session.io_binding()
        make, memory = onnxruntime.OrtValue.ortvalue_from_numpy, opened.memory
        self._inputs = {name: make(array, memory, 0) for name, array in inputs.items()}
        self._outputs = {name: make(like[name], memory, 0) for name in self._names}
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        for name, value in self._outputs.items():
            self._binding.bind_ortvalue_output(name, value)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the bound inputs; the outputs stay on the device."""
        self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()
        if self._opened.memory == "webgpu":
            # It waits for nothing but a read.
            min(self._outputs.values(), key=lambda value: value.tensor_size_in_bytes()).numpy()
        return {}

    def answer(self) -> dict[str, Array]:
        """Return the outputs of the last run."""
        return {name: value.numpy() for name, value in self._outputs.items()}

    def close(self) -> None:
        """Do nothing: the session is freed by its owner."""


def _tensor(value: Any) -> FileTensor:
    kind = str(value.type).removeprefix("tensor(").removesuffix(")")
    return FileTensor(value.name, _DTYPES.get(kind, kind), tuple(value.shape))


def _options(settings: Mapping[str, str], sizes: Mapping[str, int]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _threads(settings)
    options.inter_op_num_threads = 1
    # Warnings about unused initializers are not for the user.
    options.log_severity_level = 3
    level = "ORT_" + settings.get("optimization", "enable_all").upper()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    own = {k: v for k, v in settings.items() if k not in ("provider", "optimization", "threads")}
    entries = {k: v for k, v in own.items() if not k.startswith(_PROVIDER)}
    for key, value in {**_ENTRIES, **entries}.items():
        options.add_session_config_entry(key, value)
    for name, size in sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    return options


def _lacking(provider: str) -> str:
    """Return the system's reason why a provider's library does not load; else a likely one."""
    import onnxruntime

    folder = Path(onnxruntime.__file__).parent / "capi"
    for name in ("shared", provider.removesuffix("ExecutionProvider").lower()):
        try:
            ctypes.CDLL(str(folder / f"libonnxruntime_providers_{name}.so"), ctypes.RTLD_GLOBAL)
        except OSError as error:
            file, _, why = str(error).partition(": ")
            return f"{file} is missing" if why.startswith("cannot open shared object") else str(error)
    return "its libraries are too old, or the GPU is missing"


def _threads(settings: Mapping[str, str]) -> int:
    return int(settings.get("threads", "0")) or threads()
