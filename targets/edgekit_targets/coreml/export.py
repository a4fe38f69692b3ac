"""Core ML: an ML Program (`.mlpackage`) for iOS 17 and later, fp16 by default.

It comes from torch.export through coremltools. Shapes are fixed unless asked otherwise, since flexible ones leave the
Neural Engine; top-K, the one operator that leaves the accelerator, can be cut off. In an fp16 package the scores' own
arithmetic, after the features, stays in fp32. On Linux the saved package is proved by edgekit's interpreter; on macOS
by Core ML itself as well.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit.errors import UsageError
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.folder import load_model
from edgekit.model.graph import capture
from edgekit.model.own_operators import decomposed
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.model.spec import ORDERED, ModelSpec
from edgekit.target import FP16, FP32_DELEGATED, About, Exported, Job, Need, Option, Place, Target
from edgekit_targets.coreml.convert import BATCH, Wishes, batches, convert, load
from edgekit_targets.coreml.runtime import CORE_ML, INTERPRETER, Derived, entries
from mil_interpreter import write_package

SCORES_ONLY = "the package gives scores only: the app computes counts and rankings, as `edgekit.derived` says"
HEAD_IN_FP32 = "weights and features are fp16; the scores' own arithmetic is fp32, since sure scores are equal in fp16"
TOPK_LEAVES = "top-K leaves the accelerator: -O coreml.topk=cut gives the scores alone"
VERSION_DIGITS = 12  # of the weights' sha256 that serve as the version Xcode shows
PRECISION = Option(name="precision", default="fp16", help="of weights and arithmetic", choices=("fp16", "fp32"))
IMAGE_INPUT = Option(
    name="image_input", default="tensor", help="take MLMultiArray or CVPixelBuffer", choices=("tensor", "image")
)
BATCHES = Option(
    name="batch",
    default="fixed",
    help="one size, a range, or a list of sizes (iOS 18)",
    choices=("fixed", "dynamic", "enumerated"),
)
TOPK = Option(name="topk", default="inside", help="counts and top-K in the package or not", choices=("inside", "cut"))


def export(source: Path, out: Path, job: Job) -> Exported:
    """Model folder -> `Name.mlpackage`."""
    whole = load_model(job.model)
    spec, derived = _scores_only(whole) if job.get(TOPK) == "cut" else (whole, ())
    job.progress(0.1, "capturing the graph")
    batch = job.get(BATCHES)
    wishes = Wishes(
        half=job.get(PRECISION) == "fp16",
        image=job.get(IMAGE_INPUT) == "image",
        batch="dynamic" if batch == "dynamic" else "enumerated" if batch == "enumerated" else "fixed",
    )
    flexible = wishes.batch != "fixed"
    with decomposed(spec):
        captured = capture(_only_batch(spec) if flexible else spec, dynamic=flexible)
    job.progress(0.4, "converting to an ML Program")
    converted = convert(spec, captured.exported, wishes)
    job.progress(0.9, "writing the package")
    description = converted.get_spec()
    _describe(description, spec, derived, weights_digest(whole))
    blob = Path(converted.weights_dir) / "weight.bin" if converted.weights_dir else None
    entry = f"{swift_name(spec.name)}.mlpackage"
    write_package(description, blob if blob is not None and blob.exists() else None, out / entry)
    return Exported(
        precision="fp16" if wishes.half else "fp32",
        entry=entry,
        dynamic=(BATCH,) if flexible else (),
        notes=tuple(_notes(spec, description, job)),
    )


def swift_name(name: str) -> str:
    """A model's name as the identifier of the class that Xcode makes for the package: arr-coc-tiny -> ArrCocTiny."""
    words = re.findall(r"[A-Za-z0-9]+", name)
    joined = "".join(word[0].upper() + word[1:] for word in words)
    return joined if joined[:1].isalpha() else f"Model{joined}"


