"""Core ML: an ML Program (`.mlpackage`) for iOS 17 and later, fp16 by default.

It comes from torch.export through coremltools. Shapes are fixed unless asked otherwise, since flexible ones leave the
Neural Engine; top-K, the one operator that leaves the accelerator, can be cut off. On Linux the saved package is proved
by edgekit's interpreter; on macOS by Core ML itself as well.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit import model, program
from edgekit.errors import ExportError, UsageError
from edgekit.grid import BATCHES
from edgekit.runtime.coreml import package
from edgekit.runtime.coreml.contract import Derived, entries
from edgekit.runtime.coreml.runtime import PLACES, load
from edgekit.spec import Axis, Input, ModelSpec
from edgekit.target import Exported, Job, Need, Option, Target
from edgekit.tolerance import FP16, FP32

if TYPE_CHECKING:
    import torch

BATCH = "batch"  # the axis that may stay dynamic
BYTE = 255.0  # largest value of a pixel buffer
SCORES_ONLY = "the package gives scores only: the app computes counts and rankings, as `edgekit.derived` says"
TOPK_LEAVES = "top-K leaves the accelerator: -O coreml.topk=cut gives the scores alone"
VERSION_DIGITS = 12  # of the weights' sha256 that serve as the version Xcode shows


def export(source: Path, out: Path, job: Job) -> Exported:
    """Model folder -> `Name.mlpackage`."""
    options, whole = job.options, model.load(job.model)
    spec, derived = _scores_only(whole) if options["topk"] == "cut" else (whole, ())
    job.progress(0.1, "capturing the graph")
    captured = program.capture(_only_batch(spec) if options["batch"] != "fixed" else spec, options["batch"] != "fixed")
    job.progress(0.4, "converting to an ML Program")
    converted = _converted(spec, captured.exported, options)
    job.progress(0.9, "writing the package")
    description = converted.get_spec()
    _describe(description, spec, derived, model.weights_digest(whole))
    blob = Path(converted.weights_dir) / "weight.bin" if converted.weights_dir else None
    entry = f"{swift_name(spec.name)}.mlpackage"
    package.write(description, blob if blob is not None and blob.exists() else None, out / entry)
    return Exported(
        precision="fp32" if options["precision"] == "fp32" else "fp16",
        entry=entry,
        dynamic=(BATCH,) if options["batch"] != "fixed" else (),
        notes=tuple(_notes(spec, description, options)),
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
        answers = program.named(spec, spec.module(*program.tensors(spec, spec.random(seed=0))))
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
        replace(i, shape=tuple(d if d == BATCH or isinstance(d, int) else spec.axes[d].default for d in i.shape))
        for i in spec.inputs
    )
    return replace(spec, inputs=inputs, axes={BATCH: spec.axes[BATCH]})


def _converted(spec: ModelSpec, exported: torch.export.ExportedProgram, options: Mapping[str, str]) -> Any:
    with quiet():
        import coremltools as ct
        import numpy as np

        precision = ct.precision.FLOAT32 if options["precision"] == "fp32" else ct.precision.FLOAT16
        give = [
            # Core ML has neither int64 nor bool; fp32 keeps an app's code the same for every precision.
            ct.TensorType(name=o.name, dtype=np.float32 if np.dtype(o.dtype).kind == "f" else np.int32)
            for o in spec.outputs
        ]
        try:
            return ct.convert(
                _prepared(exported.run_decompositions({})),
                convert_to="mlprogram",
                minimum_deployment_target=ct.target.iOS18 if options["batch"] == "enumerated" else ct.target.iOS17,
                compute_precision=precision,
                inputs=_takes(spec, options),
                outputs=give,
                skip_model_load=True,
            )
        except Exception as error:  # coremltools raises whatever its frontend met
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ExportError(f"coremltools cannot convert '{spec.name}': {first}") from error


def _prepared(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The graph without what coremltools 9.0 gets wrong.

    - `expand` to the same sizes: it is tiled, and its fixed sizes become open ones that a later squeeze leaves alone.
    - `gelu(x, approximate="tanh")`: the keyword is dropped, and the exact function is converted instead.
    """
    import torch

    graph = exported.graph_module.graph
    results = set(graph.output_node().all_input_nodes)
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.gelu.default and node.kwargs:
            node.args, node.kwargs = (node.args[0], node.kwargs["approximate"]), {}
        if node.target is torch.ops.aten.expand.default and node not in results:
            before, after = (n.meta["val"].shape for n in (node.args[0], node))
            if [str(n) for n in before] == [str(n) for n in after]:
                node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)
    exported.graph_module.recompile()
    return exported


