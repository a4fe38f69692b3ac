"""Core AI (`.aimodel`) for iOS 27, macOS 27 and later: what Apple puts in Core ML's place, fp32 by default.

It comes from the captured program through coreai-torch and keeps its dynamic axes. On Linux the saved asset is proved
in the CPU runtime that Apple's own wheel brings. That runtime multiplies fp16 matrices hundreds of times slower than
fp32 ones: an fp16 program with large matrix products is left to a Mac or a device, and fp32 is the default.
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
VERSION_DIGITS = 12  # of the weights' sha256 that serve as the version
SHAPES = Option(
    name="shapes",
    default="dynamic",
    choices=("dynamic", "static", "enumerated"),
    help="open batch and size; or for the Neural Engine fixed ones: the example's, or a function for each grid size",
)
CEIL = 4  # the argument of `aten.avg_pool2d` that says how sizes are rounded
NAME_DIGITS = 16  # of the sha256 of a constant that are its name


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Captured program -> model.aimodel."""
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
        exported: With open sizes, where some are enumerated.
        sizes: Of the axes beside the batch: a function for each takes the place of the one with open sizes.

    Raises:
        ExportError: If coreai-torch cannot convert it.
    """
    with quiet(), _same_names():
        from coreai_torch import TorchConverter

        # in its other mode the program holds paths and lines of source files
        converter = TorchConverter(mode=TorchConverter.Mode.RELEASE)
        names = {"input_names": [i.name for i in spec.inputs], "output_names": [o.name for o in spec.outputs]}
        try:
            program = converter.add_exported_program(exported, **names).to_coreai()
            if sizes:
                # The shapes of inputs by the key of each size; the batch is at its default.
                declared = {i.name: i.shape for i in spec.inputs}
                vary = [name for name, shape in declared.items() if any(isinstance(size, str) for size in shape)]
                shapes = {size_key(declared.values(), s): {name: spec.shape(name, s) for name in vary} for s in sizes}
                program.set_static_shape_config(FUNCTION, shapes)
        except Exception as error:  # it raises whatever its lowering met
            raise ExportError(f"coreai-torch cannot convert '{spec.name}': {causes.why(error, exported)}") from error
    return program


def sizes_of(spec: ModelSpec, job: Job) -> tuple[Mapping[str, int], ...]:
    """Return the sizes that get a function each: those of the shape grid, where the option enumerates them; else none.

    Raises:
        UsageError: If the model takes one size.
    """
    if job.get(SHAPES) != "enumerated":
        return ()
    sizes = fixed_sizes(spec.axes)
    if len(sizes) < 2:
        raise UsageError(f"'{spec.name}' takes one size: use shapes=static in place of shapes=enumerated")
    return sizes


def open_axes(captured: Program, sizes: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """Axes that take several sizes."""
    return tuple(n for n in captured.dynamic if not sizes or len({size.get(n) for size in sizes}) > 1)


def size_notes(sizes: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """Return the note of enumerated sizes."""
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
            exported_program: torch.export.ExportedProgram = exported.run_decompositions(
                {**get_decomp_table(), **_more()}
            )
        except Exception as error:
            raise ExportError(f"PyTorch cannot decompose '{spec.name}': {causes.why(error, exported)}") from error
    _write_out_pools(exported_program.graph)
    exported_program.graph_module.recompile()
    return exported_program


def _more() -> dict[Any, Any]:
    """Decompositions beside coreai-torch's: PyTorch's own of a pool over rows ends in `as_strided`, which it lacks."""
    import torch

    def pool(x: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
        if list(output_size) == [1]:
            return x.mean(-1, keepdim=True)
        return torch.nn.functional.adaptive_avg_pool2d(x.unsqueeze(-2), (1, output_size[0])).squeeze(-2)

    return {torch.ops.aten.adaptive_avg_pool1d.default: pool}


def _write_out_pools(graph: torch.fx.Graph) -> None:
    """Mean pools that round sizes up: a mean where one window holds the picture, which coreai-torch makes empty.

    Of others it reads whether padding counts, which PyTorch leaves out where it does.
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
    """Weights and arithmetic in fp16, by Apple's own pass; inputs and outputs stay fp32."""
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
    """Multiplications in fp16 matrix products, in millions, at the sizes that the program was captured with."""
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
    """What an asset's metadata says beside author, licence and description: preprocessing, and the weights' version."""
    return {
        "edgekit.preprocessing": "; ".join(i.preprocessing for i in spec.inputs),
        "edgekit.version": weights[:VERSION_DIGITS],
    }


def write(program: Any, path: Path, spec: ModelSpec, more: Mapping[str, str]) -> None:
    """Save an asset with what it says of the model, and without the date.

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
    """Name large constants after their content: the compiler names them after a hash that differs in each process."""
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
            # no more than its elements need: a file read to the heap may be aligned to less, and is refused then
            aligned = max(1, kind.element_type.width // 8)
            operation.attributes["value"] = DenseResourceElementsAttr.get_from_buffer(data, name, kind, aligned)


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in Core AI's runtime for Linux, or in the system's own on macOS."""
    return CoreaiRuntime(artifact, ENTRY, place.name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Coreai-torch prints what it converts and warns of local versions of torch; torchao warns of its own parts."""
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        yield


@contextlib.contextmanager
def _same_names() -> Iterator[None]:
    """Core AI's builder ends the names of inner functions in random letters: here they are drawn from a seed."""
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
