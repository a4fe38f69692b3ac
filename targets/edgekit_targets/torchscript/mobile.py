"""PyTorch Mobile (`.ptl`): the lite interpreter's format.

PyTorch Mobile is no longer developed; it is for apps that ship it already. New apps: choose `executorch`.

Where this PyTorch has XNNPACK, `optimize_for_mobile` packs the weights for it. Runtimes 1.10 to 1.13, which read
bytecode version 7, get no file: they lack `scaled_dot_product_attention`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.model.folder import load_model
from edgekit.storage import files as archive
from edgekit.target import FP32, About, Exported, Job, Place, Runtime, Target
from edgekit_targets.torchscript.compile import compiled, quiet
from edgekit_targets.torchscript.runtime import TorchScriptRuntime

if TYPE_CHECKING:
    import torch

ENTRY = "model.ptl"
OPERATORS = "operators.yaml"


def export(source: Path, out: Path, job: Job) -> Exported:
    """Model folder -> model.ptl and operators.yaml."""
    spec = load_model(source)
    job.progress(0.1, "compiling the module to TorchScript and proving it")
    made = compiled(spec, _folded)
    job.progress(0.7, "writing bytecode")
    module = _packed(made.module) if _xnnpack() else made.module
    with quiet():
        (out / ENTRY).write_bytes(archive.rewrite(module._save_to_buffer_for_lite_interpreter(), code=False))
    # Prove a file in the lite interpreter; returns its bytecode version.
    path = out / ENTRY
    from torch.jit.mobile import _get_model_bytecode_version, _load_for_lite_interpreter

    with quiet():
        loaded = _load_for_lite_interpreter(str(path))  # type: ignore[no-untyped-call]
    made.proof.check(loaded, made.dynamic)
    version = int(_get_model_bytecode_version(str(path)))
    operators = _operators(out / ENTRY)
    (out / OPERATORS).write_text("".join(f"- {name}\n" for name in operators))
    notes = (
        *made.notes,
        _passes(),
        f"bytecode version {version}",
        f"{len(operators)} operators, listed in '{OPERATORS}' for reduced builds: {', '.join(operators)}",
    )
    return Exported(precision="fp32", entry=ENTRY, dynamic=made.dynamic, notes=notes)


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in PyTorch's lite interpreter, the one that phones have."""
    archive.require_whole(artifact / ENTRY)
    return TorchScriptRuntime(artifact, ENTRY, lite=True)


def _folded(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """The passes of mobile_optimizer that need no XNNPACK: batch norms into convolutions, dropout away."""
    import torch

    folded = torch._C._jit_pass_fold_convbn(module.eval()._c)
    torch._C._jit_pass_remove_dropout(folded)
    wrapped: torch.jit.ScriptModule = torch.jit._recursive.wrap_cpp_module(folded)  # type: ignore[no-untyped-call]
    return wrapped


def _packed(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """All passes of mobile_optimizer; without XNNPACK it asserts, whatever passes are asked for."""
    from torch.utils.mobile_optimizer import optimize_for_mobile

    optimized: torch.jit.ScriptModule = optimize_for_mobile(module)
    return optimized


def _xnnpack() -> bool:
    import torch.backends.xnnpack

    return bool(torch.backends.xnnpack.enabled)  # type: ignore[attr-defined]  # made when the module is imported


def _passes() -> str:
    if _xnnpack():
        return "optimize_for_mobile was run: weights are packed for XNNPACK"
    return "this PyTorch has no XNNPACK, so batch norms were folded and dropout removed without optimize_for_mobile"


def _operators(path: Path) -> list[str]:
    from torch.jit.mobile import _get_model_ops_and_info

    return sorted(_get_model_ops_and_info(str(path)))  # type: ignore[no-untyped-call]


TARGET = Target(
    summary="PyTorch Mobile's lite interpreter, fp32",
    about=About(
        choose_for="apps that ship PyTorch Mobile already",
        proved_by="PyTorch's lite interpreter on this processor",
        not_proved="phones' processors, and XNNPACK where this build of PyTorch lacks it",
        audience="android",
        successor="executorch",
    ),
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32),),
    groups=("mobile",),
)
