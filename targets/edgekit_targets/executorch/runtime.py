"""ExecuTorch in this process: its own C++ runtime behind Python bindings, with XNNPACK."""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, NotVerifiedHere, reason
from edgekit.model.spec import Array
from edgekit.runtime import logs
from edgekit.runtime.input_shapes import arguments
from edgekit.runtime.processor import threads

METHOD = "forward"
IDENTIFIER = slice(4, 8)
"""Position of a flatbuffer's file identifier. ExecuTorch's begins with "ET"
(https://github.com/pytorch/executorch/blob/main/schema/program.fbs)."""


XNNPACK, VULKAN, COREML = "XnnpackBackend", "VulkanBackend", "CoreMLBackend"
DELEGATES = {VULKAN: "Vulkan", COREML: "Core ML", XNNPACK: "XNNPACK"}
"""A backend's name in a file and in ExecuTorch's runtime -> its name in sentences."""
WAY_OUT = "Write that part of the model with other operators, export with dynamic=none, or export to torchscript"
_LINE = re.compile(r"^\[\w+\.cpp:\d+\] (.+)$", re.MULTILINE)
# C++ code, before the message itself.
_CHECK = re.compile(r"^Check failed \(.*?\): (?=\S)")
_OPERATOR = re.compile(r"in operator (\w+::\w+)")


class _Method(Protocol):
    def execute(self, inputs: object) -> list[Any]: ...


class ExecutorchFile:
    """A `.pte` file of any origin: it names no inputs and outputs, so both are called by their number.

    A damaged file can end the process, so it is opened in a worker.

    Raises:
        NotVerifiedHere: If this build of ExecuTorch lacks the delegate that the file was lowered for.
        ArtifactError: If the runtime refuses the file.
    """

    def __init__(self, path: Path) -> None:
        self._delegate = _delegate(path)
        self._method = _load(path, self._delegate)

    @property
    def device(self) -> str:
        """Library, version, delegate and threads."""
        return f"ExecuTorch {version('executorch')}, {DELEGATES[self._delegate]}, {threads()} threads"

    def inputs(self) -> None:
        """Return None: a program's sizes are upper limits, and it has no names."""

    def outputs(self) -> None:
        """Return None, likewise."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch. They are copied, since the runtime reuses the memory."""
        import torch

        feed = [torch.from_numpy(array.copy()) for array in inputs.values()]
        feed = [tensor if tensor.numel() else torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in feed]
        try:
            values = self._method.execute(feed)
        except RuntimeError as error:
            log = logs.caught(lambda: self._method.execute(feed))
            raise ArtifactError(f"ExecuTorch failed{_reason(log, error)}") from error
        return {str(number): value.numpy().copy() for number, value in enumerate(values)}

    def close(self) -> None:
        """Free the program and its memory."""
        del self._method


class ExecutorchRuntime(ExecutorchFile):
    """A `.pte` file: the entry of an artifact whose manifest names inputs, outputs and fixed sizes."""

    def __init__(self, folder: Path, entry: str) -> None:
        self._manifest = read_artifact(folder)
        super().__init__(folder / entry)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch."""
        values = super().run(arguments(self._manifest, inputs)).values()
        return {output.name: value for output, value in zip(self._manifest.outputs, values, strict=True)}


def _reason(log: str, error: Exception) -> str:
    """Return the operator and the first of the runtime's own lines, which its error omits, and what to do next.

    Args:
        log: The runtime's lines on standard error: `[file.cpp:line] text`, one fact per line.
        error: The raised error.
    """
    lines = _LINE.findall(log)
    operator = next((m[1] for line in lines if (m := _OPERATOR.search(line))), "")
    delegated = any("CALL_DELEGATE" in line for line in lines)
    where = f" in the operator '{operator}'" if operator else " in XNNPACK" if delegated else ""
    first = (lines[0] if lines else reason(error)).rstrip(" .:")
    first = _CHECK.sub("", first)
    return f"{where}: {first}. {WAY_OUT}"


def _delegate(path: Path) -> str:
    """Return the backend that a file names, or XNNPACK if it names none, since then nothing was delegated."""
    with path.open("rb") as stream:
        if not stream.read(8)[IDENTIFIER].startswith(b"ET"):
            raise ArtifactError(f"'{path}' is not an ExecuTorch program. Export it again")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return next((name for name in DELEGATES if content.find(name.encode()) >= 0), XNNPACK)


def _load(path: Path, backend: str) -> _Method:
    # Its import registers deprecated helpers of PyTorch.
    with logs.silent():
        from executorch.extension.pybindings import portable_lib
        from executorch.runtime import Runtime, Verification

    runtime = Runtime.get()
    registry = runtime.backend_registry
    if not registry.is_available(backend):
        available = ", ".join(sorted(registry.registered_backend_names)) or "none"
        raise NotVerifiedHere(f"this build of ExecuTorch lacks {backend}. Available: {available}")
    # It prints each file that it looks for.
    logs.caught(lambda: portable_lib._unsafe_reset_threadpool(threads()))
    try:
        program = runtime.load_program(path, verification=Verification.InternalConsistency)
        method: _Method | None = program.load_method(METHOD)
    except (RuntimeError, ValueError) as error:
        raise ArtifactError(f"ExecuTorch refuses '{path}': {reason(error)}") from error
    if method is None:
        raise ArtifactError(f"'{path}' has no method '{METHOD}'. Export it again")
    return method
