"""What this host has: versions, devices, and what can be exported and verified here."""

from __future__ import annotations

import platform
from importlib import metadata

from edgekit import registry
from edgekit.onnxgraph import saturation
from edgekit.reference.record import host

LIBRARIES = ("edgekit", "torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "coremltools", "executorch")


def examine() -> dict[str, dict[str, str]]:
    """Titles -> names -> what was found."""
    import torch

    versions = {"python": platform.python_version()} | {name: _version(name) for name in LIBRARIES}
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none visible to PyTorch"
    targets, broken = registry.loadable()
    states = dict(broken)
    for name, target in targets.items():
        needs = registry.missing(target)
        states[name] = f"needs {needs[0].module}: {needs[0].install}" if needs else "installed"
    return {
        "versions": versions,
        "host": host() | {"cuda device": cuda, "int8 arithmetic": saturation.processor().name},
        "targets": dict(sorted(states.items())),
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
