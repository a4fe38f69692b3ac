"""How `--help` shows options: a flag without a value, since it takes none; a repeated option with that of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

F = TypeVar("F", bound=Callable[..., Any])


class Shown:
    """What a command and a group share: the value of each option, as help shows it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; Typer shows flags as `<bool>` and what is repeated as `<list[str]>`."""
        params = super().get_params(ctx)  # type: ignore[misc]  # of the class that it is mixed into
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif getattr(param, "multiple", False) and param.metavar is None and hasattr(param, "display_type"):
                param.metavar = re.sub(r"^<list\[(.*)\]>$", r"<\1>", param.display_type(ctx))
        return list(params)


class Command(Shown, TyperCommand):
    """A command."""


class Group(Shown, TyperGroup):
    """A group of commands."""


class App(typer.Typer):
    """A Typer application whose commands show their options so."""

    def __init__(self, **settings: Any):
        super().__init__(cls=Group, **settings)

    def command(self, *arguments: Any, **settings: Any) -> Callable[[F], F]:
        """As Typer's."""
        return super().command(*arguments, cls=Command, **settings)
