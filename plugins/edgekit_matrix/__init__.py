"""Many models on many targets, on this machine or on a Ray cluster."""

from __future__ import annotations

from edgekit.doors import Command

MATRIX = Command(
    name="matrix",
    panel="Scale",
    summary="Export many models to many targets. Finished pairs are kept.",
    function="edgekit_matrix.command:matrix",
)
