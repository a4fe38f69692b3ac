"""LiteRT (`.tflite`) in INT8, made by the AI Edge Quantizer from the fp32 file.

By default weights are INT8 per output channel, and activations are rounded at run time. So no calibrated range can clip
an unusual image. The recipe "weights" keeps the arithmetic in fp32.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.errors import ExportError
from edgekit.model.folder import load_model
from edgekit.target import INT8, ExportResult, Job, Option, Place, SourceRequirements, Target, TargetDescription
from edgekit_targets.litert import runtime
from edgekit_targets.litert.runtime import CPU, JS

RECIPE = Option(
    name="recipe",
    default="dynamic",
    choices=("dynamic", "weights"),
    help="activations rounded at run time, or kept in fp32",
)
SAID = {
    "dynamic": "activations rounded to INT8 at run time",
    "weights": "the arithmetic in fp32",
}


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Quantize `model.tflite` of the fp32 artifact to INT8.

    Raises:
        ExportError: If the quantizer fails, or finds no weights to quantize.
    """
    spec, recipe = load_model(job.model), job.get(RECIPE)
    job.progress(0.3, "quantizing in LiteRT's environment")
    settings = {"model": str(job.entry), "out": str(out / runtime.ENTRY), "recipe": recipe}
    answer = runtime.call_script(runtime.QUANTIZE, settings, spec.name)
    if not answer["weights"]:
        raise ExportError(f"'{spec.name}' has no layer with weights that the AI Edge Quantizer accepts. Use litert")
    runtime.describe(out / runtime.ENTRY, spec)
    note = f"INT8 weights in {answer['weights']} layers, {SAID[recipe]}"
    return ExportResult(precision="int8", entry=runtime.ENTRY, notes=(note, *runtime.fixed_sizes_note(spec)))


TARGET = Target(
    summary="LiteRT (.tflite) with XNNPACK, INT8, fixed sizes",
    about=TargetDescription(
        use_case="the same as `litert`, about a third of the size",
        proved_by="LiteRT with XNNPACK on this processor, LiteRT.js in Chromium where it is installed; default sizes",
        not_covered="other sizes, phones' processors, GPUs and NPUs",
        audience="android",
    ),
    reads=SourceRequirements(content=runtime.content),
    source="litert",
    export=export,
    load=runtime.load,
    places=(Place(name=CPU, tolerance=INT8), Place(name=JS, tolerance=INT8, timed=False)),
    needs=runtime.NEEDS,
    groups=("android",),
    options=(RECIPE,),
)
