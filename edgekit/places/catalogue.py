"""Places by name: `RUNTIME`, `RUNTIME@HOST` or `HOST`.

A host is this one, `ssh:USER@HOST`, `ssh:USER@HOST:PYTHON`, or `qemu:arm64`, which is emulated here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from edgekit.errors import UsageError, suggestion

CUDA = "CUDAExecutionProvider"
DEFAULT_RUNTIME = "ort"
ARM64 = "qemu:arm64"


@dataclass(frozen=True)
class Runtime:
    """A runtime with its settings.

    Attributes:
        summary: One line for people.
        kind: What opens an artifact: "onnxruntime" or "openvino".
        settings: What it is opened with, by name; names with a prefix go to the provider or the plug-in as they are.
        install: The command that installs it.
    """

    summary: str
    kind: str = "onnxruntime"
    settings: Mapping[str, str] = field(default_factory=dict)
    install: str = "pip install 'edgekit[cpu]'"


_GPU, _OPENVINO = "pip install 'edgekit[gpu]'", "pip install 'edgekit[openvino]'"
RUNTIMES: Mapping[str, Runtime] = {
    "ort": Runtime("ONNX Runtime on the CPU, as it is by default"),
    "ort-extended": Runtime("the same, without layout changes", settings={"optimization": "enable_extended"}),
    "ort-basic": Runtime("the same, with basic graph optimisations only", settings={"optimization": "enable_basic"}),
    "ort-off": Runtime("the same, without graph optimisations", settings={"optimization": "disable_all"}),
    "ort-cuda": Runtime(
        "ONNX Runtime on an NVIDIA GPU, fp32 without TF32",
        settings={"provider": CUDA, "provider.use_tf32": "0"},
        install=_GPU,
    ),
    "ort-cuda-tf32": Runtime(
        "the same as it is by default, with TF32",
        settings={"provider": CUDA, "provider.use_tf32": "1"},
        install=_GPU,
    ),
    "openvino": Runtime(
        "OpenVINO on the CPU, in fp32",
        kind="openvino",
        settings={"property.INFERENCE_PRECISION_HINT": "f32"},
        install=_OPENVINO,
    ),
}
_SSH = re.compile(r"ssh:(?P<host>[A-Za-z0-9_.][A-Za-z0-9_.@\-\[\]]*)(?::(?P<python>[^:\s]+))?")


@dataclass(frozen=True)
class Elsewhere:
    """A runtime on a host.

    Attributes:
        name: As reports print it: the runtime, and the host if it is not this one.
        runtime: Name of the runtime.
        host: Of an ssh host, as ssh takes it; empty for this host.
        python: The Python there.
        emulated: Whether an arm64 processor is emulated on this host: its answers count, its times mean nothing.
    """

    name: str
    runtime: str
    host: str = ""
    python: str = "python3"
    emulated: bool = False

    @property
    def settings(self) -> Mapping[str, str]:
        """Of the runtime. An emulated host runs one thread: threads that wait for each other take all of its time."""
        own = RUNTIMES[self.runtime].settings
        return {**own, "threads": "1"} if self.emulated else own


def elsewhere(name: str) -> Elsewhere:
    """A place by its name.

    Raises:
        UsageError: If there is no such runtime or host.
    """
    hosted = name.startswith(("ssh:", "qemu:"))
    runtime, at, host = (DEFAULT_RUNTIME, "@", name) if hosted else name.partition("@")
    if runtime not in RUNTIMES:
        raise UsageError(
            f"no place '{name}': {suggestion(runtime, RUNTIMES)}possible are {', '.join(RUNTIMES)}, and each with "
            f"'@ssh:USER@HOST' or '@{ARM64}' behind it"
        )
    if not at:
        return Elsewhere(runtime, runtime)
    if host == ARM64:
        return Elsewhere(f"{runtime}@{ARM64}", runtime, emulated=True)
    found = _SSH.fullmatch(host)
    if found is None:
        raise UsageError(f"no host '{host}': a host is ssh:USER@HOST, ssh:USER@HOST:/path/of/python or {ARM64}")
    return Elsewhere(f"{runtime}@ssh:{found['host']}", runtime, found["host"], found["python"] or "python3")
