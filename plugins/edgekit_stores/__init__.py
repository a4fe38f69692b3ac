"""Builds in object stores: push, pull, list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.doors import Command

if TYPE_CHECKING:
    from edgekit_stores.api import builds, pull, push

__all__ = ["BUILDS", "PULL", "PUSH", "builds", "pull", "push"]

PUSH = Command(
    name="push",
    panel="Ship",
    summary="Upload a build to an object store. Only changed files are sent.",
    function="edgekit_stores.commands:push",
)
PULL = Command(
    name="pull",
    panel="Ship",
    summary="Download a build from an object store, and check every file.",
    function="edgekit_stores.commands:pull",
)
BUILDS = Command(
    name="builds",
    panel="Ship",
    summary="List the versions of a build in an object store.",
    function="edgekit_stores.commands:builds",
)


def __getattr__(name: str) -> Any:
    if name not in ("builds", "pull", "push"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    # Not at the top: `edgekit --help` reads this module.
    from edgekit_stores import api

    return getattr(api, name)
