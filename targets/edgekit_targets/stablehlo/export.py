"""StableHLO (`jax.export`): the captured program for XLA on CPUs, NVIDIA GPUs and TPUs, its weights beside it.

torchax traces the program in JAX (https://github.com/google/torchax), and JAX serializes the StableHLO with stable
bytes (https://docs.jax.dev/en/latest/export/export.html). Axes stay open as symbols if their limits decide all shapes.
XLA compiles each combination of sizes on its first use.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edgekit.artifact.store import read_artifact
from edgekit.errors import ExportError, reason
from edgekit.model.conditions import select_branches
from edgekit.model.folder import load_model
from edgekit.model.program import load_program
from edgekit.runtime.input_shapes import arguments, require_names
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
from edgekit_targets.inductor.half import to_half
from edgekit_targets.stablehlo.compat import known_overloads
from edgekit_targets.stablehlo.session import DTYPES, WEIGHTS, JaxSession

if TYPE_CHECKING:
    import torch

    from edgekit.model.spec import Array, ModelSpec
    from edgekit.target import Precision

ENTRY, CPU = "model.jax", "jax-cpu"
PLATFORMS = ("cpu", "cuda", "tpu")
PRECISION = Option(name="precision", default="fp32", choices=("fp32", "bf16"), help="of products and of their weights")
IMAGES = Option(
    name="images", default="some", choices=("some", "all"), help="evaluation images and shapes that JAX is judged on"
)
# Of the evaluation set, with other batches reduced in proportion: each combination of sizes is compiled.
IMAGES_JUDGED = 64


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the captured program to `model.jax` and `model.safetensors`.

    Raises:
        ExportError: If torchax has no rule for an operator, or JAX cannot trace it.
    """
    spec, precision = load_model(job.model), job.get(PRECISION)
    program = select_branches(load_program(source).exported)
    to_half(program, precision)
    job.progress(0.1, "tracing the program in JAX")
    weights, function = _in_jax(spec, program)
    job.progress(0.6, "writing StableHLO")
    content, axes, why = _with_open_axes(spec, function, weights)
    (out / ENTRY).write_bytes(content)
    _save_weights(spec, weights, out / WEIGHTS)
    fixed = ", ".join(f"{name} {axis.default}" for name, axis in spec.axes.items() if name not in axes)
    notes = (f"fixed: {fixed}, since JAX cannot decide a shape ({why})",) if fixed else ()
    return ExportResult(precision=cast("Precision", precision), entry=ENTRY, dynamic=axes, notes=notes)


def _with_open_axes(spec: ModelSpec, function: Any, weights: Mapping[str, Any]) -> tuple[bytes, tuple[str, ...], str]:
    """Return the program with all axes open, or the batch alone, or none; the open ones; why no more are.

    Raises:
        ExportError: If JAX cannot trace it at the default sizes.
    """
    batch = tuple(size for size in spec.inputs[0].shape[:1] if isinstance(size, str))
    why = ""
    for axes in dict.fromkeys((tuple(spec.axes), batch, ())):
        try:
            return _serialize(spec, function, weights, axes), axes, why
        except Exception as error:
            why = why or reason(error)
    raise ExportError(f"JAX cannot trace '{spec.name}': {why}")


def _in_jax(spec: ModelSpec, program: torch.export.ExportedProgram) -> tuple[dict[str, Any], Any]:
    """Return a program's weights by name, and a function of weights and inputs, both by name."""
    import torch

    with known_overloads(), warnings.catch_warnings(action="ignore"):
        import torchax.export
    try:
        with warnings.catch_warnings(action="ignore"):
            values, call = torchax.export.exported_program_to_jax(program)
    except Exception as error:
        raise ExportError(f"torchax cannot convert '{spec.name}': {reason(error)}") from error
    finally:
        # torchax makes JAX the default of tensors' factories.
        torch.set_default_device(None)
    names = [
        each.target or each.arg.name for each in program.graph_signature.input_specs if each.kind.name != "USER_INPUT"
    ]
    weights = dict(zip(names, values, strict=True))

    def function(weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        outputs = call([weights[name] for name in names], tuple(inputs[i.name] for i in spec.inputs))
        return dict(zip((o.name for o in spec.outputs), outputs, strict=True))

    return weights, function


def _serialize(spec: ModelSpec, function: Any, weights: Mapping[str, Any], axes: Collection[str]) -> bytes:
    import jax
    import jax.export

    symbols = {name: f"s{number}" for number, name in enumerate(axes)}
    sizes = {name: spec.axes[name].sizes for name in axes}
    steps = {name: spec.axes[name].multiple_of for name in axes}
    least = {name: sizes[name].start // steps[name] for name in axes}
    limits = [f"{symbols[name]} >= {least[name]}" for name in axes]
    limits += [f"{symbols[name]} <= {sizes[name][-1] // steps[name]}" for name in axes]
    # A product of two sizes is the count of a picture's patches, of which a model takes the first few.
    limits += [f"{symbols[a]}*{symbols[b]} >= {least[a] * least[b]}" for a, b in combinations(axes, 2)]
    scope = jax.export.SymbolicScope(limits)

    def dimension(size: int | str) -> str:
        if isinstance(size, int):
            return str(size)
        if size not in symbols:
            return str(spec.axes[size].default)
        return symbols[size] if steps[size] == 1 else f"{steps[size]}*{symbols[size]}"

    inputs = {
        i.name: jax.ShapeDtypeStruct(
            jax.export.symbolic_shape(", ".join(map(dimension, i.shape)), scope=scope),
            jax.dtypes.canonicalize_dtype(i.dtype),
        )
        for i in spec.inputs
    }
    weight_types = {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in weights.items()}
    with jax.default_matmul_precision("highest"), warnings.catch_warnings(action="ignore"):
        program = jax.export.export(jax.jit(function), platforms=PLATFORMS)(weight_types, inputs)
    return bytes(program.serialize())


def _save_weights(spec: ModelSpec, weights: Mapping[str, Any], path: Path) -> None:
    import jax.numpy as jnp
    from safetensors.flax import save

    dtypes = {output.name: output.dtype for output in spec.outputs}
    path.write_bytes(save({n: jnp.asarray(value) for n, value in weights.items()}, {DTYPES: json.dumps(dtypes)}))


class StablehloRuntime(JaxSession):
    """A `.jax` file: the entry of an artifact.

    Raises:
        NotVerifiedHere: If JAX is not installed.
        ArtifactError: If JAX refuses the file, or its inputs and outputs differ from the manifest's.
    """

    def __init__(self, folder: Path, entry: str) -> None:
        self._manifest = read_artifact(folder)
        super().__init__(folder / entry)
        require_names(self._manifest, entry, self.inputs, self.outputs)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the outputs of one batch."""
        return super().run(arguments(self._manifest, inputs))


def load(artifact: Path, place: Place) -> Runtime:
    """Load the artifact in JAX, in this process."""
    return StablehloRuntime(artifact, ENTRY)


TARGET = Target(
    summary="StableHLO for JAX and XLA, fp32 or bf16 products, dynamic batch and size",
    about=TargetDescription(
        use_case="servers with JAX: CPUs, NVIDIA GPUs, TPUs",
        proved_by="JAX on the CPU",
        not_covered="TPUs; a GPU unless it is judged there (--place jax)",
    ),
    source="program",
    export=export,
    load=load,
    places=(Place(name=CPU, tolerance=FP32_DELEGATED, limits={"bf16": FP16}, sample=IMAGES_JUDGED),),
    opt_in=True,
    needs=(Need("jax", "xla"), Need("torchax", "xla")),
    options=(PRECISION, IMAGES),
)
