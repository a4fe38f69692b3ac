"""Every sentence that a user of the Python code can meet, read from the source: `python tests/messages.py --write`.

The sentences are those of errors (`raise ...Error(...)`), of facts, of exporters' notes, of options, commands and their
help. Placeholders show as `{...}`. `messages.txt` is reviewed: it changes with the words, not where code is.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "messages.txt"
SOURCES = ("edgekit", "targets/edgekit_targets", "mil_interpreter")
NAMED = {"help", "summary", "epilog", "hint", "meaning"}  # keyword arguments that people read
TOLD = {"progress", "tell", "print"}  # functions whose text people read
NOTED = {"notes", "_SENTENCES"}  # variables and keywords that hold sentences


def collect() -> list[str]:
    """The sentences, sorted, each once."""
    paths = (path for source in SOURCES for path in (ROOT / source).rglob("*.py"))
    return sorted({sentence for path in paths for sentence in _sentences(ast.parse(path.read_text()))})


def _sentences(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from (text for argument in node.exc.args for text in _texts(argument))
        elif isinstance(node, ast.Call):
            yield from (text for k in node.keywords if k.arg in NAMED | NOTED for text in _texts(k.value))
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in TOLD:
                yield from (text for argument in node.args for text in _texts(argument))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id in NOTED for target in targets):
                yield from _texts(node.value)
        elif isinstance(node, ast.FunctionDef) and "note" in node.name:
            yield from (
                text for part in ast.walk(node) if isinstance(part, ast.Yield | ast.Return) for text in _of(part)
            )


def _of(statement: ast.Yield | ast.Return) -> Iterator[str]:
    if statement.value is not None:
        yield from _texts(statement.value)


def _texts(node: ast.expr) -> Iterator[str]:
    """The sentences in an expression: texts of at least two words."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        text = " ".join(_text(node).split())
        if " " in text:
            yield text
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _texts(child)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "{...}" for part in node.values)
    return ""


if __name__ == "__main__":
    lines = "\n".join(collect()) + "\n"
    if "--write" in sys.argv:
        GOLDEN.write_text(lines)
    else:
        sys.stdout.write(lines)
