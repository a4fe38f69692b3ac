"""Pieces of the repository's own files: definitions, named constants, the map of the rooms, notebooks."""

from __future__ import annotations

import ast
import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rendering.markdown import code as span
from rendering.markdown import first_sentence, table

ROOT = Path(__file__).parents[3]
PACKAGE = "edgekit"
BESIDE = ("targets/edgekit_targets", "plugins")
"""Folders of formats and plugins."""


def code(path: str, *names: str) -> str:
    """Definitions of a Python file by name, or the whole file."""
    text = (ROOT / path).read_text()
    if names:
        there = dict(_definitions(ast.parse(text)))
        lines = text.splitlines()
        text = "\n\n\n".join("\n".join(lines[slice(*there[name])]) for name in names)
    kind = {"py": "python", "toml": "toml", "yml": "yaml"}[path.rpartition(".")[2]]
    return f'```{kind} title="{path}"\n{text.rstrip()}\n```'


def constants(path: str) -> str:
    """Return a table of a file's named constants that have a comment above them."""
    text = (ROOT / path).read_text()
    lines, rows = text.splitlines(), []
    for statement in ast.parse(text).body:
        if not isinstance(statement, ast.Assign):
            continue
        name = ", ".join(ast.unparse(target) for target in statement.targets).strip("()")
        above = itertools.takewhile(lambda line: line.startswith("# "), reversed(lines[: statement.lineno - 1]))
        meaning = " ".join(line.removeprefix("# ") for line in reversed([*above]))
        if meaning and name.isupper() and not name.startswith("_"):
            rows.append((span(name), span(ast.unparse(statement.value)), meaning))
    return table((f"constant of `{path}`", "value", "meaning"), rows)


def rooms() -> str:
    """Every room of the core from the top layer down, each format and each plugin, with a sentence on each file."""
    found = []
    for name in _layers():
        path = ROOT / PACKAGE / name
        if path.is_dir():
            found.append(_room(path))
        elif (file := path.with_suffix(".py")).is_file() and not name.startswith("_"):
            found.append(f"## edgekit/{name}.py\n\n{_sentence(file)}\n")
    packages = (path.parent for folder in BESIDE for path in sorted((ROOT / folder).glob("*/__init__.py")))
    return "\n".join([*found, *map(_room, packages)])


def _room(path: Path) -> str:
    rows = [(span(file.relative_to(path).as_posix()), _sentence(file)) for file in _files(path)]
    about = _sentence(path / "__init__.py") or ""
    return f"## {path.relative_to(ROOT).as_posix()}\n\n{about}\n\n{table(('file', 'what it is'), rows)}"


def notebook(path: str) -> str:
    """The cells of a notebook with the outputs that it was saved with."""
    cells = json.loads((ROOT / path).read_text())["cells"]
    return "\n\n".join(part for cell in cells for part in _cell(cell))


def _definitions(module: ast.Module) -> Iterator[tuple[str, tuple[int, int]]]:
    for statement in module.body:
        first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name, (min([first, *(d.lineno - 1 for d in statement.decorator_list)]), last)
        elif isinstance(statement, ast.Assign):
            yield from ((ast.unparse(target), (first, last)) for target in statement.targets)


def _layers() -> list[str]:
    """Names of the rooms, the top layer first, as the contract in pyproject.toml orders them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contract = next(each for each in contracts if each["type"] == "layers")
    names = [name.strip("() ") for layer in contract["layers"] for name in layer.split("|")]
    return [*names, *contract.get("exhaustive_ignores", [])]


def _files(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*.py") if path.name != "__init__.py"]
    return sorted(found, key=lambda path: (len(path.relative_to(folder).parts), path))


def _sentence(path: Path) -> str:
    return first_sentence(ast.get_docstring(ast.parse(path.read_text())))


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "text/html" in data:
            html = re.sub(r"\s*\n\s*", "", "".join(data["text/html"]))
            yield f'<div class="output">{html}</div>'
        else:
            text = "".join(output.get("text", data.get("text/plain", "")))
            yield f"```text\n{text.rstrip()}\n```"
