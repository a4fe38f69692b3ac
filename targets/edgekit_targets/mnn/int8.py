"""MNN, INT8 weights: a `.mnn` file of about a quarter of the size.

MNN's converter rounds the weights of linear layers and convolutions to INT8, with a separate range for each output
channel. All arithmetic stays fp32.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.target import INT8, ExportResult, Job, Need, Place, SourceRequirements, Target, TargetDescription
from edgekit_targets.mnn.export import ENTRY, load, write
from edgekit_targets.mnn.runtime import CPU

QUANTIZE = ("--weightQuantBits", "8", "--weightQuantAsymmetric")
"""Ranges with a zero point.

The weights of arr-coc-tiny lie on such a grid, so its answers are those of fp32 (NRMSE of 1.6e-5). With symmetric
ranges, the converter's default, it was rejected: 0.895 of the spread, where the limit is 0.75.
"""


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the ONNX artifact to `model.mnn` with INT8 weights.

    Raises:
        ExportError: If MNN cannot convert the graph. The message names its operators.
    """
    notes = write(out, job, QUANTIZE)
    return ExportResult(
        precision="int8",
        entry=ENTRY,
        dynamic=job.dynamic,
        notes=(
            "INT8 weights, activations in fp32: MNN computes in fp32 unless an app requests memory 'low'",
            *notes,
        ),
    )


TARGET = Target(
    summary="MNN, INT8 weights, dynamic batch and size",
    about=TargetDescription(
        use_case="the same as `mnn`, a quarter of the size",
        proved_by="MNN on the CPU with fp32 arithmetic",
        not_covered="ARM kernels, GPUs, NPUs and INT8 arithmetic",
        audience="none",
    ),
    reads=SourceRequirements(fixed=True),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name=CPU, tolerance=INT8),),
    needs=(Need("MNN", "mnn"),),
)
