"""Core AI (`.aimodel`) for iOS 27, macOS 27 and later: Apple's successor of Core ML, fp32 by default.

It comes from the captured program through coreai-torch and keeps its dynamic axes. On Linux the CPU runtime in Apple's
own wheel proves the saved asset. That runtime multiplies fp16 matrices hundreds of times slower than fp32 ones. So a
Mac or a device must prove an fp16 program with large matrix products, and fp32 is the default.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ExportError, UsageError
from edgekit.model import capture_errors as causes
from edgekit.model.conditions import select_branches
from edgekit.model.folder import load_model
from edgekit.model.graph import Program, capture
from edgekit.model.program import load_program
from edgekit.model.shapes import fixed_sizes, size_text
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.model.spec import ModelSpec
from edgekit.target import FP16, FP32, ExportResult, Job, Need, Option, Place, Runtime, Target, TargetDescription
from edgekit_targets.coreai.runtime import DEVICE, FUNCTION, LINUX, SLOW, CoreaiRuntime, size_key

if TYPE_CHECKING:
    import torch

PRECISION = Option(name="precision", default="fp32", help="of weights and arithmetic", choices=("fp32", "fp16"))
HALF = "weights and arithmetic are fp16; inputs and outputs are fp32"
ENTRY = "model.aimodel"
NEEDS = (Need("coreai_torch", "coreai"), Need("coreai_opt", "coreai"), Need("psutil", "coreai"))
METADATA = "metadata.json"
DATE = "creationDate"
# Of the sha256 of the weights, which give the version.
VERSION_DIGITS = 12
SHAPES = Option(
    name="shapes",
    default="dynamic",
    choices=("dynamic", "static", "enumerated"),
    help="open batch and size, or fixed ones for the Neural Engine: the example's, or a function for each grid size",
)
# The argument of `aten.avg_pool2d` that says how sizes are rounded.
CEIL = 4
# Of the sha256 of a constant, which give its name.
NAME_DIGITS = 16


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the captured program to `model.aimodel`."""
    spec, half = load_model(job.model), job.get(PRECISION) == "fp16"
    sizes = sizes_of(spec, job)
    captured = program_of(source, spec, job)
    job.progress(0.1, "decomposing the graph")
    exported = decompose(spec, captured.exported)
    more = metadata_of(spec, weights_digest(spec))
    if half:
        job.progress(0.3, "casting to fp16")
        exported = to_fp16(exported)
        more[SLOW] = f"{fp16_products(exported):.3f}"
    job.progress(0.5, "converting to Core AI")
    program = convert(spec, exported, sizes)
    job.progress(0.9, "writing the asset")
    write(program, out / ENTRY, spec, more)
    return ExportResult(
        precision="fp16" if half else "fp32",
        entry=ENTRY,
        dynamic=open_axes(captured, sizes),
        sizes=sizes,
        notes=((HALF,) if half else ()) + size_notes(sizes),
    )


def convert(spec: ModelSpec, exported: torch.export.ExportedProgram, sizes: Sequence[Mapping[str, int]] = ()) -> Any:
    """Return the program as a `coreai.authoring.AIProgram` with the model's names of inputs and outputs.

    Args:
        spec: The model.
        exported: The captured program. It must have open sizes where `sizes` are given.
        sizes: Sizes of all axes but the batch. Each gets a function, instead of one function with open sizes.

    Raises:
        ExportError: If coreai-torch cannot convert it.
    """
    with quiet(), _same_names():
        from coreai_torch import TorchConverter

        # In its other mode the program holds paths and lines of source files.
        converter = TorchConverter(mode=TorchConverter.Mode.RELEASE)
        names = {"input_names": [i.name for i in spec.inputs], "output_names": [o.name for o in spec.outputs]}
        try:
            program = converter.add_exported_program(exported, **names).to_coreai()
            if sizes:
                # The shapes of inputs by the key of each size. The batch is at its default.
                declared = {i.name: i.shape for i in spec.inputs}
                vary = [name for name, shape in declared.items() if any(isinstance(size, str) for size in shape)]
                shapes = {size_key(declared.values(), s): {name: spec.shape(name, s) for name in vary} for s in sizes}
                program.set_static_shape_config(FUNCTION, shapes)
        # It raises whatever its lowering met.
        except Exception as error:
            raise ExportError(f"coreai-torch cannot convert '{spec.name}': {causes.why(error, exported)}") from error
    return program