def _takes(spec: ModelSpec, options: Mapping[str, str]) -> list[Any]:
    """The inputs as coremltools' types: tensors, or images with the model's scaling inside the package."""
    import coremltools as ct
    import numpy as np

    images = [i.name for i in spec.inputs if i.kind == "image"] if options["image_input"] == "image" else []
    if options["image_input"] == "image" and (not images or options["batch"] != "fixed"):
        raise UsageError("-O coreml.image_input=image needs a model with an image input and -O coreml.batch=fixed")
    axis = spec.axes.get(BATCH, Axis(1))
    symbol = ct.RangeDim(axis.minimum, axis.maximum, axis.default) if options["batch"] == "dynamic" else None
    made: list[Any] = []
    for i in spec.inputs:
        shape = spec.shape(i.name)
        if i.name in images:
            made.append(_image(i, shape))
            continue
        sizes: Any = shape
        if symbol is not None:
            sizes = ct.Shape([symbol if d == BATCH else n for d, n in zip(i.shape, shape, strict=True)])
        elif options["batch"] == "enumerated":
            every = [spec.shape(i.name, {BATCH: b}) for b in _batches(axis)]
            sizes = ct.EnumeratedShapes(every, default=shape) if BATCH in i.shape else shape
        made.append(ct.TensorType(i.name, sizes, np.float32 if np.dtype(i.dtype).kind == "f" else np.int32))
    return made


def _image(declared: Input, shape: tuple[int, ...]) -> Any:
    import coremltools as ct

    if len(shape) != 4 or shape[:2] != (1, 3):
        raise UsageError(f"the input '{declared.name}' of the shape {shape} is no image: it must be [1, 3, H, W]")
    scale = (declared.high - declared.low) / BYTE
    return ct.ImageType(
        declared.name, shape, scale=scale, bias=[declared.low] * 3, color_layout=ct.colorlayout.RGB
    )


def _batches(axis: Axis) -> list[int]:
    """The batch sizes that the grid proves."""
    return sorted({min(max(b, axis.minimum), axis.maximum) for b in (*BATCHES, axis.default)})


def _describe(description: Any, spec: ModelSpec, derived: tuple[Derived, ...], digest: str) -> None:
    """Metadata for Xcode and for the runtime; what varies between runs (the date) goes."""
    written = description.description.metadata
    written.userDefined.pop("com.github.apple.coremltools.conversion_date", None)
    written.author, written.license = spec.author, spec.licence
    written.shortDescription, written.versionString = spec.description, digest[:VERSION_DIGITS]
    for key, value in entries(spec.inputs, spec.outputs, derived).items():
        written.userDefined[key] = value
    written.userDefined["edgekit.preprocessing"] = "; ".join(_preprocessing(i) for i in spec.inputs)
    for declared, feature in zip(spec.inputs, description.description.input, strict=True):
        feature.shortDescription = _preprocessing(declared)
    for output, feature in zip(spec.outputs, description.description.output, strict=True):
        feature.shortDescription = f"{output.role} of {output.of}" if output.of else output.role


def _preprocessing(declared: Input) -> str:
    span = f"[{declared.low:g}, {declared.high:g}]"
    if declared.kind == "image":
        return f"{declared.name}: RGB, bytes scaled to {span}, channels first"
    if declared.kind == "query":
        return f"{declared.name}: the mean of the query's word embeddings"
    return f"{declared.name}: values in {span}"


def _notes(spec: ModelSpec, description: Any, options: Mapping[str, str]) -> Iterator[str]:
    fixed = {n: a.default for n, a in spec.axes.items() if n != BATCH or options["batch"] == "fixed"}
    if fixed:
        yield f"static: {', '.join(f'{name} {size}' for name, size in fixed.items())}"
    if options["batch"] == "dynamic":
        yield "a dynamic batch leaves the Neural Engine: prefer fixed shapes on phones"
    if options["batch"] == "enumerated":
        yield f"the batch is one of {', '.join(map(str, _batches(spec.axes[BATCH])))}; needs iOS 18"
    main = description.mlProgram.functions["main"]
    if any(o.type == "topk" for o in main.block_specializations[main.opset].operations):
        yield TOPK_LEAVES
    if options["topk"] == "cut":
        yield SCORES_ONLY


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Coremltools' talk is not the user's to mend: untested versions of torch, classes for macOS only, progress bars.

    It rounds constants to fp16 with NumPy's overflow warnings, and torch deprecates what it uses; errors still pass.
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            warnings.filterwarnings("ignore", message=".*encountered in cast", category=RuntimeWarning)
            yield
    finally:
        logging.disable(before)


TARGET = Target(
    summary="Core ML ML Program (.mlpackage) for iOS 17 and later",
    export=export,
    load=load,
    tolerance={"": FP16},
    needs=(Need("coremltools", "coreml"),),
    groups=("mobile",),
    places=PLACES,
    options=(
        Option(name="precision", default="fp16", help="weights and arithmetic", choices=("fp16", "fp32")),
        Option(
            name="image_input", default="tensor", help="take MLMultiArray or CVPixelBuffer", choices=("tensor", "image")
        ),
        Option(
            name="batch",
            default="fixed",
            help="one size, a range, or a list of sizes (iOS 18)",
            choices=("fixed", "dynamic", "enumerated"),
        ),
        Option(name="topk", default="inside", help="counts and top-K in the package or not", choices=("inside", "cut")),
    ),
    timed=False,  # the interpreter's speed says nothing of a phone's
)
