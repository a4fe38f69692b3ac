"""LiteRT (`.tflite`) with XNNPACK, fp32: Google's runtime for Android, once called TensorFlow Lite.

It comes from the captured program, fixed at the model's default sizes, through litert-torch. That package brings JAX,
so it has a separate environment. Inputs and outputs of 64-bit integers have 32 bits in the file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from edgekit.model.folder import load_model
from edgekit.model.program import load_program
from edgekit.target import FP32_DELEGATED, ExportResult, Job, Place, SourceRequirements, Target, TargetDescription
from edgekit_targets.executorch import lower
from edgekit_targets.litert import runtime
from edgekit_targets.litert.runtime import CPU, JS, parts


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the captured program to `model.tflite`.

    Raises:
        ExportError: If litert-torch cannot convert it.
    """
    import torch

    spec = load_model(job.model)
    job.progress(0.1, "fixing all axes")
    exported = lower.prepare_program(load_program(source), spec, ())
    with tempfile.TemporaryDirectory(prefix="edgekit-") as scratch:
        program = Path(scratch) / "program.pt2"
        torch.export.save(exported, program)
        job.progress(0.3, "converting to LiteRT in its environment")
        names = {"inputs": [i.name for i in spec.inputs], "outputs": [o.name for o in spec.outputs]}
        settings = {"program": str(program), "out": str(out / runtime.ENTRY), **names}
        runtime.call_script(runtime.CONVERT, settings, spec.name)
    runtime.describe(out / runtime.ENTRY, spec)
    notes = (*runtime.fixed_sizes_note(spec), f"parts of the graph that XNNPACK runs: {parts(out / runtime.ENTRY)}")
    return ExportResult(precision="fp32", entry=runtime.ENTRY, notes=notes)


TARGET = Target(
    summary="LiteRT (.tflite) with XNNPACK, fp32, fixed sizes",
    about=TargetDescription(
        use_case="Android apps that use LiteRT, once TensorFlow Lite",
        proved_by="LiteRT with XNNPACK on this processor, LiteRT.js in Chromium where it is installed; default sizes",
        not_covered="other sizes, phones' processors, GPUs and NPUs",
        audience="android",
    ),
    reads=SourceRequirements(content=runtime.content),
    source="program",
    export=export,
    load=runtime.load,
    places=(Place(name=CPU, tolerance=FP32_DELEGATED), Place(name=JS, tolerance=FP32_DELEGATED, timed=False)),
    needs=runtime.NEEDS[:2],
    groups=("android",),
)
