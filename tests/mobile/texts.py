"""The texts in Kotlin and Swift sources: string literals, with `${...}` and `\\(...)` as {...}."""

from __future__ import annotations

import re
from collections.abc import Iterator

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
CHARACTER = re.compile(r"'(?:\\.[^']*|[^'\\])'")  # Kotlin's; Swift has none
RAW = re.compile(r'"""(.*?)"""', re.DOTALL)
NAME = re.compile(r"\$(\w+)")
PHRASE = re.compile(r"[A-Za-z]\S* |[A-Za-z]{2}.* | [A-Za-z%]")


def phrases(source: str) -> list[str]:
    """The string literals that hold a phrase, each once, in order."""
    found = (fixed_and_shown for fixed_and_shown in _literals(source))
    return list(dict.fromkeys(shown.strip() for fixed, shown in found if PHRASE.search(fixed)))


def _literals(source: str) -> Iterator[tuple[str, str]]:
    """Each literal twice: with its expressions cut out, and with them in braces."""
    at = 0
    while at < len(source):
        skipped = COMMENT.match(source, at) or CHARACTER.match(source, at) or RAW.match(source, at)
        if skipped:
            at = skipped.end()
        elif source[at] == '"':
            fixed, shown, at, nested = _literal(source, at + 1)
            yield fixed, shown
            yield from nested
        else:
            at += 1


def _literal(source: str, at: int) -> tuple[str, str, int, list[tuple[str, str]]]:
    """One literal from behind its first quote: fixed text, shown text, end, and the literals in its expressions."""
    fixed, shown = "", ""
    nested: list[tuple[str, str]] = []
    while source[at] != '"':
        if source.startswith(("${", "\\("), at):
            end = _closing(source, at + 1)
            expression = source[at + 2 : end]
            nested += _literals(expression)
            fixed, shown, at = fixed + "0", shown + "{" + expression + "}", end + 1
        elif name := NAME.match(source, at):
            fixed, shown, at = fixed + "0", shown + "{" + name[1] + "}", name.end()
        else:
            length = 2 if source[at] == "\\" else 1
            fixed, shown, at = fixed + source[at : at + length], shown + source[at : at + length], at + length
    return fixed, shown, at + 1, nested


def _closing(source: str, at: int) -> int:
    """The bracket that closes the one at a position; brackets in nested literals do not count."""
    depth = 0
    while True:
        if source[at] == '"':
            at = _literal(source, at + 1)[2]
            continue
        depth += source[at] in "({"
        depth -= source[at] in ")}"
        if depth == 0:
            return at
        at += 1
