"""Core AI with INT8 weights: what `coreai` holds, about a quarter of its size.

Weights of linear layers and convolutions are stored in 8 bits (symmetric, a scale a channel), and Core AI unpacks them.
Arithmetic stays fp32, so that no ranges of activations are needed; it is not faster by itself.

The operator that unpacks is the one that Apple's coreai-opt puts in. Its quantizer (0.3.0) is not used: it leaves
dropout in its training form, which coreai-torch then refuses, and refuses a module that applies one ReLU twice.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ExportError
from edgekit.model import causes
from edgekit.model.graph import to_tensors
from edgekit.model.program import load_program
from edgekit.model.shapes import example_sizes
from edgekit.model.source import load_model
from edgekit.model.spec import ModelSpec
from edgekit.model.weights import weights_digest
from edgekit.runtime.coreai import DEVICE, LINUX, CoreaiRuntime
from edgekit.target import INT8, Exported, Job, Need, Place, Runtime, Target
from edgekit_targets import _coreai, _decompositions

if TYPE_CHECKING:
    import torch

ENTRY = "model.aimodel"
LAYERS = ("aten.linear.default", "aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
"""Operators whose second argument is a weight with output channels on its first axis."""
SMALLEST = 2048  # elements: smaller weights stay as they are; they save nothing
LEVELS = 127


def export(source: Path, out: Path, job: Job) -> Exported:
    """Captured program -> model.aimodel with INT8 weights.

    Raises:
        ExportError: If it cannot be captured with packed weights, or there is none to pack.
    """
    spec = load_model(job.model)
    job.progress(0.1, "rounding the weights")
    exported, layers = _quantized(spec, load_program(source).exported)
    job.progress(0.4, "decomposing the graph")
    exported = _coreai.taken_apart(spec, exported)
    job.progress(0.6, "converting to Core AI")
    program = _coreai.converted(spec, exported)
    job.progress(0.9, "writing the asset")
    _coreai.write(program, out / ENTRY, spec, _coreai.described(spec, weights_digest(spec)))
    note = f"INT8 weights in {layers} linear and convolution layers, a scale a channel; the arithmetic is fp32"
    return Exported(precision="int8", entry=ENTRY, dynamic=job.dynamic, notes=(note,))


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in Core AI's runtime for Linux, or in the system's own on macOS."""
    return CoreaiRuntime(artifact, ENTRY, place.name)


def _quantized(spec: ModelSpec, exported: torch.export.ExportedProgram) -> tuple[torch.export.ExportedProgram, int]:
    """The program with packed weights, and how many they are."""
    import torch

    module = exported.module()
    if not isinstance(module, torch.fx.GraphModule):
        raise ExportError(f"the program of '{spec.name}' holds no graph: run `edgekit export` again")
    _decompositions.drop_detach(module)
    arguments = to_tensors(spec, spec.random(seed=0, sizes=example_sizes(spec.axes)))
    any_size = torch.export.Dim.AUTO
    shapes = tuple({d: any_size for d, size in enumerate(i.shape) if isinstance(size, str)} for i in spec.inputs)
    with _coreai.quiet(), torch.no_grad():
        layers = _pack(module)
        if not layers:
            raise ExportError(
                f"'{spec.name}' has no linear or convolution layer with {SMALLEST} weights or more: use coreai"
            )
        try:
            return torch.export.export(module, arguments, dynamic_shapes=shapes), layers
        except Exception as error:
            raise ExportError(
                f"'{spec.name}' cannot be captured with packed weights: {causes.why(error, exported)}"
            ) from error


def _pack(module: torch.fx.GraphModule) -> int:
    """Put integers and scales in the place of weights; returns how many layers read them."""
    import coreai_torch._compression.custom_layers  # noqa: F401 - declares the operator that unpacks
    import torch

    unpack = torch.ops.coreai.constexpr_blockwise_shift_scale.default
    packed: dict[torch.fx.Node, torch.fx.Node] = {}
    layers = 0
    for node in list(module.graph.nodes):
        if str(node.target) not in LAYERS or node.args[1].op != "get_attr":
            continue
        held = node.args[1]
        weight = operator.attrgetter(str(held.target))(module)
        if weight.numel() < SMALLEST or weight.dtype != torch.float32:
            continue
        if held not in packed:
            scale = weight.abs().amax(dim=tuple(range(1, weight.dim())), keepdim=True) / LEVELS
            scale = torch.where(scale > 0, scale, torch.ones_like(scale))
            name = str(held.target).replace(".", "_")
            module.register_buffer(f"{name}_packed", torch.round(weight / scale).to(torch.int8))
            module.register_buffer(f"{name}_scale", scale)
            with module.graph.inserting_before(node):
                parts = (module.graph.get_attr(f"{name}_packed"), module.graph.get_attr(f"{name}_scale"))
                packed[held] = module.graph.call_function(unpack, (*parts, None, None, torch.int8))
        node.replace_input_with(held, packed[held])
        layers += 1
    module.graph.eliminate_dead_code()
    module.recompile()
    return layers


TARGET = Target(
    summary="Core AI (.aimodel) with INT8 weights, dynamic batch and size",
    choose_for="the same as `coreai`, about a quarter of the size",
    proved_by="Core AI's CPU runtime for Linux, of Apple's own wheel",
    not_proved="Apple's hardware",
    source="program",
    export=export,
    load=load,
    places=tuple(Place(name=name, tolerance=INT8, timed=False) for name in (LINUX, DEVICE)),
    needs=(Need("coreai_torch", "coreai"), Need("coreai_opt", "coreai"), Need("psutil", "coreai")),
    groups=("apple",),
)
