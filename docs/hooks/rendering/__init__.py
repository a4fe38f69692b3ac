"""Parts of pages that are made from the code, as Markdown, by the name that a page asks for."""

from __future__ import annotations

from collections.abc import Callable

from rendering import commands, sources, tables

PARTS: dict[str, Callable[..., str]] = {
    "code": sources.code,
    "commands": commands.reference,
    "constants": sources.constants,
    "errors": tables.exceptions,
    "limits": tables.limits,
    "map": sources.rooms,
    "messages": tables.messages,
    "metrics": tables.metrics,
    "notebook": sources.notebook,
    "options": tables.options,
    "targets": tables.targets,
}
