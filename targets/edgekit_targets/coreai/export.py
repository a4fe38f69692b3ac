"""Core AI (`.aimodel`) for iOS 27, macOS 27 and later: what Apple puts in Core ML's place, fp32 by default.

It comes from the captured program through coreai-torch and keeps its dynamic axes. On Linux the saved asset is proved
in the CPU runtime that Apple's own wheel brings. That runtime multiplies fp16 matrices hundreds of times slower than
fp32 ones: an fp16 program with large matrix products is left to a Mac or a device, and fp32 is the default.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.model.folder import load_model
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.target import FP16, FP32, About, Exported, Job, Option, Place, Target
from edgekit_targets.coreai import convert
from edgekit_targets.coreai.runtime import DEVICE, LINUX, SLOW

PRECISION = Option(name="precision", default="fp32", help="of weights and arithmetic", choices=("fp32", "fp16"))
HALF = "weights and arithmetic are fp16; inputs and outputs are fp32"


def export(source: Path, out: Path, job: Job) -> Exported:
    """Captured program -> model.aimodel."""
    spec, half = load_model(job.model), job.get(PRECISION) == "fp16"
    sizes = convert.sizes_of(spec, job)
    captured = convert.program_of(source, spec, job)
    job.progress(0.1, "decomposing the graph")
    exported = convert.taken_apart(spec, captured.exported)
    more = convert.described(spec, weights_digest(spec))
    if half:
        job.progress(0.3, "casting to fp16")
        exported = convert.halved(exported)
        more[SLOW] = f"{convert.fp16_products(exported):.3f}"
    job.progress(0.5, "converting to Core AI")
    program = convert.converted(spec, exported, sizes)
    job.progress(0.9, "writing the asset")
    convert.write(program, out / convert.ENTRY, spec, more)
    return Exported(
        precision="fp16" if half else "fp32",
        entry=convert.ENTRY,
        dynamic=convert.open_axes(captured, sizes),
        sizes=sizes,
        notes=((HALF,) if half else ()) + convert.told(sizes),
    )


TARGET = Target(
    summary="Core AI (.aimodel) for iOS 27 and later, dynamic batch and size",
    about=About(
        choose_for="iOS 27 and macOS 27",
        proved_by="Core AI's CPU runtime for Linux, of Apple's own wheel",
        not_proved="Apple's hardware; fp16 programs with large matrix products",
        audience="ios",
    ),
    source="program",
    export=export,
    load=convert.load,
    places=tuple(Place(name=name, tolerance=FP32, limits={"fp16": FP16}, timed=False) for name in (LINUX, DEVICE)),
    needs=convert.NEEDS,
    groups=("apple",),
    options=(PRECISION, convert.SHAPES),
)
