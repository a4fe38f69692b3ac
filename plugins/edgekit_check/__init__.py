"""Judge a file that another tool made, against its model; compare two files; predict which runtimes take one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgekit.doors import Command

if TYPE_CHECKING:
    from edgekit_check.api import check
    from edgekit_check.comparison import compare
    from edgekit_check.prediction import lint

__all__ = ["CHECK", "COMPARE", "LINT", "check", "compare", "lint"]

CHECK = Command(
    name="check",
    panel="Export",
    summary="Judge a file that another tool made, against its model.",
    function="edgekit_check.command:check",
)

COMPARE = Command(
    name="compare",
    panel="Understand",
    summary="Compare two files of any format on the same inputs.",
    function="edgekit_check.command:compare",
)

LINT = Command(
    name="lint",
    panel="Understand",
    summary="Predict whether a runtime takes a file, without running it.",
    function="edgekit_check.command:lint",
)

_HOMES = {"check": "api", "compare": "comparison", "lint": "prediction"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    # Not at the top: `edgekit --help` reads this module.
    return getattr(import_module(f"edgekit_check.{_HOMES[name]}"), name)
