"""Profile a model, inspect an artifact, explain its error."""

from __future__ import annotations

from edgekit.doors import Command

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
