"""The inference server: pictures, words and the Open Inference Protocol."""

from __future__ import annotations

from edgekit.doors import Command

SERVE = Command(
    name="serve",
    panel="Ship",
    summary="Answer requests with verified artifacts.",
    function="edgekit_serve.command:serve",
)
