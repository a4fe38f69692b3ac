"""Core ML: an ML Program (`.mlpackage`) for iOS 17 and later, fp16 by default.

It comes from torch.export through coremltools. Shapes are fixed by default, since flexible ones leave the Neural
Engine. Top-K, the one operator that leaves the accelerator, can be cut off. In an fp16 package the arithmetic of the
scores, after the features, stays in fp32. On Linux edgekit's interpreter proves the saved package. On macOS Core ML
proves it as well.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgekit.errors import ExportError, UsageError
from edgekit.model import capture_errors as causes
from edgekit.model import decompositions as _decompositions
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.conditions import select_branches
from edgekit.model.folder import load_model
from edgekit.model.graph import capture
from edgekit.model.image_input import refuse_other_forms
from edgekit.model.own_operators import use_decompositions
from edgekit.model.shapes import BATCHES
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.model.spec import ORDERED, Axis, ModelSpec
from edgekit.runtime.logs import quiet
from edgekit.target import (
    FP16,
    FP32_DELEGATED,
    ExportResult,
    Job,
    Need,
    Option,
    Place,
    Runtime,
    Target,
    TargetDescription,
)
from edgekit_targets.coreml.runtime import CORE_ML, INTERPRETER, Derived, entries, open_package
from mil_interpreter import write_package

if TYPE_CHECKING:
    import torch

SCORES_ONLY = "the package gives scores only: the app computes counts and rankings, as `edgekit.derived` says"
HEAD_IN_FP32 = "weights and features are fp16; the scores' own arithmetic is fp32, since sure scores are equal in fp16"
TOPK_LEAVES = "top-K leaves the accelerator. Use -O coreml.topk=cut to get only the scores"
# Of the sha256 of the weights. Xcode shows them as the version.
VERSION_DIGITS = 12
PRECISION = Option(
    name="precision",
    default="fp16",
    help="of weights and arithmetic; without it fp32 follows where fp16 is rejected",
    choices=("fp16", "fp32"),
)
IMAGE_INPUT = Option(
    name="image_input", default="tensor", help="take MLMultiArray or CVPixelBuffer", choices=("tensor", "image")
)
BATCH_SIZES = Option(
    name="batch",
    default="fixed",
    help="one size, a range, or a list of sizes (iOS 18)",
    choices=("fixed", "dynamic", "enumerated"),
)
TOPK = Option(name="topk", default="inside", help="counts and top-K in the package or not", choices=("inside", "cut"))
# The axis that may stay dynamic.
BATCH = "batch"
# The largest value in a pixel buffer.
BYTE = 255.0
# Values per score. An operator with fewer belongs to the scores, one with more to the features.
WIDTH_OF_HEAD = 16
WEIGHTED = frozenset({"conv", "conv_transpose", "linear"})


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the model folder to `Name.mlpackage`."""
    whole = load_model(job.model)
    refuse_other_forms(whole.inputs, "a Core ML model takes")
    spec, derived = _scores_only(whole) if job.get(TOPK) == "cut" else (whole, ())
    job.progress(0.1, "capturing the graph")
    batch = job.get(BATCH_SIZES)
    wishes = ConversionSettings(
        half=job.get(PRECISION) == "fp16",
        image=job.get(IMAGE_INPUT) == "image",
        batch="dynamic" if batch == "dynamic" else "enumerated" if batch == "enumerated" else "fixed",
    )
    flexible = wishes.batch != "fixed"
    with use_decompositions(spec):
        captured = capture(_only_batch(spec) if flexible else spec, dynamic=flexible)
    job.progress(0.4, "converting to an ML Program")
    converted = convert(spec, captured.exported, wishes)
    job.progress(0.9, "writing the package")
    description = converted.get_spec()
    _describe(description, spec, derived, weights_digest(whole))
    blob = Path(converted.weights_dir) / "weight.bin" if converted.weights_dir else None
    entry = f"{swift_name(spec.name)}.mlpackage"
    write_package(description, blob if blob is not None and blob.exists() else None, out / entry)
    return ExportResult(
        precision="fp16" if wishes.half else "fp32",
        entry=entry,
        dynamic=(BATCH,) if flexible else (),
        notes=tuple(_notes(spec, description, job)),
    )


