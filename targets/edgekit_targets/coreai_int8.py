"""Core AI with INT8 weights, by Apple's coreai-opt: what `coreai` holds, about a quarter of its size.

Weights of linear layers and convolutions are stored in 8 bits (symmetric, a scale a channel), and Core AI unpacks them.
Arithmetic stays fp32, so that no ranges of activations are needed; it is not faster by itself.
"""

from __future__ import annotations

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
UNPACKED = "coreai.constexpr_blockwise_shift_scale"
"""What stands before a layer whose weights are stored in 8 bits."""


def export(source: Path, out: Path, job: Job) -> Exported:
    """Captured program -> model.aimodel with INT8 weights.

    Raises:
        ExportError: If coreai-opt cannot quantize it, or there is no weight to quantize.
    """
    spec = load_model(job.model)
    job.progress(0.1, "quantizing the weights")
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
        from coreai_opt.quantization import Quantizer, QuantizerConfig

        try:
            quantizer = Quantizer(module, QuantizerConfig.presets.w8())
            quantizer.prepare(arguments, dynamic_shapes=shapes)
            packed = quantizer.finalize()
            made = torch.export.export(packed, arguments, dynamic_shapes=shapes)
        except Exception as error:  # it raises whatever its passes met
            raise ExportError(f"coreai-opt cannot quantize '{spec.name}': {causes.why(error, exported)}") from error
    layers = sum(str(node.target).startswith(UNPACKED) for node in made.graph.nodes)
    if not layers:
        raise ExportError(f"'{spec.name}' has no linear or convolution layer whose weights INT8 could hold: use coreai")
    return made, layers


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
