"""Parts of pages that are made from the code, as Markdown, by the name that a page asks for.

A page asks for a part with a comment on a line of its own, `<!-- generated: NAME ARGUMENTS -->`. If the comment
`<!-- end -->` follows, the page holds the part between the two, so that it is read in the repository too:
`python -m rendering` writes it anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rendering import commands, sources, tables

MARK = re.compile(
    r"^(?P<mark><!-- generated: (?P<name>\S+)(?P<arguments>(?: (?!-->)\S+)*) -->)$"
    r"(?P<stored>\n(?:(?!^<!-- generated).)*?^<!-- end -->$)?",
    re.MULTILINE | re.DOTALL,
)

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


def fill(page: str) -> str:
    """Return a page with every part in place of its marks, as the site shows it."""
    return MARK.sub(_part, page)


def store(page: str) -> str:
    """Return a page whose stored parts are those of the code; other parts are left to the site."""
    return MARK.sub(
        lambda mark: f"{mark['mark']}\n\n{_part(mark).strip()}\n\n<!-- end -->" if mark["stored"] else mark[0], page
    )


def _part(mark: re.Match[str]) -> str:
    """Return one part.

    Raises:
        LookupError: With the mark, if it names no part or its file has no such definition.
    """
    if mark["name"] not in PARTS:
        raise LookupError(f"no part '{mark['name']}'. Possible: {', '.join(PARTS)}")
    try:
        return PARTS[mark["name"]](*mark["arguments"].split())
    except (OSError, LookupError, TypeError) as error:
        raise LookupError(f"'{mark['mark']}' failed: {error}") from error
