"""ONNX with weights in fp16; arithmetic is in fp32, or on request in fp16. Inputs and outputs stay fp32.

On processors fp16 arithmetic is slower than fp32's, and on WebGPU products add up in fp16: on an H200 relevance of
arr-coc-tiny was off by up to 0.027 (limit 0.01). It pays on CUDA, whose products add up in fp32.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.target import FP16, ExportResult, Job, Need, Option, Place, SourceRequirements, Target, TargetDescription
from edgekit_targets.onnx.export import ENTRY, load
from edgekit_targets.onnx.passes import fp16
from edgekit_targets.onnx.passes.graph import save_graph
from edgekit_targets.onnx.passes.patterns import log_softmax_by_exponentials
from edgekit_targets.onnx.passes.weight_only import halve_weights

ARITHMETIC = Option(
    name="arithmetic",
    default="fp32",
    help="fp16 is faster on CUDA, slower on processors, and less exact on WebGPU",
    choices=("fp32", "fp16"),
)


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Export the ONNX artifact to model.onnx with weights in fp16."""
    import onnx

    job.progress(0.3, "converting to fp16")
    graph = onnx.load(job.entry)
    notes: tuple[str, ...] = ()
    if job.get(ARITHMETIC) == "fp16":
        graph, clamped = fp16.convert(graph)
        notes = (f"{clamped} weights lie beyond fp16's range and were clamped to it",) if clamped else ()
    else:
        graph = halve_weights(log_softmax_by_exponentials(graph))
    job.progress(0.8, "checking the graph")
    save_graph(graph, out / ENTRY)
    return ExportResult(precision="fp16", entry=ENTRY, dynamic=job.dynamic, notes=notes)


TARGET = Target(
    summary="ONNX, weights in fp16",
    about=TargetDescription(
        use_case="half the size at fp32's speed; WebGPU",
        proved_by="ONNX Runtime on the CPU",
        not_covered="a GPU's own arithmetic",
    ),
    reads=SourceRequirements(fixed=True),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP16),),
    needs=(Need("onnxruntime", "cpu"),),
    groups=("onnx-all",),
    options=(ARITHMETIC,),
)
