"""ONNX, dynamic INT8: weights in INT8, activations rounded at each run; needs no calibration.

A batch shares one range, so an image's answer depends a little on its batch mates: send one image at a time where that
matters.
"""

from __future__ import annotations

from pathlib import Path

from edgekit import artifact, model
from edgekit.errors import ExportError
from edgekit.quantization import dynamic
from edgekit.quantization.groups import groups
from edgekit.runtime.ort import OrtRuntime
from edgekit.target import Exported, Job, Need, Option, Runtime, Target
from edgekit.tolerance import INT8

ENTRY = "model.onnx"


def export(source: Path, out: Path, job: Job) -> Exported:
    """ONNX artifact -> model.onnx in INT8."""
    import onnx

    graph = onnx.load(source / ENTRY)
    parts = groups(graph)
    if not parts:
        name = model.load(job.model).name
        raise ExportError(f"'{name}' has no linear layers with constant weights: INT8 would change nothing")
    floats = tuple(name for name in job.options["float"].split(",") if name)
    if unknown := [name for name in floats if name not in parts]:
        raise ExportError(f"there is no group '{unknown[0]}' to leave in float: possible are {', '.join(parts)}")
    job.progress(0.3, "rounding the weights")
    made = dynamic.quantize(graph, floats, reduce_range=job.options["reduce_range"] == "yes")
    job.progress(0.8, "checking the graph")
    try:
        onnx.checker.check_model(made, full_check=True)
    except Exception as error:
        raise ExportError(f"the INT8 graph breaks ONNX's rules: {str(error).splitlines()[0]}") from error
    made.producer_name, made.producer_version = "edgekit", ""
    (out / ENTRY).write_bytes(made.SerializeToString(deterministic=True))
    axes = artifact.read(source, check=False).axes
    return Exported(precision="int8", entry=ENTRY, dynamic=tuple(n for n, a in axes.items() if a.dynamic))


def load(artifact: Path, place: str) -> Runtime:
    """Run it in ONNX Runtime."""
    return OrtRuntime(artifact / ENTRY)


TARGET = Target(
    summary="ONNX, dynamic INT8",
    source="onnx",
    export=export,
    load=load,
    tolerance={"": INT8},
    needs=(Need("onnxruntime", "cpu"),),
    groups=("onnx-all",),
    options=(
        Option(name="float", default="", help="groups that stay in float, by commas"),
        Option(name="reduce_range", default="no", help="7-bit weights, for CPUs without VNNI", choices=("yes", "no")),
    ),
)
