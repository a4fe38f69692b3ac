"""TorchScript (`.pt`) for C++ servers and LibTorch: scripted or proved, frozen, with dynamic axes.

Freezing folds what is constant (https://pytorch.org/docs/stable/generated/torch.jit.freeze.html). PyTorch keeps
TorchScript working and develops torch.export instead; for new phones and edge boxes, choose `executorch`.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.model.folder import load_model
from edgekit.storage import files as archive
from edgekit.target import FP32, About, Exported, Job, Place, Runtime, Target
from edgekit_targets.torchscript.compile import compiled, quiet
from edgekit_targets.torchscript.runtime import TorchScriptRuntime

if TYPE_CHECKING:
    import torch

ENTRY = "model.pt"


def export(source: Path, out: Path, job: Job) -> Exported:
    """Model folder -> model.pt."""
    import torch

    spec = load_model(source)
    job.progress(0.1, "compiling the module to TorchScript and proving it")
    made = compiled(spec, _freeze)
    job.progress(0.9, "saving")
    saved = io.BytesIO()
    with quiet():
        torch.jit.save(made.module, saved)
    (out / ENTRY).write_bytes(archive.rewrite(saved.getvalue(), code=True))
    notes = (*made.notes, "frozen: constants are folded, batch norms are folded into convolutions")
    return Exported(precision="fp32", entry=ENTRY, dynamic=made.dynamic, notes=notes)


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in PyTorch's TorchScript interpreter."""
    archive.require_whole(artifact / ENTRY)
    return TorchScriptRuntime(artifact, ENTRY)


def _freeze(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    import torch

    return torch.jit.freeze(module.eval())  # type: ignore[no-any-return]  # freeze is untyped


TARGET = Target(
    summary="TorchScript for C++ servers, fp32",
    about=About(
        choose_for="C++ servers with LibTorch",
        proved_by="PyTorch on the CPU",
        not_proved="GPUs, versions of LibTorch other than the installed PyTorch's",
    ),
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32),),
)
