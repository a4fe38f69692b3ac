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
ARM64 = "arm64"
ENVIRONMENTS = (ARM64, LITERT)


@env.command(epilog="Examples: `edgekit env add arm64` `edgekit env add litert`")
def add(
    name: Annotated[
        str,
        typer.Argument(
            help="arm64: for the place qemu:arm64; litert: for the targets of LiteRT.",
            autocompletion=among(*ENVIRONMENTS),
        ),
    ],
) -> None:
    """Fetch an environment, check what was fetched, and put it into the user's cache."""
    from edgekit.places import arm64
    from edgekit.storage import environment

    if name not in ENVIRONMENTS:
        raise UsageError(f"no environment '{name}': possible are {', '.join(ENVIRONMENTS)}")

    def progress(text: str) -> None:
        print(text, file=sys.stderr)

    print(arm64.install(progress) if name == ARM64 else environment.install(name, progress))


@env.command("list", epilog="Example: `edgekit env list`")
def list_() -> None:
    """Show which environments there are, where they lie, and what is missing."""
    from edgekit.cli.console import print_table
    from edgekit.cli.doctor import environments
    from edgekit.places import arm64
    from edgekit.storage import environment

    folders = {ARM64: arm64.folder(), LITERT: environment.folder(LITERT)}
    rows = [(name, str(folders[name]), state) for name, state in environments().items()]
    print_table(("environment", "folder", "state"), rows)
