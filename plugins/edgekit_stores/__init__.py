"""Builds in object stores: push, pull, list."""

from __future__ import annotations

from edgekit.doors import Command

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
