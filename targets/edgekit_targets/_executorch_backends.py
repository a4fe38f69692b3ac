"""ExecuTorch's delegates by name: what lowers for each, and what is missing where none can.

Only XNNPACK's programs run in the runtime of ExecuTorch's wheel for Linux. Vulkan's and Core ML's are lowered here and
run where a build of ExecuTorch has that backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.errors import DependencyError
from edgekit.runtime import executorch as runtime
from edgekit.target import Option
from edgekit_targets import _executorch

if TYPE_CHECKING:
    from executorch.exir.backend.partitioner import Partitioner

XNNPACK, VULKAN, COREML = "xnnpack", "vulkan", "coreml"
BACKENDS = {XNNPACK: runtime.XNNPACK, VULKAN: runtime.VULKAN, COREML: runtime.COREML}
BACKEND = Option(
    name="backend",
    default=XNNPACK,
    choices=(XNNPACK, VULKAN, COREML, "qnn", "mediatek"),
    help="delegate that runs what it can; of vulkan and coreml (in fp16) no program runs in ExecuTorch's wheel for "
    "Linux, and qnn and mediatek are refused with what they lack",
)
REFUSED = {
    "qnn": "its partitioner needs Qualcomm's AI Engine Direct SDK, which it downloads when it is imported; edgekit "
    "downloads nothing unasked and has lowered nothing with it",
    "mediatek": "its partitioner needs mtk_converter of MediaTek's NeuroPilot SDK, which is on no package index; "
    "edgekit has lowered nothing with it",
}


@dataclass(frozen=True)
class Delegate:
    """One of ExecuTorch's delegates: its name in sentences, and what chooses its part of a graph."""

    words: str
    partitioner: Partitioner


def delegate(name: str) -> Delegate:
    """A delegate by the option's value.

    Raises:
        DependencyError: If nothing can be lowered for it here; the message says what is missing.
    """
    if name in REFUSED:
        raise DependencyError(f"executorch.backend={name} cannot be made here: {REFUSED[name]}")
    with _executorch.quiet():
        return Delegate(runtime.DELEGATES[BACKENDS[name]], _partitioner(name))


def _partitioner(name: str) -> Partitioner:
    if name == XNNPACK:
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        return XnnpackPartitioner()
    if name == VULKAN:
        from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

        return VulkanPartitioner()
    try:
        import coremltools
        from executorch.backends.apple.coreml.compiler import CoreMLBackend
        from executorch.backends.apple.coreml.partition import CoreMLPartitioner
    except ImportError as error:
        raise DependencyError(f"executorch.backend=coreml needs {error.name}: pip install 'edgekit[coreml]'") from error
    specs = CoreMLBackend.generate_compile_specs(
        minimum_deployment_target=coremltools.target.iOS17, compute_precision=coremltools.precision.FLOAT16
    )
    return CoreMLPartitioner(compile_specs=specs)
