"""The browser bundle, the browser that judges it, and `edgekit demo`."""

from __future__ import annotations

from edgekit.doors import Command

DEMO = Command(
    name="demo",
    panel="Export",
    summary="Serve a build's browser bundle on this machine.",
    function="edgekit_targets.web.demo:demo",
)
