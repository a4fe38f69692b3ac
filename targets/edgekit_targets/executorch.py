"""ExecuTorch (`.pte`) with XNNPACK, fp32: PyTorch's runtime for phones and edge boxes, the successor of PyTorch Mobile.

XNNPACK runs the matrix work; what it lacks (top-K, gather, layer norm) runs in ExecuTorch's own kernels, which an app
links as `optimized_native_cpu_ops_lib` or with the `executorch-android` package.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.model.folder import load_model
from edgekit.model.program import load_program
from edgekit.runtime.executorch import ExecutorchRuntime
from edgekit.target import FP32_DELEGATED, About, Exported, Job, Need, Place, Runtime, Target
from edgekit_targets import _executorch

ENTRY = "model.pte"


def export(source: Path, out: Path, job: Job) -> Exported:
    """Captured program -> model.pte."""
    with _executorch.quiet():
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    spec = load_model(job.model)
    axes = _executorch.kept(spec, job.get(_executorch.DYNAMIC))
    job.progress(0.1, "fixing the axes that do not stay dynamic")
    exported = _executorch.fixed(load_program(source), spec, axes)
    job.progress(0.3, "lowering to ExecuTorch and XNNPACK")
    lowered = _executorch.lowered(spec, exported, [XnnpackPartitioner()])
    (out / ENTRY).write_bytes(lowered.data)
    return Exported(precision="fp32", entry=ENTRY, dynamic=axes, notes=lowered.notes())


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in ExecuTorch's own runtime."""
    return ExecutorchRuntime(artifact, ENTRY)


TARGET = Target(
    summary="ExecuTorch with XNNPACK, fp32",
    about=About(
        choose_for="new Android apps",
        proved_by="ExecuTorch's own runtime with XNNPACK on this processor",
        not_proved="phones' processors, GPUs and NPUs",
        audience="android",
    ),
    source="program",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32_DELEGATED),),
    needs=(Need("executorch", "executorch"),),
    groups=("mobile",),
    options=(_executorch.DYNAMIC,),
)
