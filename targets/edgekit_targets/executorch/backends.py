"""ExecuTorch's delegates by name: what lowers for each, and what is missing where none can.

Only XNNPACK's programs run in the runtime of ExecuTorch's wheel for Linux. Vulkan's and Core ML's are lowered here and
run where a build of ExecuTorch has that backend.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.errors import DependencyError, ExportError, install_command
from edgekit.runtime.logs import silent
from edgekit.target import Option
from edgekit_targets.executorch import runtime

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

PACKAGE = re.compile(rb'\{\n    "fileFormatVersion".*?\n\}\n', re.DOTALL)
"""The table of contents of a Core ML package, as coremltools writes it."""
DRAWN = re.compile(rb'(?<="executorch_)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=")')
"""The identifier of a Core ML model in a program, under which a device keeps what it compiled."""


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
    with silent():
        return Delegate(runtime.DELEGATES[BACKENDS[name]], _partitioner(name))


def identified(data: bytes) -> bytes:
    """A program in which identifiers follow from the content; Core ML's parts have some that are drawn by chance.

    Raises:
        ExportError: If a Core ML package is not written as coremltools 9.0 does.
    """
    settled = PACKAGE.sub(_by_path, data)
    digest = hashlib.sha256(DRAWN.sub(b"", settled)).hexdigest()
    own = {
        name: str(uuid.uuid5(uuid.NAMESPACE_OID, f"{digest}{n}"))
        for n, name in enumerate(list(dict.fromkeys(DRAWN.findall(settled))))
    }
    return DRAWN.sub(lambda found: own[found[0]].encode(), settled)


def _by_path(found: re.Match[bytes]) -> bytes:
    """The table of contents with items named by their paths."""
    package = json.loads(found[0])
    entries = package["itemInfoEntries"]
    own = {name: str(uuid.uuid5(uuid.NAMESPACE_OID, entry["path"])) for name, entry in entries.items()}
    package["itemInfoEntries"] = {own[name]: entry for name, entry in entries.items()}
    package["rootModelIdentifier"] = own[package["rootModelIdentifier"]]
    text = json.dumps(package, indent=4, sort_keys=True).encode() + b"\n"
    if len(text) != len(found[0]):
        raise ExportError("the Core ML package in the program is not written as coremltools 9.0 does")
    return text


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
        raise DependencyError(f"executorch.backend=coreml needs {error.name}: {install_command('coreml')}") from error
    specs = CoreMLBackend.generate_compile_specs(
        minimum_deployment_target=coremltools.target.iOS17, compute_precision=coremltools.precision.FLOAT16
    )
    return CoreMLPartitioner(compile_specs=specs)
