"""MNN in this process, on its CPU backend: a `.mnn` file, which takes the shapes of its inputs.

MNN has no 64-bit numbers and no booleans. Inputs get the dtypes that the file declares, and answers come back in the
dtypes that the manifest declares. The library prints with C's `printf` when it opens or refuses a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, RuntimeMissingError, reason
from edgekit.model.spec import Array
from edgekit.runtime.input_shapes import arguments, require_names
from edgekit.runtime.processor import threads

CPU = "mnn-cpu"
"""The name of this place."""
PRECISION = "high"
"""Precision of the arithmetic: fp32 on every processor. MNN's "low" is fp16 on processors such as a phone's."""
CHATTER = ("The device supports:", "MNN use ", "CPU Group:")
"""Starts of lines that MNN prints about every file that it opens."""
_REDIRECTED = threading.Lock()


class MnnRuntime:
    """A `.mnn` file: the entry of an artifact.

    A damaged file can end the process, so the pipeline checks hashes first and runs this in a worker.

    Raises:
        RuntimeMissingError: If MNN is not installed.
        ArtifactError: If MNN refuses the file, or its inputs and outputs differ from the manifest's.
    """

    def __init__(self, folder: Path, entry: str) -> None:
        self._manifest = read_artifact(folder)
        self._threads = threads()
        try:
            with capture_output():
                import MNN
        except ImportError as error:
            raise RuntimeMissingError(f"MNN is not installed ({error})") from error
        self._mnn = MNN
        self._module = self._open_model(folder / entry)
        facts = self._module.get_info()
        self._outputs: list[str] = facts["outputNames"]
        self._inputs = dict(zip(facts["inputNames"], (value.dtype for value in facts["inputs"]), strict=True))
        require_names(self._manifest, entry, self._inputs, self._outputs, unread=True)

    @property
    def device(self) -> str:
        """Library, version, device, arithmetic and threads."""
        return f"MNN {self._mnn.version()}, CPU, fp32, {self._threads} threads"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch. They are copied, since MNN writes the next ones into the same memory."""
        arrays = arguments(self._manifest, inputs)
        expr = self._mnn.expr
        kinds = {expr.float: np.float32, expr.int: np.int32, expr.uint8: np.uint8}
        variables = []
        for name, dtype in self._inputs.items():
            variable = expr.placeholder(list(arrays[name].shape), expr.NCHW, dtype)
            variable.write(np.asarray(arrays[name], dtype=kinds.get(dtype, np.float32), order="C"))
            variables.append(variable)
        try:
            answers = dict(zip(self._outputs, map(self._array, self._module.forward(variables)), strict=True))
        # For a shape that it cannot compute, MNN returns no variables.
        except Exception as error:
            raise ArtifactError(f"MNN failed: {reason(error)}") from error
        return {output.name: np.array(answers[output.name], dtype=output.dtype) for output in self._manifest.outputs}

    def close(self) -> None:
        """Free the model."""
        del self._module

    def _open_model(self, path: Path) -> Any:
        nn = self._mnn.nn
        with capture_output() as log:
            try:
                config = {"backend": 0, "precision": PRECISION, "numThread": self._threads}
                manager = nn.create_runtime_manager((config,))
                # Without names MNN opens all inputs and outputs of the file.
                return nn.load_module_from_file(
                    str(path), [], [], runtime_manager=manager, dynamic=False, shape_mutable=True
                )
            # MNN raises a SystemError without a reason.
            except Exception as error:
                failed = error
        why = next((line for line in reversed(log) if not line.startswith(CHATTER)), type(failed).__name__)
        raise ArtifactError(f"MNN refuses '{path.name}': {why}") from failed

    def _array(self, variable: Any) -> Array:
        expr = self._mnn.expr
        plain = expr.convert(variable, expr.NCHW) if variable.data_format == expr.NC4HW4 else variable
        answer: Array = plain.read()
        return answer.reshape(plain.shape)


@contextlib.contextmanager
def capture_output() -> Iterator[list[str]]:
    """Catch the lines that the process writes to its standard output meanwhile, also those of C code.

    The list holds them afterwards. It holds lines of other threads as well.
    """
    lines: list[str] = []
    with _REDIRECTED, tempfile.TemporaryFile("w+", errors="replace") as log:
        sys.stdout.flush()
        _flush()
        before = os.dup(1)
        os.dup2(log.fileno(), 1)
        try:
            yield lines
        finally:
            _flush()
            os.dup2(before, 1)
            os.close(before)
            log.seek(0)
            lines += [line.strip() for line in log if line.strip()]


def _flush() -> None:
    """Flush C's streams, since `printf` keeps lines back where its output is not a terminal."""
    ctypes.CDLL(None).fflush(None)
