"""Core AI with INT8 weights: the program of `coreai`, about a quarter of its size.

Weights of linear layers and convolutions are stored in 8 bits (symmetric, one scale per channel), and Core AI unpacks
them. Arithmetic stays fp32, so no ranges of activations are needed, and the artifact is not faster. By option they are
indices of 8, 6 or 4 bits into a table of values for each 32 output channels (palettisation).

The operators that unpack are those of Apple's coreai-opt. Its quantizer (0.3.0) is not used. It leaves dropout in its
training form, which coreai-torch then refuses. It also refuses a module that applies one ReLU twice.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import ExportError
from edgekit.model import capture_errors as causes
from edgekit.model import decompositions as _decompositions
from edgekit.model.adapter import to_tensors
from edgekit.model.folder import load_model
from edgekit.model.graph import Program
from edgekit.model.shapes import example_sizes
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.model.spec import ModelSpec
from edgekit.target import INT8, ExportResult, Job, Option, Place, Target, TargetDescription
from edgekit_targets.coreai.export import (
    ENTRY,
    NEEDS,
    SHAPES,
    convert,
    decompose,
    load,
    metadata_of,
    open_axes,
    program_of,
    quiet,
    size_notes,
    sizes_of,
    write,
)
from edgekit_targets.coreai.runtime import DEVICE, LINUX

if TYPE_CHECKING:
    import torch

LAYERS = ("aten.linear.default", "aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
"""Operators whose second argument is a weight with output channels on its first axis."""
# In elements. Smaller weights save nothing.
SMALLEST = 2048
LEVELS = 127
# Output channels that share a table, where it divides their count. Otherwise all channels of a layer share one.
GROUP = 32
PALETTES = {"palette8": 8, "palette6": 6, "palette4": 4}
WEIGHTS = Option(
    name="weights",
    default="int8",
    help="INT8 with one scale per channel, or indices of so many bits into tables of values",
    choices=("int8", *PALETTES),
)


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the captured program to `model.aimodel` with INT8 weights.

    Raises:
        ExportError: If the program cannot be captured with packed weights, or has no weights to pack.
    """
    spec, weights = load_model(job.model), job.get(WEIGHTS)
    sizes = sizes_of(spec, job)
    bits, captured = PALETTES.get(weights), program_of(source, spec, job)
    job.progress(0.1, "rounding the weights")
    exported, layers = _quantize(spec, captured, bits)
    job.progress(0.4, "decomposing the graph")
    exported = decompose(spec, exported)
    job.progress(0.6, "converting to Core AI")
    program = convert(spec, exported, sizes)
    job.progress(0.9, "writing the asset")
    write(program, out / ENTRY, spec, metadata_of(spec, weights_digest(spec)))
    how = "INT8 weights" if bits is None else f"weights as indices of {bits} bits"
    scaled = "one scale per channel" if bits is None else f"a table of {2**bits} values for each {GROUP} channels"
    note = f"{how} in {layers} linear and convolution layers, {scaled}; the arithmetic is fp32"
    return ExportResult(
        precision="int8",
        entry=ENTRY,
        dynamic=open_axes(captured, sizes),
        sizes=sizes,
        notes=(note, *size_notes(sizes)),
    )


def _quantize(spec: ModelSpec, captured: Program, bits: int | None) -> tuple[torch.export.ExportedProgram, int]:
    """Return the program with packed weights, and their count."""
    import torch

    module = captured.exported.module()
    if not isinstance(module, torch.fx.GraphModule):
        raise ExportError(f"the program of '{spec.name}' holds no graph. Run `edgekit export` again")
    _decompositions.drop_detach(module)
    arguments = to_tensors(spec, spec.random(seed=0, sizes=example_sizes(spec.axes) if captured.dynamic else {}))
    any_size = torch.export.Dim.AUTO if captured.dynamic else None
    shapes = tuple({d: any_size for d, size in enumerate(i.shape) if isinstance(size, str)} for i in spec.inputs)
    with quiet(), torch.no_grad():
        layers = _pack(module, bits)
        if not layers:
            raise ExportError(
                f"'{spec.name}' has no linear or convolution layer with {SMALLEST} weights or more. Use coreai"
            )
        try:
            return torch.export.export(module, arguments, dynamic_shapes=shapes), layers
        except Exception as error:
            raise ExportError(
                f"'{spec.name}' cannot be captured with packed weights: {causes.why(error, captured.exported)}"
            ) from error


