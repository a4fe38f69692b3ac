"""MNN, INT8 weights: a `.mnn` file of about a quarter of the size.

MNN's converter rounds the weights of linear layers and convolutions to INT8, each output channel in a range of its own.
All arithmetic stays fp32.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.target import INT8, About, Exported, Job, Need, Place, Reads, Target
from edgekit_targets.mnn.export import ENTRY, load, write
from edgekit_targets.mnn.runtime import CPU

QUANTIZE = ("--weightQuantBits", "8", "--weightQuantAsymmetric")
"""Ranges with a zero point: arr-coc-tiny's weights lie on such a grid, so that its answers are those of fp32 (NRMSE of
1.6e-5). With symmetric ranges, the converter's default, it was rejected: 0.895 of the spread where 0.75 may be."""


def export(source: Path, out: Path, job: Job) -> Exported:
    """ONNX artifact -> model.mnn with INT8 weights.

    Raises:
        ExportError: If MNN cannot convert the graph; the message names its operators.
    """
    notes = write(out, job, QUANTIZE)
    return Exported(
        precision="int8",
        entry=ENTRY,
        dynamic=job.dynamic,
        notes=(
            "INT8 weights, activations in fp32: MNN computes in fp32 unless an app asks it for memory 'low'",
            *notes,
        ),
    )


TARGET = Target(
    summary="MNN, INT8 weights, dynamic batch and size",
    about=About(
        choose_for="the same as `mnn`, a quarter of the size",
        proved_by="MNN on the CPU with fp32 arithmetic",
        not_proved="ARM kernels, GPUs, NPUs and INT8 arithmetic",
        audience="none",
    ),
    reads=Reads(fixed=True),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name=CPU, tolerance=INT8),),
    needs=(Need("MNN", "mnn"),),
)
