"""Profile a model, inspect an artifact, explain its error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.doors import Command

if TYPE_CHECKING:
    from edgekit_inspect.api import explain, profile

__all__ = ["EXPLAIN", "INSPECT", "PROFILE", "explain", "profile"]

EXPLAIN = Command(
    name="explain",
    panel="Understand",
    summary="Show which modules introduce an artifact's error.",
    function="edgekit_inspect.commands:explain",
)
INSPECT = Command(
    name="inspect",
    panel="Understand",
    summary="Show what an ONNX artifact computes in INT8 and in float, by layer.",
    function="edgekit_inspect.commands:inspect",
)
PROFILE = Command(
    name="profile",
    panel="Understand",
    summary="Time a model in each mode, and show what compiling costs.",
    function="edgekit_inspect.commands:profile",
)


def __getattr__(name: str) -> Any:
    if name not in ("explain", "profile"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    # Not at the top: `edgekit --help` reads this module.
    from edgekit_inspect import api

    return getattr(api, name)