def swift_name(name: str) -> str:
    """Return the class name that Xcode derives from a model's name: arr-coc-tiny -> ArrCocTiny."""
    words = re.findall(r"[A-Za-z0-9]+", name)
    joined = "".join(word[0].upper() + word[1:] for word in words)
    return joined if joined[:1].isalpha() else f"Model{joined}"


def _scores_only(spec: ModelSpec) -> tuple[ModelSpec, tuple[Derived, ...]]:
    """Return the model with only its scores as outputs, and the outputs that an app derives from them."""
    import torch

    indices = [n for n, o in enumerate(spec.outputs) if o.role == "scores"]
    if not indices:
        raise UsageError(f"'{spec.name}' has no output of the role 'scores'. Use -O coreml.topk=inside")

    class ScoresOnly(torch.nn.Module):
        def __init__(self, whole: torch.nn.Module) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            answers = self.whole(*inputs)
            return tuple(answers[n] for n in indices)

        # torch.export takes the inputs' names and number from here
        forward.__signature__ = inspect.signature(type(spec.module).forward)  # type: ignore[attr-defined]

    with torch.no_grad():
        answers = named_outputs(spec, spec.module(*to_tensors(spec, spec.random(seed=0))))
    derived = tuple(
        Derived(o, answers[o.name].shape[-1] if o.role == "ranking" else 0)
        for o in spec.outputs
        if o.role in ("counts", "ranking")
    )
    outputs = tuple(spec.outputs[n] for n in indices)
    return replace(spec, module=ScoresOnly(spec.module).eval(), outputs=outputs), derived


def _only_batch(spec: ModelSpec) -> ModelSpec:
    """Return the model with every axis except the batch fixed at its default.

    A dynamic resize does not convert.
    """
    if BATCH not in spec.axes:
        raise UsageError(f"'{spec.name}' has no axis '{BATCH}'. Use -O coreml.batch=fixed")
    inputs = tuple(
        replace(i, shape=tuple(d if d == BATCH else n for d, n in zip(i.shape, spec.shape(i.name), strict=True)))
        for i in spec.inputs
    )
    return replace(spec, inputs=inputs, axes={BATCH: spec.axes[BATCH]})


def _describe(description: Any, spec: ModelSpec, derived: tuple[Derived, ...], digest: str) -> None:
    """Write metadata for Xcode and for the runtime, and remove the date, which varies between runs."""
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
    fixed = {n: a.default for n, a in spec.axes.items() if n != BATCH or job.get(BATCH_SIZES) == "fixed"}
    if fixed:
        yield f"static: {', '.join(f'{name} {size}' for name, size in fixed.items())}"
    if job.get(BATCH_SIZES) == "dynamic":
        yield "a dynamic batch leaves the Neural Engine. Prefer fixed shapes on phones"
    if job.get(BATCH_SIZES) == "enumerated":
        yield f"the batch is one of {', '.join(map(str, batches(spec.axes[BATCH])))}; needs iOS 18"
    main = description.mlProgram.functions["main"]
    if any(o.type == "topk" for o in main.block_specializations[main.opset].operations):
        yield TOPK_LEAVES
    if job.get(TOPK) == "cut":
        yield SCORES_ONLY
    if job.get(PRECISION) == "fp16" and any(o.role in ORDERED for o in spec.outputs):
        yield HEAD_IN_FP32


@dataclass(frozen=True)
class ConversionSettings:
    """Settings of a conversion.

    Attributes:
        half: Whether weights and features are fp16.
        image: Whether images come as pixel buffers.
        batch: One size, a range, or a list of sizes.
    """

    half: bool = True
    image: bool = False
    batch: Literal["fixed", "dynamic", "enumerated"] = "fixed"


