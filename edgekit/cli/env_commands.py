"""The commands for environments: what some places and targets need beside edgekit's own Python packages."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from edgekit.cli.arguments import app
from edgekit.cli.completion import among
from edgekit.errors import UsageError
from edgekit.storage.environment import LITERT

env = typer.Typer(name="env", help="Make and show what some places and targets need.", no_args_is_help=True)
app.add_typer(env)
ENVIRONMENTS = (LITERT,)


@env.command(epilog="Example: `edgekit env add litert`")
def add(
    name: Annotated[
        str,
        typer.Argument(
            help="litert: for the targets of LiteRT.",
            autocompletion=among(*ENVIRONMENTS),
        ),
    ],
) -> None:
    """Fetch an environment, check what was fetched, and put it into the user's cache."""
    from edgekit.storage import environment

    if name not in ENVIRONMENTS:
        raise UsageError(f"no environment '{name}': possible are {', '.join(ENVIRONMENTS)}")

    def progress(text: str) -> None:
        print(text, file=sys.stderr)

    print(environment.install(name, progress))


@env.command("list", epilog="Example: `edgekit env list`")
def list_() -> None:
    """Show which environments there are, where they lie, and what is missing."""
    from edgekit.cli.console import print_table
    from edgekit.cli.doctor import environments
    from edgekit.storage import environment

    rows = [(name, str(environment.folder(name)), state) for name, state in environments().items()]
    print_table(("environment", "folder", "state"), rows)
