"""ExecuTorch (`.pte`) with XNNPACK, fp32: PyTorch's runtime for phones and edge boxes, the successor of PyTorch Mobile.

XNNPACK runs the matrix work. What it lacks (top-K, gather, layer norm) runs in ExecuTorch's own kernels. An app links
them as `optimized_native_cpu_ops_lib` or with the `executorch-android` package.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.model.folder import load_model
from edgekit.model.program import load_program
from edgekit.target import FP16, FP32_DELEGATED, ExportResult, Job, Need, Place, Precision, Target, TargetDescription
from edgekit_targets.executorch import lower


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the captured program to `model.pte`.

    Raises:
        DependencyError: If this host cannot lower for the delegate.
        ExportError: If ExecuTorch cannot lower the program.
    """
    backend = job.get(lower.BACKEND)
    delegate = lower.delegate(backend)
    spec = load_model(job.model)
    axes = lower.dynamic_axes(spec, job.get(lower.DYNAMIC))
    job.progress(0.1, "fixing the axes that do not stay dynamic")
    exported = lower.prepare_program(load_program(source), spec, axes, rewrite=backend == lower.XNNPACK)
    job.progress(0.3, f"lowering to ExecuTorch and {delegate.words}")
    lowered = lower.lower(spec, exported, [delegate.partitioner], delegate.words)
    (out / lower.ENTRY).write_bytes(lower.stable_identifiers(lowered.data))
    precision: Precision = "fp16" if backend == lower.COREML else "fp32"
    return ExportResult(precision=precision, entry=lower.ENTRY, dynamic=axes, notes=lowered.notes())


TARGET = Target(
    summary="ExecuTorch with XNNPACK, fp32; or with Vulkan or Core ML",
    about=TargetDescription(
        use_case="new Android apps",
        proved_by="ExecuTorch's own runtime with XNNPACK on this processor",
        not_covered="phones' processors; the delegates Vulkan and Core ML",
        audience="android",
    ),
    source="program",
    export=export,
    load=lower.load,
    places=(Place(name="cpu", tolerance=FP32_DELEGATED, limits={"fp16": FP16}),),
    needs=(Need("executorch", "executorch"),),
    groups=("mobile",),
    options=(lower.DYNAMIC, lower.BACKEND),
)
