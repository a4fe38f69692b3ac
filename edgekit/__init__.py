"""Export of PyTorch models to edge formats, with a verdict on each artifact against a recorded reference.

The public names are those of `__all__`. They are imported at first use, so that `import edgekit` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgekit import metrics
    from edgekit.api import (
        Build,
        TargetOutcome,
        export,
        import_result,
        load,
        local,
        pack,
        quantize,
        record,
        run_request,
        targets,
        verify,
    )
    from edgekit.model.detector import Detector
    from edgekit.model.evaluation_set import join_evaluation_sets
    from edgekit.model.parts import Component, CompositeModel
    from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output
    from edgekit.pipeline.request import Criteria, EvaluationData, ExportRequest, ModelFacts

    __version__: str
    # Of the package `edgekit_check`.
    check: Callable[..., Build]

_API = (
    "Build",
    "TargetOutcome",
    "export",
    "import_result",
    "load",
    "local",
    "pack",
    "quantize",
    "record",
    "run_request",
    "targets",
    "verify",
)
_SPEC = ("Axis", "EvaluationSet", "Input", "ModelSpec", "Output")
_HOMES = dict.fromkeys(_API, "edgekit.api") | dict.fromkeys(_SPEC, "edgekit.model.spec")
_HOMES |= {"Detector": "edgekit.model.detector", "join_evaluation_sets": "edgekit.model.evaluation_set"}
_HOMES |= dict.fromkeys(("Component", "CompositeModel"), "edgekit.model.parts")
_HOMES |= dict.fromkeys(("Criteria", "EvaluationData", "ExportRequest", "ModelFacts"), "edgekit.pipeline.request")

__all__ = [
    "Axis",
    "Build",
    "Component",
    "CompositeModel",
    "Criteria",
    "Detector",
    "EvaluationData",
    "EvaluationSet",
    "ExportRequest",
    "Input",
    "ModelFacts",
    "ModelSpec",
    "Output",
    "TargetOutcome",
    "__version__",
    "check",
    "export",
    "import_result",
    "join_evaluation_sets",
    "load",
    "local",
    "metrics",
    "pack",
    "quantize",
    "record",
    "run_request",
    "targets",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        from edgekit.errors import DISTRIBUTION

        return version(DISTRIBUTION)
    if name == "metrics":
        return import_module("edgekit.metrics")
    if name == "check":
        return import_module("edgekit.doors").hook("check_file")
    if name not in _HOMES:
        raise AttributeError(f"module 'edgekit' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