def convert(spec: ModelSpec, exported: torch.export.ExportedProgram, wishes: ConversionSettings) -> Any:
    """Return the model as a `coremltools.models.MLModel` that was not loaded.

    Raises:
        UsageError: If the model does not allow the settings.
        ExportError: If coremltools cannot convert it.
    """
    with quiet():
        import coremltools as ct
        import numpy as np

        _teach_gelu()
        _teach_division()
        causes.refuse_bfloat16(spec.name, exported)
        _refuse_other_names(spec)
        float16 = ct.transform.FP16ComputePrecision(op_selector=_features(spec))
        takes = _takes(spec, wishes)
        gives = [
            # Core ML has neither int64 nor bool; fp32 keeps an app's code the same for every precision.
            ct.TensorType(name=o.name, dtype=np.float32 if np.dtype(o.dtype).kind == "f" else np.int32)
            for o in spec.outputs
        ]
        try:
            return ct.convert(
                _without_idle_expands(select_branches(exported).run_decompositions(_decompositions.table())),
                convert_to="mlprogram",
                minimum_deployment_target=ct.target.iOS18 if wishes.batch == "enumerated" else ct.target.iOS17,
                compute_precision=float16 if wishes.half else ct.precision.FLOAT32,
                inputs=takes,
                outputs=gives,
                skip_model_load=True,
            )
        # coremltools raises whatever its frontend met.
        except Exception as error:
            raise ExportError(f"coremltools cannot convert '{spec.name}': {causes.why(error, exported)}") from error


def _refuse_other_names(spec: ModelSpec) -> None:
    """Refuse names that coremltools would change: those with dots, and those reserved in the program's language."""
    from coremltools.converters.mil.mil.passes.defs.preprocess import NameSanitizer

    names = [*(i.name for i in spec.inputs), *(o.name for o in spec.outputs)]
    name_sanitizer = NameSanitizer()
    if lost := next((n for n in names if name_sanitizer.sanitize_name(n, allow_prefix_underscore=True) != n), None):
        raise ExportError(f"Core ML cannot have '{lost}' as the name of an input or output of '{spec.name}'. Rename it")


def batches(axis: Axis) -> list[int]:
    """Return the batch sizes of a list, which are those in the test grid."""
    return sorted({min(max(b, axis.minimum), axis.maximum) for b in (*BATCHES, axis.default)})


def _features(spec: ModelSpec) -> Callable[[Any], bool]:
    """Return a test of whether an operator may run in fp16.

    All may, except those between the features and the outputs that decide. fp16 has 2,048 numbers in [0.5, 1], so high
    scores become equal, and top-K then takes the first of them. The head has a few hundred numbers per image, and top-K
    leaves the accelerator anyway. The walk back from the deciding outputs ends at weighted operators. It also ends at
    values wider than `WIDTH_OF_HEAD` numbers per score.
    """
    deciding = [n for n, o in enumerate(spec.outputs) if o.role in ORDERED]
    head: set[Any] = set()
    flags: list[bool] = []

    def in_features(operation: Any) -> bool:
        block = operation.enclosing_block
        while getattr(block, "outer_op", None) is not None:
            block = block.outer_op.enclosing_block
        # The pass calls this before it changes anything.
        if not flags:
            flags.append(True)
            ends = [block.outputs[n] for n in deciding]
            if ends:
                _walk_back(ends, WIDTH_OF_HEAD * min(_elements(v) for v in ends), head)
        return operation not in head

    return in_features


def _walk_back(values: list[Any], widest: int, head: set[Any]) -> None:
    waiting = [v.op for v in values]
    while waiting:
        operation = waiting.pop()
        if operation is None or operation in head or operation.op_type in WEIGHTED | {"const"}:
            continue
        if all(_elements(v) <= widest for v in operation.outputs):
            head.add(operation)
            for operands in operation.inputs.values():
                waiting += [v.op for v in (operands if isinstance(operands, (list, tuple)) else [operands])]


def _elements(value: Any) -> int:
    """Return the count of numbers per image in a value. Open sizes count as one."""
    return prod(int(n) for n in value.shape if str(n).isdigit())


