"""PyTorch Mobile (`.ptl`): the lite interpreter's format, with a version 7 beside it for the runtimes in the field.

PyTorch Mobile is no longer developed; it is for apps that ship it already. New apps: choose `executorch`.

Where this PyTorch has XNNPACK, `optimize_for_mobile` packs the weights for it. Version 7 is made from the module before
that, whose weights are attributes: freezing and packing turn them into constants, which the backport writes twice and
names by their addresses in memory.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ExportError, reason
from edgekit.model.folder import load_model
from edgekit.model.spec import ModelSpec
from edgekit.runtime.torchscript import TorchScriptRuntime
from edgekit.target import FP32, About, Exported, Job, Place, Runtime, Target
from edgekit_targets._torchscript import archive
from edgekit_targets._torchscript.compile import Compiled, compiled, quiet

if TYPE_CHECKING:
    import torch

ENTRY = "model.ptl"
OLDER = "model.v7.ptl"
OLDER_VERSION = 7
"""Bytecode that pytorch_android_lite 1.10 to 1.13 read; "version 8" is the most reported failure of `.ptl` files
(https://github.com/pytorch/android-demo-app/issues/219)."""
OPERATORS = "operators.yaml"


def export(source: Path, out: Path, job: Job) -> Exported:
    """Model folder -> model.ptl, model.v7.ptl and operators.yaml."""
    spec = load_model(source)
    job.progress(0.1, "compiling the module to TorchScript and proving it")
    made = compiled(spec, _folded)
    job.progress(0.7, "writing bytecode")
    with quiet():
        plain = made.module._save_to_buffer_for_lite_interpreter()
        packed = _packed(made.module)._save_to_buffer_for_lite_interpreter() if _xnnpack() else plain
    (out / ENTRY).write_bytes(archive.rewrite(packed, code=False))
    version = _prove(made, out / ENTRY)
    (out / OLDER).write_bytes(archive.rewrite(_backported(spec, plain), code=False))
    job.progress(0.9, "proving version 7")
    _prove(made, out / OLDER)
    operators = _operators(out / ENTRY)
    (out / OPERATORS).write_text("".join(f"- {name}\n" for name in operators))
    notes = (
        *made.notes,
        _passes(),
        f"bytecode version {version}; '{OLDER}' is the same in version {OLDER_VERSION}, proved on its own",
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


def _backported(spec: ModelSpec, saved: bytes) -> bytes:
    from torch.jit.mobile import _backport_for_mobile_to_buffer

    try:
        return bytes(_backport_for_mobile_to_buffer(io.BytesIO(saved), OLDER_VERSION))  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ExportError(
            f"'{spec.name}' cannot be written in bytecode version {OLDER_VERSION}: {reason(error)}"
        ) from error


def _prove(made: Compiled, path: Path) -> int:
    """Prove a file in the lite interpreter; returns its bytecode version."""
    from torch.jit.mobile import _get_model_bytecode_version, _load_for_lite_interpreter

    with quiet():
        loaded = _load_for_lite_interpreter(str(path))  # type: ignore[no-untyped-call]
    made.proof.check(loaded, made.dynamic)
    return int(_get_model_bytecode_version(str(path)))


def _operators(path: Path) -> list[str]:
    from torch.jit.mobile import _get_model_ops_and_info

    return sorted(_get_model_ops_and_info(str(path)))  # type: ignore[no-untyped-call]


TARGET = Target(
    summary="PyTorch Mobile's lite interpreter, fp32, bytecode 8 and 7",
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
