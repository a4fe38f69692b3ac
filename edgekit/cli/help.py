"""Group of all commands: each is a record (`edgekit.doors.Command`), imported only to run it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group
from typer.models import CommandInfo

from edgekit import doors
from edgekit.errors import UsageError, suggestion

F = TypeVar("F", bound=Callable[..., Any])
MARKUP: Literal["markdown"] = "markdown"


def epilog(text: str) -> Callable[[F], F]:
    """Add examples to the end of a command's help."""

    def add(function: F) -> F:
        function.epilog = text  # type: ignore[attr-defined]  # read by `Commands`
        return function

    return add


# Options of all commands by subject in the help; others stay in the panel "Options".
OPTION_PANELS = {
    "Model": ("task", "axes", "inputs", "outputs", "weights", "ema", "name", "author", "licence"),
    "Data": ("data", "metric", "calibration", "images", "reference"),
    "Targets": ("target", "option", "fresh", "place"),
    "Gate": ("budget", "key", "require_signature", "trust_build", "limits", "minutes", "seed"),
    "Output": ("output", "bom", "sign", "push_to", "verbose", "quiet", "as_json"),
}
# Fewest options that are grouped by subject: a short list reads faster in one piece.
MANY = 12


class OptionsAsTyped:
    """Mixin: help groups options by subject, shows a flag without a value, and a repeated option as one value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters; Typer shows flags as `<bool>` and repeated options as `<list[str]>`."""
        params = list(super().get_params(ctx))  # type: ignore[misc]  # of the class that it is mixed into
        panels = {name: panel for panel, names in OPTION_PANELS.items() for name in names}
        if len(params) >= MANY:
            order = [*OPTION_PANELS]
            for param in params:
                param.rich_help_panel = getattr(param, "rich_help_panel", None) or panels.get(param.name)
            # Rich shows panels in the order in which their first option comes.
            params.sort(key=lambda p: order.index(p.rich_help_panel) if p.rich_help_panel in order else len(order))
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif getattr(param, "multiple", False) and param.metavar is None and hasattr(param, "display_type"):
                param.metavar = re.sub(r"^<list\[(.*)\]>$", r"<\1>", param.display_type(ctx))
        return params


class Command(OptionsAsTyped, TyperCommand):
    """A command."""


class Group(OptionsAsTyped, TyperGroup):
    """A group of commands."""


class Commands(Group):
    """Group of all registered commands. Its help lists them by their records, without importing them."""

    lists_records = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, panel by panel."""
        records, _ = doors.commands.load_all()
        return sorted(records, key=lambda name: (doors.PANELS.index(records[name].panel), name))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; None for an unknown name.

        Raises:
            UsageError: If its package is broken.
        """
        if cmd_name not in doors.commands.entries():
            return None
        record = doors.commands.find(cmd_name)
        if self.lists_records:
            return TyperCommand(cmd_name, help=record.summary, rich_help_panel=record.panel, rich_markup_mode=MARKUP)
        function = doors.resolve(record.function)
        if isinstance(function, typer.Typer):
            return get_group(function)
        examples = "".join(f"\n\n`{example}`" for example in record.examples)
        info = CommandInfo(
            name=cmd_name,
            cls=Command,
            callback=function,
            epilog=getattr(function, "epilog", f"Examples:{examples}" if examples else None),
            rich_help_panel=record.panel,
        )
        return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=MARKUP)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments begin with.

        Raises:
            UsageError: If the name is unknown.
        """
        names = doors.commands.entries()
        if args and not args[0].startswith("-") and args[0] not in names and not ctx.resilient_parsing:
            raise UsageError(
                f"unknown command '{args[0]}'. {suggestion(args[0], names)}Run 'edgekit --help' for the list of "
                "commands"
            )
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        # Help needs only the summaries: importing every command would take seconds.
        self.lists_records = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self.lists_records = False


class App(typer.Typer):
    """A Typer application for commands with subcommands."""

    def __init__(self, **settings: Any):
        super().__init__(cls=Group, **settings)

    def command(self, *arguments: Any, **settings: Any) -> Callable[[F], F]:
        """Register a subcommand as Typer does."""
        return super().command(*arguments, cls=Command, **settings)
