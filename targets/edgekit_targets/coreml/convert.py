"""A captured graph -> an ML Program, by coremltools, with what coremltools 9.0 gets wrong corrected on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgekit.errors import ExportError, UsageError
from edgekit.model import capture_errors as causes
from edgekit.model import decompositions as _decompositions
from edgekit.model.shapes import BATCHES
from edgekit.model.spec import ORDERED, Axis, Input, ModelSpec
from edgekit.runtime.logs import quiet
from edgekit.target import Place, Runtime
from edgekit_targets.coreml.runtime import open_package

if TYPE_CHECKING:
    import torch

BATCH = "batch"  # the axis that may stay dynamic
BYTE = 255.0  # largest value of a pixel buffer
WIDTH_OF_HEAD = 16  # values a score: an operator with fewer belongs to the scores, one with more to the features
WEIGHTED = frozenset({"conv", "conv_transpose", "linear"})


@dataclass(frozen=True)
class Wishes:
    """How the package is to be.

    Attributes:
        half: Whether weights and features are fp16.
        image: Whether images come as pixel buffers.
        batch: One size, a range, or a list of sizes.
    """

    half: bool = True
    image: bool = False
    batch: Literal["fixed", "dynamic", "enumerated"] = "fixed"


def convert(spec: ModelSpec, exported: torch.export.ExportedProgram, wishes: Wishes) -> Any:
    """The model as a `coremltools.models.MLModel` that was not loaded.

    Raises:
        UsageError: If the model cannot be as wished.
        ExportError: If coremltools cannot convert it.
    """
    with quiet():
        import coremltools as ct
        import numpy as np

        _teach_gelu()
        _teach_division()
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
                _without_idle_expands(exported.run_decompositions(_decompositions.table())),
                convert_to="mlprogram",
                minimum_deployment_target=ct.target.iOS18 if wishes.batch == "enumerated" else ct.target.iOS17,
                compute_precision=float16 if wishes.half else ct.precision.FLOAT32,
                inputs=takes,
                outputs=gives,
                skip_model_load=True,
            )
        except Exception as error:  # coremltools raises whatever its frontend met
            raise ExportError(f"coremltools cannot convert '{spec.name}': {causes.why(error, exported)}") from error


def _refuse_other_names(spec: ModelSpec) -> None:
    """Refuse names that coremltools would change: those that the program's language reserves, and dots."""
    from coremltools.converters.mil.mil.passes.defs.preprocess import NameSanitizer

    names = [*(i.name for i in spec.inputs), *(o.name for o in spec.outputs)]
    kept = NameSanitizer()
    if lost := next((n for n in names if kept.sanitize_name(n, allow_prefix_underscore=True) != n), None):
        raise ExportError(
            f"Core ML cannot have '{lost}' as the name of an input or output of '{spec.name}': give it another name"
        )


def batches(axis: Axis) -> list[int]:
    """The batch sizes of a list: those that the grid proves."""
    return sorted({min(max(b, axis.minimum), axis.maximum) for b in (*BATCHES, axis.default)})


def _features(spec: ModelSpec) -> Callable[[Any], bool]:
    """Which operators may run in fp16: all but those between the features and the outputs that decide.

    fp16 has 2,048 numbers in [0.5, 1]: sure scores become equal, and top-K then takes the first of them. The head is a
    few hundred numbers an image, and top-K leaves the accelerator anyway. Walking back from the deciding outputs it
    ends at weighted operators and at values that are wider than `WIDTH_OF_HEAD` numbers a score.
    """
    deciding = [n for n, o in enumerate(spec.outputs) if o.role in ORDERED]
    head: set[Any] = set()
    found: list[bool] = []

    def in_features(operation: Any) -> bool:
        block = operation.enclosing_block
        while getattr(block, "outer_op", None) is not None:
            block = block.outer_op.enclosing_block
        if not found:  # the pass asks before it changes anything
            found.append(True)
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
            for given in operation.inputs.values():
                waiting += [v.op for v in (given if isinstance(given, (list, tuple)) else [given])]


def _elements(value: Any) -> int:
    """How many numbers an image has in a value; sizes that are open count as one."""
    return prod(int(n) for n in value.shape if str(n).isdigit())


def _without_idle_expands(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The graph without `expand`s to the same sizes: coremltools tiles them, and so opens sizes that were fixed."""
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
    """Coremltools drops the keyword of a captured `gelu(x, approximate="tanh")` and converts the exact one."""
    from coremltools.converters.mil import Builder
    from coremltools.converters.mil.frontend.torch import register_torch_op

    def gelu(context: Any, node: Any) -> None:
        tanh = "tanh" in (node.kwinputs or {}).get("approximate", ())
        mode = "TANH_APPROXIMATION" if tanh else "EXACT"
        context.add(Builder.gelu(x=context[node.inputs[0]], mode=mode, name=node.name))

    register_torch_op(gelu, override=True)


def _teach_division() -> None:
    """Coremltools divides integers in fp32, and what is rounded stays so: an index is none then."""
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


def _takes(spec: ModelSpec, wishes: Wishes) -> list[Any]:
    """The inputs as coremltools' types: tensors, or images with the model's scaling inside the package."""
    import coremltools as ct
    import numpy as np

    images = [i.name for i in spec.inputs if i.kind == "image" and wishes.image]
    if wishes.image and (not images or wishes.batch != "fixed"):
        raise UsageError("-O coreml.image_input=image needs a model with an image input and -O coreml.batch=fixed")
    axis = spec.axes.get(BATCH, Axis(1))
    symbol = ct.RangeDim(axis.minimum, axis.maximum, axis.default) if wishes.batch == "dynamic" else None
    made: list[Any] = []
    for i in spec.inputs:
        shape = spec.shape(i.name)
        if not shape:
            raise ExportError(f"Core ML takes no input without axes, as '{i.name}' of '{spec.name}' is: make it [1]")
        sizes: Any = shape
        if symbol is not None:
            sizes = ct.Shape([symbol if d == BATCH else n for d, n in zip(i.shape, shape, strict=True)])
        elif wishes.batch == "enumerated" and BATCH in i.shape:
            sizes = ct.EnumeratedShapes([spec.shape(i.name, {BATCH: b}) for b in batches(axis)], default=shape)
        kind = np.float32 if np.dtype(i.dtype).kind == "f" else np.int32
        made.append(_image(i, shape) if i.name in images else ct.TensorType(i.name, sizes, kind))
    return made


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in the interpreter, or in Core ML itself on macOS."""
    return open_package(artifact, place.name)


def _image(declared: Input, shape: tuple[int, ...]) -> Any:
    import coremltools as ct

    if len(shape) != 4 or shape[:2] != (1, 3):
        raise UsageError(f"the input '{declared.name}' of the shape {shape} is not an image: it must be [1, 3, H, W]")
    scale = (declared.high - declared.low) / BYTE
    return ct.ImageType(declared.name, shape, scale=scale, bias=[declared.low] * 3, color_layout=ct.colorlayout.RGB)
