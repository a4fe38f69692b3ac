"""OpenVINO's intermediate representation (IR): `model.xml` and `model.bin`, for Intel's processors, GPUs and NPUs.

It is made of the ONNX artifact and keeps its dynamic axes. Weights are stored in fp32 or fp16; the arithmetic is the
plugin's choice on a user's machine (bf16 where the processor has it), and fp32 where the artifact is judged.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.model.folder import load_model
from edgekit.target import FP16, FP32_DELEGATED, About, Exported, Job, Need, Option, Place, Reads, Target
from edgekit_targets.openvino import runtime
from edgekit_targets.openvino.convert import ENTRY, load, read_model, save_model

WEIGHTS = Option(name="weights", default="fp32", choices=("fp32", "fp16"), help="precision in which weights are stored")


def export(source: Path, out: Path, job: Job) -> Exported:
    """ONNX artifact -> model.xml and model.bin.

    Raises:
        ExportError: If OpenVINO cannot read the graph.
    """
    spec = load_model(job.model)
    job.progress(0.2, "converting to OpenVINO IR")
    model = read_model(job.entry, spec.name)
    half = job.get(WEIGHTS) == "fp16"
    job.progress(0.8, "writing the files")
    save_model(model, out / ENTRY, spec.facts, half)
    return Exported(precision="fp16" if half else "fp32", entry=ENTRY, dynamic=job.dynamic)


TARGET = Target(
    summary="OpenVINO IR, fp32 or fp16 weights, dynamic batch and size",
    about=About(
        choose_for="Intel's processors, GPUs and NPUs",
        proved_by="OpenVINO's CPU plugin with fp32 arithmetic",
        not_proved="the arithmetic that a plugin chooses by itself (bf16, fp16), GPUs and NPUs",
    ),
    reads=Reads(fixed=True),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name=runtime.CPU, tolerance=FP32_DELEGATED, limits={"fp16": FP16}),),
    needs=(Need("openvino", "openvino"),),
    groups=("intel",),
    options=(WEIGHTS,),
)
