"""ExecuTorch in this process: its own C++ runtime behind Python bindings, with XNNPACK."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import numpy as np

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, NotVerifiedHere
from edgekit.model.spec import Array
from edgekit.runtime import input_shapes
from edgekit.runtime.threads import threads

METHOD = "forward"
IDENTIFIER = slice(4, 8)
"""Where a flatbuffer has its file identifier; ExecuTorch's begins with "ET"
(https://github.com/pytorch/executorch/blob/main/schema/program.fbs)."""


class _Method(Protocol):
    def execute(self, inputs: object) -> object: ...


class ExecutorchRuntime:
    """A `.pte` file.

    A damaged file can end the process: the pipeline checks hashes first and runs this in a worker.

    Args:
        folder: The artifact; its manifest names inputs, outputs and fixed sizes.
        entry: The file in it.

    Raises:
        NotVerifiedHere: If this build of ExecuTorch has no XNNPACK.
        ArtifactError: If the runtime refuses the file.
    """

    def __init__(self, folder: Path, entry: str) -> None:
        self._manifest = read_artifact(folder)
        self._method = _load(folder / entry)

    @property
    def device(self) -> str:
        """Library, version, delegate and threads, in words."""
        return f"ExecuTorch {version('executorch')}, XNNPACK, {threads()} threads"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch; the answer is copied, since the runtime writes the next one into the same memory.

        Raises:
            UsageError: If a size that the artifact has fixed differs.
            ArtifactError: If the runtime fails.
        """
        import torch

        input_shapes.require_shapes(self._manifest, inputs)
        arguments = [torch.from_numpy(np.array(inputs[i.name], order="C")) for i in self._manifest.inputs]
        try:
            values = self._method.execute(arguments)
        except RuntimeError as error:
            raise ArtifactError(f"ExecuTorch failed: {str(error).strip().splitlines()[0]}") from error
        named = zip(self._manifest.outputs, values, strict=True)  # type: ignore[call-overload]  # a list of tensors
        return {output.name: value.numpy().copy() for output, value in named}

    def close(self) -> None:
        """Free the program and its memory."""
        del self._method


def _load(path: Path) -> _Method:
    with path.open("rb") as stream:
        if not stream.read(8)[IDENTIFIER].startswith(b"ET"):
            raise ArtifactError(f"'{path}' is not an ExecuTorch program: export again")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing it registers deprecated helpers of PyTorch
        from executorch.extension.pybindings import portable_lib
        from executorch.runtime import Runtime, Verification

    runtime = Runtime.get()
    if not runtime.backend_registry.is_available("XnnpackBackend"):
        raise NotVerifiedHere("this build of ExecuTorch has no XNNPACK: pip install 'edgekit[executorch]'")
    portable_lib._unsafe_reset_threadpool(threads())
    try:
        program = runtime.load_program(path, verification=Verification.InternalConsistency)
        method: _Method | None = program.load_method(METHOD)
    except (RuntimeError, ValueError) as error:
        raise ArtifactError(f"ExecuTorch refuses '{path}': {str(error).strip().splitlines()[0]}") from error
    if method is None:
        raise ArtifactError(f"'{path}' has no method '{METHOD}': export again")
    return method