def _pack(module: torch.fx.GraphModule, bits: int | None) -> int:
    """Replace weights with integers and scales or tables, and return how many layers read them."""
    import coreai_torch._compression.custom_layers  # noqa: F401 - declares the operators that unpack
    import torch

    packed: dict[torch.fx.Node, torch.fx.Node] = {}
    layers = 0
    for node in list(module.graph.nodes):
        if str(node.target) not in LAYERS or node.args[1].op != "get_attr":
            continue
        arg = node.args[1]
        weight = operator.attrgetter(str(arg.target))(module)
        if weight.numel() < SMALLEST or weight.dtype != torch.float32:
            continue
        if arg not in packed:
            name = str(arg.target).replace(".", "_")
            with module.graph.inserting_before(node):
                store = _scaled_weight if bits is None else _lookup_weight
                packed[arg] = store(module, name, weight, bits or 0)
        node.replace_input_with(arg, packed[arg])
        layers += 1
    module.graph.eliminate_dead_code()
    module.recompile()
    return layers


def _scaled_weight(module: torch.fx.GraphModule, name: str, weight: torch.Tensor, _: int) -> torch.fx.Node:
    """Store a weight as INT8 with one scale for each output channel."""
    import torch

    scale = weight.abs().amax(dim=tuple(range(1, weight.dim())), keepdim=True) / LEVELS
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    module.register_buffer(f"{name}_packed", torch.round(weight / scale).to(torch.int8))
    module.register_buffer(f"{name}_scale", scale)
    parts = (module.graph.get_attr(f"{name}_packed"), module.graph.get_attr(f"{name}_scale"))
    unpack = torch.ops.coreai.constexpr_blockwise_shift_scale.default
    return module.graph.call_function(unpack, (*parts, None, None, torch.int8))


def _lookup_weight(module: torch.fx.GraphModule, name: str, weight: torch.Tensor, bits: int) -> torch.fx.Node:
    """Store a weight as indices and tables.

    coreai-torch packs indices of fewer than 8 bits if their names have `indices` and `lut`.
    """
    import torch

    channels = weight.shape[0]
    groups = np.split(weight.numpy(), channels // GROUP if channels % GROUP == 0 else 1)
    tables = [table(group, 2**bits) for group in groups]
    bounds = np.concatenate([indices(g, values) for g, values in zip(groups, tables, strict=True)])
    shape = (len(tables), *(1 for _ in weight.shape[1:]), 2**bits, 1)
    module.register_buffer(f"{name}_indices", torch.from_numpy(bounds))
    module.register_buffer(f"{name}_lut", torch.from_numpy(np.stack(tables)).reshape(shape))
    parts = (module.graph.get_attr(f"{name}_indices"), module.graph.get_attr(f"{name}_lut"))
    return module.graph.call_function(torch.ops.coreai.lut_to_dense.default, (*parts, 0))


BINS = 4096
PASSES = 100
"""Most passes of Lloyd's algorithm. In one dimension the values hardly move after so many."""


def table(weights: np.ndarray, size: int) -> np.ndarray:
    """Return the values that replace weights with the least squared error, as Lloyd's algorithm finds them.

    It starts with the values of Panter and Dite's approximation, whose density is the cube root of the weights' own
    (Proceedings of the IRE, 1951).

    Args:
        weights: float32, any shape.
        size: Values in the table.

    Returns:
        float32, shape (size,), in rising order.
    """
    ordered = np.sort(weights.astype(np.float64), axis=None)
    counts, edges = np.histogram(ordered, BINS)
    share = np.concatenate([[0.0], np.cumsum(np.cbrt(counts))])
    values = np.interp((np.arange(size) + 0.5) / size * share[-1], share, edges)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    for _ in range(PASSES):
        bounds = np.concatenate([[0], np.searchsorted(ordered, _halfway(values)), [len(ordered)]])
        widths = np.diff(bounds)
        means = np.where(widths > 0, np.diff(sums[bounds]) / np.maximum(widths, 1), values)
        if np.array_equal(means, values):
            break
        values = np.sort(means)
    return np.asarray(values, np.float32)


def indices(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the index of the nearest value for each weight: uint8, in the weights' shape.

    Args:
        weights: float32, any shape.
        values: A table, in rising order, of at most 256 values.
    """
    return np.searchsorted(_halfway(values), weights).astype(np.uint8)


def _halfway(values: np.ndarray) -> np.ndarray:
    return np.asarray((values[1:] + values[:-1]) / 2)


TARGET = Target(
    summary="Core AI (.aimodel) with INT8 weights, dynamic batch and size",
    about=TargetDescription(
        use_case="the same as `coreai`, about a quarter of the size",
        proved_by="Core AI's CPU runtime for Linux, of Apple's own wheel",
        not_covered="Apple's hardware",
        audience="ios",
    ),
    source="program",
    export=export,
    load=load,
    places=tuple(Place(name=name, tolerance=INT8, timed=False) for name in (LINUX, DEVICE)),
    needs=NEEDS,
    groups=("apple",),
    options=(WEIGHTS, SHAPES),
)