def _without_idle_expands(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Remove `expand`s to the same sizes from the graph.

    coremltools tiles them, and so opens sizes that were fixed.
    """
    import torch

    graph = exported.graph_module.graph
    results = set(graph.output_node().all_input_nodes)
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.expand.default and node not in results:
            before, after = (n.meta["val"].shape for n in (node.args[0], node))
            if [str(n) for n in before] == [str(n) for n in after]:
                node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)
    exported.graph_module.recompile()
    return exported


def _teach_gelu() -> None:
    """Teach coremltools the keyword of a captured `gelu(x, approximate="tanh")`, which it drops."""
    from coremltools.converters.mil import Builder
    from coremltools.converters.mil.frontend.torch import register_torch_op

    def gelu(context: Any, node: Any) -> None:
        tanh = "tanh" in (node.kwinputs or {}).get("approximate", ())
        mode = "TANH_APPROXIMATION" if tanh else "EXACT"
        context.add(Builder.gelu(x=context[node.inputs[0]], mode=mode, name=node.name))

    register_torch_op(gelu, override=True)


def _teach_division() -> None:
    """Teach coremltools the division of integers.

    It divides them in fp32 and leaves the rounded result in fp32, which cannot be an index.
    """
    from coremltools.converters.mil import Builder
    from coremltools.converters.mil.frontend.torch import ops, register_torch_op
    from coremltools.converters.mil.mil import types

    def div(context: Any, node: Any) -> None:
        mode = (node.kwinputs or {}).get("rounding_mode", ())
        x, y = ops._get_inputs(context, node, expected=[2, 3])[:2]
        if not mode or not (types.is_int(x.dtype) and types.is_int(y.dtype)):
            ops.div(context, node)
        elif "floor" in mode:
            context.add(Builder.floor_div(x=x, y=y, name=node.name))
        else:
            whole = Builder.floor_div(x=Builder.abs(x=x), y=Builder.abs(x=y))
            context.add(Builder.mul(x=whole, y=Builder.mul(x=Builder.sign(x=x), y=Builder.sign(x=y)), name=node.name))

    register_torch_op(div, override=True)


def _takes(spec: ModelSpec, wishes: ConversionSettings) -> list[Any]:
    """Return the inputs as coremltools' types: tensors, or images with the model's scaling in the package."""
    import coremltools as ct
    import numpy as np

    images = [i.name for i in spec.inputs if i.kind == "image" and wishes.image]
    if wishes.image and (not images or wishes.batch != "fixed"):
        raise UsageError("-O coreml.image_input=image needs a model with an image input and -O coreml.batch=fixed")
    axis = spec.axes.get(BATCH, Axis(1))
    symbol = ct.RangeDim(axis.minimum, axis.maximum, axis.default) if wishes.batch == "dynamic" else None
    arrays: list[Any] = []
    for i in spec.inputs:
        shape = spec.shape(i.name)
        if not shape:
            raise ExportError(
                f"the input '{i.name}' of '{spec.name}' has no axes, which Core ML needs. Use the shape [1]"
            )
        sizes: Any = shape
        if symbol is not None:
            sizes = ct.Shape([symbol if d == BATCH else n for d, n in zip(i.shape, shape, strict=True)])
        elif wishes.batch == "enumerated" and BATCH in i.shape:
            sizes = ct.EnumeratedShapes([spec.shape(i.name, {BATCH: b}) for b in batches(axis)], default=shape)
        kind = np.float32 if np.dtype(i.dtype).kind == "f" else np.int32
        if i.name not in images:
            arrays.append(ct.TensorType(i.name, sizes, kind))
            continue
        if len(shape) != 4 or shape[:2] != (1, 3):
            raise UsageError(f"the input '{i.name}' has the shape {shape}. An image needs [1, 3, H, W]")
        layout, scale = ct.colorlayout.RGB, (i.high - i.low) / BYTE
        arrays.append(ct.ImageType(i.name, shape, scale=scale, bias=[i.low] * 3, color_layout=layout))
    return arrays


def load(artifact: Path, place: Place) -> Runtime:
    """Load the artifact in the interpreter, or in Core ML itself on macOS."""
    return open_package(artifact, place.name)


TARGET = Target(
    summary="Core ML ML Program (.mlpackage) for iOS 17 and later",
    about=TargetDescription(
        use_case="iOS 17 and macOS 14",
        proved_by="edgekit's interpreter of the package; Core ML itself on a Mac",
        not_covered="Apple's hardware, where no Mac runs it",
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
    options=(PRECISION, IMAGE_INPUT, BATCH_SIZES, TOPK),
    fallback={"precision": "fp32"},
)
