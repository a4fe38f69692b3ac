"""PyTorch Mobile (`.ptl`): the lite interpreter's format.

PyTorch Mobile is no longer developed. It is for apps that ship it already. New apps should use `executorch`.

Where this PyTorch has XNNPACK, `optimize_for_mobile` packs the weights for it. Runtimes 1.10 to 1.13, which read
bytecode version 7, get no file, since they lack `scaled_dot_product_attention`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.model.folder import load_model
from edgekit.storage import files as archive
from edgekit.target import FP32, ExportResult, Job, Place, Runtime, Target, TargetDescription
from edgekit_targets.torchscript.compile import compile_module, quiet
from edgekit_targets.torchscript.export import TorchScriptRuntime

if TYPE_CHECKING:
    import torch

ENTRY = "model.ptl"
OPERATORS = "operators.yaml"
WITH_XNNPACK = "optimize_for_mobile was run: weights are packed for XNNPACK"
WITHOUT_XNNPACK = (
    "this PyTorch has no XNNPACK, so batch norms were folded and dropout removed without optimize_for_mobile"
)


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the model folder to `model.ptl` and `operators.yaml`."""
    import torch.backends.xnnpack

    spec = load_model(source)
    job.progress(0.1, "compiling the module to TorchScript and proving it")
    script = compile_module(spec, _fold)
    job.progress(0.7, "writing bytecode")
    module, passes = script.module, WITHOUT_XNNPACK
    # Made when the module is imported.
    if torch.backends.xnnpack.enabled:  # type: ignore[attr-defined]
        from torch.utils.mobile_optimizer import optimize_for_mobile

        # All passes of mobile_optimizer. Without XNNPACK it asserts, whatever the list of passes.
        module, passes = optimize_for_mobile(module), WITH_XNNPACK
    with quiet():
        (out / ENTRY).write_bytes(archive.rewrite(module._save_to_buffer_for_lite_interpreter(), code=False))
    # The file is proved in the lite interpreter.
    path = out / ENTRY
    from torch.jit.mobile import (
        _get_model_bytecode_version,
        _get_model_ops_and_info,
        _load_for_lite_interpreter,
    )

    with quiet():
        loaded = _load_for_lite_interpreter(str(path))  # type: ignore[no-untyped-call]
    script.proof.check(loaded, script.dynamic)
    version = int(_get_model_bytecode_version(str(path)))
    operators = sorted(_get_model_ops_and_info(str(path)))  # type: ignore[no-untyped-call]
    (out / OPERATORS).write_text("".join(f"- {name}\n" for name in operators))
    notes = (
        *script.notes,
        passes,
        f"bytecode version {version}",
        f"{len(operators)} operators, listed in '{OPERATORS}' for reduced builds: {', '.join(operators)}",
    )
    return ExportResult(precision="fp32", entry=ENTRY, dynamic=script.dynamic, notes=notes)


def load(artifact: Path, place: Place) -> Runtime:
    """Load the artifact in PyTorch's lite interpreter, which phones have."""
    archive.require_whole(artifact / ENTRY)
    return TorchScriptRuntime(artifact, ENTRY, lite=True)


def _fold(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Return the passes of mobile_optimizer that need no XNNPACK: folded batch norms, removed dropout."""
    import torch

    folded = torch._C._jit_pass_fold_convbn(module.eval()._c)
    torch._C._jit_pass_remove_dropout(folded)
    wrapped: torch.jit.ScriptModule = torch.jit._recursive.wrap_cpp_module(folded)  # type: ignore[no-untyped-call]
    return wrapped


TARGET = Target(
    summary="PyTorch Mobile's lite interpreter, fp32",
    about=TargetDescription(
        use_case="apps that ship PyTorch Mobile already",
        proved_by="PyTorch's lite interpreter on this processor",
        not_covered="phones' processors, and XNNPACK where this build of PyTorch lacks it",
        audience="android",
        successor="executorch",
    ),
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32),),
    groups=("mobile",),
)
