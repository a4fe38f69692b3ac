"""`[tool.edgekit]` in the working folder's pyproject.toml: defaults for options that a command was not given."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from edgekit.errors import UsageError

FILE, TABLE = "pyproject.toml", "tool.edgekit"
COMMAND = "python:"
"""A host that names a command: a project of others must not choose what runs here."""


class Project(BaseModel):
    """What a project may set.

    Attributes:
        targets: For `edgekit export -t`.
        output: For `edgekit export -o`.
        places: For `edgekit export --place`.
        budget: For `--budget` of `edgekit export` and `edgekit verify`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    targets: tuple[str, ...] = ()
    output: str | None = None
    places: tuple[str, ...] = ()
    budget: tuple[str, ...] = ()


def defaults(folder: Path) -> dict[str, dict[str, Any]]:
    """Values for the commands' options, by command and option; empty where the project sets none.

    Raises:
        UsageError: If the file is not TOML, or the table has what cannot be set.
    """
    try:
        text = (folder / FILE).read_text()
    except (OSError, UnicodeDecodeError):
        return {}
    if "edgekit" not in text:
        return {}
    try:
        table = tomllib.loads(text).get("tool", {}).get("edgekit", {})
        project = Project.model_validate(table)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"'{FILE}' is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        possible = ", ".join(Project.model_fields)
        raise UsageError(f"[{TABLE}] in '{FILE}': {name}: {first['msg']}; possible are {possible}") from error
    if commands := [place for place in project.places if COMMAND in place]:
        raise UsageError(f"[{TABLE}] in '{FILE}': places: '{commands[0]}' names a command: give it with --place")
    export: dict[str, Any] = {
        "target": project.targets,
        "place": project.places,
        "budget": project.budget,
        "output": project.output,
    }
    values: dict[str, dict[str, Any]] = {"export": export, "verify": {"budget": project.budget}}
    return {command: {name: value for name, value in one.items() if value} for command, one in values.items()}