def sizes_of(spec: ModelSpec, job: Job) -> tuple[Mapping[str, int], ...]:
    """Return the sizes of the grid that get one function each. Empty unless the option enumerates them.

    Raises:
        UsageError: If the model takes one size.
    """
    if job.get(SHAPES) != "enumerated":
        return ()
    sizes = fixed_sizes(spec.axes)
    if len(sizes) < 2:
        raise UsageError(f"'{spec.name}' takes only one size. Use shapes=static instead of shapes=enumerated")
    return sizes


def open_axes(captured: Program, sizes: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """Return the axes that take several sizes."""
    return tuple(n for n in captured.dynamic if not sizes or len({size.get(n) for size in sizes}) > 1)


def size_notes(sizes: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """Return the note about enumerated sizes."""
    sizes_text = ", ".join(map(size_text, sizes))
    return (
        (f"a function for each of the sizes {sizes_text} ({', '.join(sizes[0])}); the batch is fixed",) if sizes else ()
    )


def program_of(source: Path, spec: ModelSpec, job: Job) -> Program:
    """Return the captured program, or one whose sizes are all fixed where the option asks for it."""
    return capture(spec, dynamic=False) if job.get(SHAPES) == "static" else load_program(source)


def decompose(spec: ModelSpec, exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return the program in the operators that coreai-torch lowers.

    Raises:
        ExportError: If PyTorch cannot decompose it.
    """
    with quiet():
        from coreai_torch import get_decomp_table

        try:
            exported_program: torch.export.ExportedProgram = select_branches(exported).run_decompositions(
                {**get_decomp_table(), **_more()}
            )
        except Exception as error:
            raise ExportError(f"PyTorch cannot decompose '{spec.name}': {causes.why(error, exported)}") from error
    _write_out_pools(exported_program.graph)
    exported_program.graph_module.recompile()
    return exported_program


def _more() -> dict[Any, Any]:
    """Return decompositions that coreai-torch lacks.

    PyTorch's own decomposition of a pool over rows ends in `as_strided`, which coreai-torch cannot lower.
    """
    import torch

    def pool(x: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
        if list(output_size) == [1]:
            return x.mean(-1, keepdim=True)
        return torch.nn.functional.adaptive_avg_pool2d(x.unsqueeze(-2), (1, output_size[0])).squeeze(-2)

    return {torch.ops.aten.adaptive_avg_pool1d.default: pool}


def _write_out_pools(graph: torch.fx.Graph) -> None:
    """Write out mean pools that round sizes up.

    Where one window covers the picture, coreai-torch makes it empty, so a mean replaces it. For others coreai-torch
    needs the argument that says whether padding counts, which PyTorch leaves out where it does.
    """
    import torch

    aten = torch.ops.aten
    for node in graph.nodes:
        if node.target is not aten.avg_pool2d.default or len(node.args) <= CEIL:
            continue
        x, kernel, _, padding = node.args[:CEIL]
        sizes = x.meta["val"].shape[2:]
        is_single_window = all(isinstance(size, int) and size <= side for size, side in zip(sizes, kernel, strict=True))
        if is_single_window and node.args[CEIL] and not any(padding) and node.args[CEIL + 2 :] in ((), (None,)):
            node.target, node.args = aten.mean.dim, (x, [2, 3], True)
        elif len(node.args) == CEIL + 1:
            node.args = (*node.args, True)


def to_fp16(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Cast weights and arithmetic to fp16, by Apple's own pass. Inputs and outputs stay fp32."""
    import torch

    with quiet():
        from coreai_opt.casting.casting import cast_fp32_to_fp16

        exported_program: torch.export.ExportedProgram = cast_fp32_to_fp16(exported)
    graph, copy = exported_program.graph, torch.ops.aten._to_copy.default
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node in placeholders:
        half = node.meta.get("val")
        if node.name in exported_program.graph_signature.user_inputs and getattr(half, "dtype", None) == torch.float16:
            with graph.inserting_after(placeholders[-1]):
                cast = graph.call_function(copy, (node,), {"dtype": torch.float16})
            node.replace_all_uses_with(cast, delete_user_cb=lambda user, cast=cast: user is not cast)
            cast.meta["val"], node.meta["val"] = half, half.to(torch.float32)
    answer = graph.output_node()
    outputs = list(answer.args[0])
    for number, (declared, node) in enumerate(zip(exported_program.graph_signature.output_specs, outputs, strict=True)):
        if node.meta["val"].dtype == torch.float16:
            with graph.inserting_before(answer):
                outputs[number] = graph.call_function(copy, (node,), {"dtype": torch.float32})
            outputs[number].meta["val"] = node.meta["val"].to(torch.float32)
            declared.arg = torch.export.graph_signature.TensorArgument(name=outputs[number].name)
    answer.args = (tuple(outputs),)
    exported_program.graph_module.recompile()
    return exported_program


def fp16_products(exported: torch.export.ExportedProgram) -> float:
    """Return the count of multiplications in fp16 matrix products, in millions, at the captured sizes."""
    import torch

    aten = torch.ops.aten
    kinds = {aten.mm.default, aten.bmm.default, aten.addmm.default, aten.linear.default, aten.matmul.default}
    total = 0.0
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        if getattr(value, "dtype", None) != torch.float16:
            continue
        if node.target in kinds:
            first = node.args[1 if node.target is aten.addmm.default else 0].meta["val"]
            total += math.prod(_sizes(value)) * _sizes(first)[-1]
        elif node.target is aten.scaled_dot_product_attention.default:
            keys = _sizes(node.args[1].meta["val"])
            total += 2 * math.prod(_sizes(value)) * keys[-2]
    return total / 1e6


def _sizes(value: Any) -> list[int]:
    return [int(size) if isinstance(size, int) else int(size.node.hint or 1) for size in value.shape]


def metadata_of(spec: ModelSpec, weights: str) -> dict[str, str]:
    """Return an asset's further metadata: the preprocessing, and the version of the weights."""
    return {
        "edgekit.preprocessing": "; ".join(i.preprocessing for i in spec.inputs),
        "edgekit.version": weights[:VERSION_DIGITS],
    }


def write(program: Any, path: Path, spec: ModelSpec, more: Mapping[str, str]) -> None:
    """Save an asset with its description of the model, and without the date.

    Args:
        program: A `coreai.authoring.AIProgram`.
        path: The `.aimodel` folder.
        spec: The model.
        more: Further metadata by name.
    """
    with quiet():
        _name_weights(program)
        asset = program.save_asset(path)

        def describe(metadata: Any) -> None:
            metadata.author, metadata.license = spec.author, spec.licence
            metadata.model_description = spec.description
            for key, value in more.items():
                metadata.set_custom(key, value)

        asset.update_metadata(describe)
    facts = json.loads((path / METADATA).read_text())
    facts.pop(DATE, None)
    (path / METADATA).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")


def _name_weights(program: Any) -> None:
    """Name large constants after their content.

    The compiler names them after a hash that differs in each process.
    """
    from coreai._compiler._mlir_libs._coreaiIR._bindings.compiler import copy_constant_value_to_array
    from coreai._compiler.ir import DenseResourceElementsAttr, WalkResult

    weights: list[Any] = []

    def gather(operation: Any) -> Any:
        if operation.name == "coreai.constant" and DenseResourceElementsAttr.isinstance(operation.attributes["value"]):
            weights.append(operation)
        return WalkResult.ADVANCE

    program._module._mlir_module.operation.walk(gather)
    for operation in weights:
        kind = operation.result.type
        data = np.zeros(math.ceil(math.prod(kind.shape) * kind.element_type.width / 8), np.uint8)
        copy_constant_value_to_array(constant_op=operation, destination=data)
        name = f"weights_{hashlib.sha256(data.tobytes()).hexdigest()[:NAME_DIGITS]}"
        with operation.location.context:
            # No more than its elements need: a file in the heap may have a smaller alignment, and is then refused.
            aligned = max(1, kind.element_type.width // 8)
            operation.attributes["value"] = DenseResourceElementsAttr.get_from_buffer(data, name, kind, aligned)


def load(artifact: Path, place: Place) -> Runtime:
    """Load the artifact in Core AI's runtime for Linux, or in the system's own on macOS."""
    return CoreaiRuntime(artifact, ENTRY, place.name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence coreai-torch's progress and its warnings of local versions of torch, and torchao's warnings."""
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        yield


@contextlib.contextmanager
def _same_names() -> Iterator[None]:
    """Draw the random letters that end the names of inner functions in Core AI's builder from a seed."""
    from coreai.authoring import graph_builder

    choice, graph_builder.choice = graph_builder.choice, random.Random(0).choice  # noqa: S311 - names, no secrets
    try:
        yield
    finally:
        graph_builder.choice = choice


TARGET = Target(
    summary="Core AI (.aimodel) for iOS 27 and later, dynamic batch and size",
    about=TargetDescription(
        use_case="iOS 27 and macOS 27",
        proved_by="Core AI's CPU runtime for Linux, of Apple's own wheel",
        not_covered="Apple's hardware; fp16 programs with large matrix products",
        audience="ios",
    ),
    source="program",
    export=export,
    load=load,
    places=tuple(Place(name=name, tolerance=FP32, limits={"fp16": FP16}, timed=False) for name in (LINUX, DEVICE)),
    needs=NEEDS,
    groups=("apple",),
    options=(PRECISION, SHAPES),
)
