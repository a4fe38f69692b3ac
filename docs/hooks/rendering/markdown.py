"""Small pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars and line breaks in its cells are taken care of."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines) + "\n"


def code(text: str) -> str:
    """A span of code; empty for an empty text."""
    return f"`{text}`" if text else ""


def first_sentence(docstring: str | None) -> str:
    """The first sentence of a docstring, on one line."""
    text = " ".join((docstring or "").strip().split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s+(?=[A-Z])", text)[0]


def attributes(docstring: str | None) -> dict[str, str]:
    """What a Google docstring says of each attribute, by name."""
    _, _, section = (docstring or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    for name, text in re.findall(r"^ {8}(\w+): (.+(?:\n {9,}.+)*)", section, re.MULTILINE):
        found[name] = " ".join(text.split())
    return found


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
