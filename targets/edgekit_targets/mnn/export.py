"""MNN: one `.mnn` file for Android, iOS and boards, with the axes that ONNX has open."""

from __future__ import annotations

from pathlib import Path

from edgekit.target import FP16, FP32_DELEGATED, About, Exported, Job, Need, Option, Place, Reads, Target
from edgekit_targets.mnn import convert as convert_module
from edgekit_targets.mnn.runtime import CPU

PRECISION = Option(
    name="precision", default="fp32", choices=("fp32", "fp16"), help="precision in which weights are stored"
)


def export(source: Path, out: Path, job: Job) -> Exported:
    """ONNX artifact -> model.mnn.

    Raises:
        ExportError: If MNN cannot convert the graph; the message names its operators.
    """
    half = job.get(PRECISION) == "fp16"
    notes = convert_module.write(out, job, ["--fp16"] if half else [])
    return Exported(precision="fp16" if half else "fp32", entry=convert_module.ENTRY, dynamic=job.dynamic, notes=notes)


TARGET = Target(
    summary="MNN, fp32 or fp16 weights, dynamic batch and size",
    about=About(
        choose_for="apps and boards that use MNN",
        proved_by="MNN on the CPU with fp32 arithmetic",
        not_proved="ARM kernels, GPUs, NPUs and fp16 arithmetic",
        audience="none",  # it has no published Android library, and servers have quicker runtimes
    ),
    reads=Reads(fixed=True),
    source="onnx",
    export=export,
    load=convert_module.load,
    places=(Place(name=CPU, tolerance=FP32_DELEGATED, limits={"fp16": FP16}),),
    needs=(Need("MNN", "mnn"),),
    options=(PRECISION,),
)
