"""ONNX with fp16 weights and arithmetic; inputs and outputs stay fp32."""

from __future__ import annotations

from pathlib import Path

from edgekit.runtime.ort import OrtRuntime
from edgekit.target import FP16, ExportResult, Job, Need, Place, Runtime, SourceRequirements, Target, TargetDescription
from edgekit_targets.onnx.passes import fp16
from edgekit_targets.onnx.passes.graph import save_graph

ENTRY = "model.onnx"


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Export the ONNX artifact to model.onnx in fp16."""
    import onnx

    job.progress(0.3, "converting to fp16")
    graph, clamped = fp16.convert(onnx.load(job.entry))
    job.progress(0.8, "checking the graph")
    save_graph(graph, out / ENTRY)
    notes = (f"{clamped} weights lie beyond fp16's range and were clamped to it",) if clamped else ()
    return ExportResult(precision="fp16", entry=ENTRY, dynamic=job.dynamic, notes=notes)


def load(artifact: Path, place: Place) -> Runtime:
    """Open it in ONNX Runtime, which computes fp16 nodes without a kernel in fp32."""
    return OrtRuntime(artifact / ENTRY)


TARGET = Target(
    summary="ONNX, fp16 weights, fp32 inputs and outputs",
    about=TargetDescription(
        use_case="half the size; GPUs and WebGPU",
        proved_by="ONNX Runtime on the CPU, which computes in fp32 where it has no fp16 kernel",
        not_covered="fp16 arithmetic of a GPU",
    ),
    reads=SourceRequirements(fixed=True),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP16),),
    needs=(Need("onnxruntime", "cpu"),),
    groups=("onnx-all",),
)
