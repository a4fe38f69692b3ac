"""ONNX with fp16 weights and arithmetic; inputs and outputs stay fp32."""

from __future__ import annotations

from pathlib import Path

from edgekit.artifact.store import read_artifact
from edgekit.judge.tolerance import FP16
from edgekit.onnxgraph import fp16, save
from edgekit.runtime.ort import OrtRuntime
from edgekit.runtime.protocol import Runtime
from edgekit.target import Exported, Job, Need, Target

ENTRY = "model.onnx"


def export(source: Path, out: Path, job: Job) -> Exported:
    """ONNX artifact -> model.onnx in fp16."""
    import onnx

    job.progress(0.3, "converting to fp16")
    graph, clamped = fp16.convert(onnx.load(source / ENTRY))
    job.progress(0.8, "checking the graph")
    save.save(graph, out / ENTRY)
    axes = read_artifact(source, check=False).axes
    notes = (f"{clamped} weights lie beyond fp16's range and were clamped to it",) if clamped else ()
    return Exported(precision="fp16", entry=ENTRY, dynamic=tuple(n for n, a in axes.items() if a.dynamic), notes=notes)


def load(artifact: Path, place: str) -> Runtime:
    """Run it in ONNX Runtime, which computes fp16 nodes without a kernel in fp32."""
    return OrtRuntime(artifact / ENTRY)


TARGET = Target(
    summary="ONNX, fp16 weights, fp32 inputs and outputs",
    source="onnx",
    export=export,
    load=load,
    tolerance={"": FP16},
    needs=(Need("onnxruntime", "cpu"),),
    groups=("onnx-all",),
)
