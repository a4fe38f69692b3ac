"""MNN, INT8 weights: a `.mnn` file of a fourth of the size.

MNN's converter rounds the weights of linear layers and convolutions to INT8, each output channel in a range of its own;
a channel may be parted into blocks with a range each. All arithmetic stays fp32.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.runtime import mnn as runtime
from edgekit.target import INT8, About, Exported, Job, Need, Option, Place, Reads, Runtime, Target
from edgekit_targets import _mnn

BLOCK = Option(
    name="block",
    default="none",
    choices=("none", "128", "64", "32"),
    help="inputs of a channel that share a range; smaller blocks are closer to fp32 and make a larger file",
)


def export(source: Path, out: Path, job: Job) -> Exported:
    """ONNX artifact -> model.mnn with INT8 weights.

    Raises:
        ExportError: If MNN cannot convert the graph; the message names its operators.
    """
    block = job.get(BLOCK)
    _mnn.write(out, job, ["--weightQuantBits", "8", *([] if block == "none" else ["--weightQuantBlock", block])])
    return Exported(
        precision="int8",
        entry=_mnn.ENTRY,
        dynamic=job.dynamic,
        notes=("INT8 weights, activations in fp32: MNN computes in fp32 unless an app asks it for memory 'low'",),
    )


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in MNN on the CPU."""
    return runtime.MnnRuntime(artifact, _mnn.ENTRY)


TARGET = Target(
    summary="MNN, INT8 weights, dynamic batch and size",
    about=About(
        choose_for="the same as `mnn`, a fourth of the size",
        proved_by="MNN on the CPU with fp32 arithmetic",
        not_proved="ARM kernels, GPUs, NPUs and INT8 arithmetic",
    ),
    reads=Reads(fixed=True),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name=runtime.CPU, tolerance=INT8),),
    needs=(Need("MNN", "mnn"),),
    options=(BLOCK,),
)
