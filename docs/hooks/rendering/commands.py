"""The reference of the command line: every command of the Typer app, as its `--help` has it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from edgekit import doors
from edgekit.cli.main import app
from rendering.markdown import code, table


def reference() -> str:
    """A section a command: what it does, its usage, its arguments and options, examples."""
    return "\n".join(_section(name, command) for name, command in built_in())


def built_in() -> Iterator[tuple[str, Any]]:
    """Yield edgekit's own commands with their names, panel by panel; subcommands follow their group."""
    group: Any = get_command(app)  # click's classes, or typer's own copies of them: versions differ
    context = group.context_class(group)
    entries = doors.commands.entries()
    for name in group.list_commands(context):
        if entries[name].origin == doors.EDGEKIT:
            command = group.get_command(context, name)
            yield name, command
            yield from ((f"{name} {sub}", each) for sub, each in getattr(command, "commands", {}).items())


def _section(name: str, command: Any) -> str:
    context = command.context_class(command, info_name=f"edgekit {name}")
    usage = " ".join([f"edgekit {name}", *command.collect_usage_pieces(context)])
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    parts = [f"## edgekit {name}", inspect.cleandoc(command.help or ""), f"```text\n{usage}\n```"]
    if arguments:
        parts.append(table(("argument", "default", "meaning"), [_argument(each) for each in arguments]))
    parts.append(table(("option", "default", "meaning"), [_option(each) for each in options]))
    if command.epilog:
        parts.append(_examples(command.epilog))
    return "\n\n".join(parts) + "\n"


def _argument(argument: Any) -> tuple[str, str, str]:
    default = "required" if argument.required else code(str(argument.default or ""))
    return code(argument.name), default, argument.help or ""


def _option(option: Any) -> tuple[str, str, str]:
    value = "" if option.is_flag else " VALUE"
    names = ", ".join(map(code, (*option.opts[:-1], option.opts[-1] + value, *option.secondary_opts)))
    if option.required:
        return names, "required", option.help or ""
    shown = option.default not in (None, False, "", ())
    default = option.opts[0] if option.is_flag else str(option.default)
    return names, code(default) if shown else "", option.help or ""


def _examples(epilog: str) -> str:
    """`Examples:` and commands in backticks -> a block of code."""
    lines = [line.strip("`") for line in epilog.removeprefix("Examples:").removeprefix("Example:").split("\n")]
    commands = [line.strip().strip("`") for line in lines if line.strip()]
    return "```console\n" + "\n".join(f"$ {line}" for line in commands) + "\n```"