def _scores_only(spec: ModelSpec) -> tuple[ModelSpec, tuple[Derived, ...]]:
    """The model with its scores as the only outputs, and what an app derives from them."""
    import torch

    kept = [n for n, o in enumerate(spec.outputs) if o.role == "scores"]
    if not kept:
        raise UsageError(f"'{spec.name}' has no output of the role 'scores': use -O coreml.topk=inside")

    class ScoresOnly(torch.nn.Module):
        def __init__(self, whole: torch.nn.Module) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            answers = self.whole(*inputs)
            return tuple(answers[n] for n in kept)

        # torch.export takes the inputs' names and number from here
        forward.__signature__ = inspect.signature(type(spec.module).forward)  # type: ignore[attr-defined]

    with torch.no_grad():
        answers = named_outputs(spec, spec.module(*to_tensors(spec, spec.random(seed=0))))
    derived = tuple(
        Derived(o, answers[o.name].shape[-1] if o.role == "ranking" else 0)
        for o in spec.outputs
        if o.role in ("counts", "ranking")
    )
    outputs = tuple(spec.outputs[n] for n in kept)
    return replace(spec, module=ScoresOnly(spec.module).eval(), outputs=outputs), derived


def _only_batch(spec: ModelSpec) -> ModelSpec:
    """The model with every axis but the batch fixed at its default: a dynamic resize does not convert."""
    if BATCH not in spec.axes:
        raise UsageError(f"'{spec.name}' has no axis '{BATCH}': use -O coreml.batch=fixed")
    inputs = tuple(
        replace(i, shape=tuple(d if d == BATCH else n for d, n in zip(i.shape, spec.shape(i.name), strict=True)))
        for i in spec.inputs
    )
    return replace(spec, inputs=inputs, axes={BATCH: spec.axes[BATCH]})


def _describe(description: Any, spec: ModelSpec, derived: tuple[Derived, ...], digest: str) -> None:
    """Metadata for Xcode and for the runtime; what varies between runs (the date) goes."""
    written = description.description.metadata
    written.userDefined.pop("com.github.apple.coremltools.conversion_date", None)
    written.author, written.license = spec.author, spec.licence
    written.shortDescription, written.versionString = spec.description, digest[:VERSION_DIGITS]
    for key, value in entries(spec.inputs, spec.outputs, derived).items():
        written.userDefined[key] = value
    written.userDefined["edgekit.preprocessing"] = "; ".join(i.preprocessing for i in spec.inputs)
    for declared, feature in zip(spec.inputs, description.description.input, strict=True):
        feature.shortDescription = declared.preprocessing
    for output, feature in zip(spec.outputs, description.description.output, strict=True):
        feature.shortDescription = f"{output.role} of {output.of}" if output.of else output.role


def _notes(spec: ModelSpec, description: Any, job: Job) -> Iterator[str]:
    fixed = {n: a.default for n, a in spec.axes.items() if n != BATCH or job.get(BATCHES) == "fixed"}
    if fixed:
        yield f"static: {', '.join(f'{name} {size}' for name, size in fixed.items())}"
    if job.get(BATCHES) == "dynamic":
        yield "a dynamic batch leaves the Neural Engine: prefer fixed shapes on phones"
    if job.get(BATCHES) == "enumerated":
        yield f"the batch is one of {', '.join(map(str, batches(spec.axes[BATCH])))}; needs iOS 18"
    main = description.mlProgram.functions["main"]
    if any(o.type == "topk" for o in main.block_specializations[main.opset].operations):
        yield TOPK_LEAVES
    if job.get(TOPK) == "cut":
        yield SCORES_ONLY
    if job.get(PRECISION) == "fp16" and any(o.role in ORDERED for o in spec.outputs):
        yield HEAD_IN_FP32


TARGET = Target(
    summary="Core ML ML Program (.mlpackage) for iOS 17 and later",
    about=About(
        choose_for="iOS 17 and macOS 14",
        proved_by="edgekit's interpreter of the package; Core ML itself on a Mac",
        not_proved="Apple's hardware, where no Mac runs it",
        audience="ios",
    ),
    export=export,
    load=load,
    needs=(Need("coremltools", "coreml"),),
    groups=("mobile", "apple"),
    places=tuple(
        Place(name=name, tolerance=FP16, limits={"fp32": FP32_DELEGATED}, timed=False)
        for name in (INTERPRETER, CORE_ML)
    ),
    options=(PRECISION, IMAGE_INPUT, BATCHES, TOPK),
)
