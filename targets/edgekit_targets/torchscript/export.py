"""TorchScript (`.pt`) for C++ servers and LibTorch: scripted or proved, frozen, with dynamic axes.

Freezing folds constants (https://pytorch.org/docs/stable/generated/torch.jit.freeze.html). PyTorch keeps TorchScript
working and develops torch.export instead. For new phones and edge boxes, choose `executorch`.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, reason
from edgekit.model.folder import load_model
from edgekit.model.spec import Array
from edgekit.runtime.input_shapes import arguments
from edgekit.runtime.processor import threads
from edgekit.storage import files as archive
from edgekit.target import FP32, ExportResult, Job, Place, Runtime, Target, TargetDescription
from edgekit_targets.torchscript.compile import compile_module, quiet

ENTRY = "model.pt"


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the model folder to `model.pt`."""
    import torch

    spec = load_model(source)
    job.progress(0.1, "compiling the module to TorchScript and proving it")
    script = compile_module(spec, lambda module: torch.jit.freeze(module.eval()))
    job.progress(0.9, "saving")
    saved = io.BytesIO()
    with quiet():
        torch.jit.save(script.module, saved)
    (out / ENTRY).write_bytes(archive.rewrite(saved.getvalue(), code=True))
    notes = (*script.notes, "frozen: constants are folded, batch norms are folded into convolutions")
    return ExportResult(precision="fp32", entry=ENTRY, dynamic=script.dynamic, notes=notes)


def load(artifact: Path, place: Place) -> Runtime:
    """Load the artifact in PyTorch's TorchScript interpreter."""
    archive.require_whole(artifact / ENTRY)
    return TorchScriptRuntime(artifact, ENTRY)


class TorchScriptFile:
    """A TorchScript file of any origin, `.ptl` for the lite interpreter: inputs and outputs are called by their number.

    Raises:
        ArtifactError: If the interpreter refuses the file.
    """

    def __init__(self, path: Path, lite: bool = False) -> None:
        import torch
        from torch.jit.mobile import _load_for_lite_interpreter

        self._lite = lite
        torch.set_num_threads(threads())
        try:
            load: Callable[[str], Callable[..., object]] = _load_for_lite_interpreter if lite else torch.jit.load
            with warnings.catch_warnings():
                # Both are deprecated, which the docs of the targets say. A user of the artifact cannot change it.
                warnings.filterwarnings("ignore", message=r".*(torch\.jit|Lite Interp)")
                self._module = load(str(path))
        except Exception as error:
            raise ArtifactError(f"PyTorch refuses '{path}': {reason(error)}") from error

    @property
    def device(self) -> str:
        """Library, version, interpreter and threads."""
        import torch

        kind = "lite interpreter" if self._lite else "TorchScript interpreter"
        return f"PyTorch {torch.__version__} {kind}, CPU, {threads()} threads"

    def inputs(self) -> None:
        """Return None: a file declares no sizes, and callers pass inputs by position."""

    def outputs(self) -> None:
        """Return None, likewise."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch. Inputs are copied, since a module may change them in place."""
        import torch

        feed = [torch.from_numpy(array.copy()) for array in inputs.values()]
        with torch.inference_mode():
            answer = self._module(*feed)
        if isinstance(answer, dict):
            return {str(name): value.numpy() for name, value in answer.items()}
        values = answer if isinstance(answer, (tuple, list)) else (answer,)
        return {str(number): value.numpy() for number, value in enumerate(values)}

    def close(self) -> None:
        """Free the module."""
        del self._module


class TorchScriptRuntime(TorchScriptFile):
    """A `.ptl` or `.pt` file: the entry of an artifact whose manifest names inputs, outputs and fixed sizes."""

    def __init__(self, folder: Path, entry: str, lite: bool = False) -> None:
        self._manifest = read_artifact(folder)
        super().__init__(folder / entry, lite)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch."""
        values = super().run(arguments(self._manifest, inputs)).values()
        return {output.name: value for output, value in zip(self._manifest.outputs, values, strict=True)}


TARGET = Target(
    summary="TorchScript for C++ servers, fp32",
    about=TargetDescription(
        use_case="C++ servers with LibTorch",
        proved_by="PyTorch on the CPU",
        not_covered="GPUs, versions of LibTorch other than the installed PyTorch's",
    ),
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32),),
)
