"""LiteRT (`.tflite`) in INT8, by the AI Edge Quantizer, made of the fp32 file.

By default weights are INT8 per output channel and activations are rounded as they come, so that no calibrated range can
clip an unusual image; "weights" keeps the arithmetic in fp32, "static" takes ranges from the model's samples.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from edgekit.errors import ExportError
from edgekit.model.source import load_model
from edgekit.quantization import calibration
from edgekit.runtime.litert import frames
from edgekit.runtime.litert.runtime import CPU, LitertRuntime
from edgekit.target import INT8, Exported, Job, Option, Place, Runtime, Target
from edgekit_targets._litert import called

RECIPE = Option(
    name="recipe",
    default="dynamic",
    choices=("dynamic", "weights", "static"),
    help="activations rounded as they come, kept in fp32, or rounded to calibrated ranges",
)
SAID = {
    "dynamic": "activations rounded to INT8 as they come",
    "weights": "the arithmetic in fp32",
    "static": "activations rounded to INT8 in calibrated ranges",
}
SAMPLES = 64
"""Calibration samples of the recipe "static"."""


def export(source: Path, out: Path, job: Job) -> Exported:
    """The fp32 artifact's model.tflite -> model.tflite in INT8.

    Raises:
        ExportError: If the quantizer cannot do it, or finds no weight.
        CalibrationError: If the recipe needs samples and there are none.
    """
    spec, recipe = load_model(job.model), job.get(RECIPE)
    notes = called.fixed_at(spec)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as scratch:
        samples = Path(scratch) / "samples.npz"
        if recipe == "static":
            shown = calibration.samples(spec, count=SAMPLES, least=1).inputs
            narrow = {n: a.astype(frames.NARROW.get(a.dtype.name, a.dtype)) for n, a in shown.items()}
            samples.write_bytes(frames.packed(narrow))
            notes = (*notes, calibration.OF_SHIPPED) if calibration.unknown(spec) else notes
        job.progress(0.3, "quantizing in LiteRT's environment")
        asked = {"model": str(job.entry), "out": str(out / called.ENTRY), "recipe": recipe, "samples": str(samples)}
        answer = called.called(called.QUANTIZE, asked, spec.name)
    if not answer["weights"]:
        raise ExportError(f"'{spec.name}' has no layer whose weights the AI Edge Quantizer takes: use litert")
    called.describe(out / called.ENTRY, spec)
    told = f"INT8 weights in {answer['weights']} layers, {SAID[recipe]}"
    return Exported(precision="int8", entry=called.ENTRY, notes=(told, *notes))


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in LiteRT, in a process of its environment."""
    return LitertRuntime(artifact, called.ENTRY)


TARGET = Target(
    summary="LiteRT (.tflite) with XNNPACK, INT8, fixed sizes",
    choose_for="the same as `litert`, about a third of the size",
    proved_by="LiteRT's own runtime with XNNPACK on this processor, at the model's default sizes",
    not_proved="other sizes, phones' processors, GPUs and NPUs",
    source="litert",
    export=export,
    load=load,
    places=(Place(name=CPU, tolerance=INT8),),
    needs=called.NEEDS,
    groups=("android",),
    options=(RECIPE,),
    content=called.content,
)
