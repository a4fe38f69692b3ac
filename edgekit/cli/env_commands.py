"""The commands for environments: what some places need beside Python packages."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from edgekit.cli.arguments import app
from edgekit.cli.completion import among
from edgekit.errors import UsageError

env = typer.Typer(name="env", help="Make and show the environments that some places need.", no_args_is_help=True)
app.add_typer(env)
ENVIRONMENTS = ("arm64",)


@env.command(epilog="Example: `edgekit env add arm64`")
def add(
    name: Annotated[str, typer.Argument(help="arm64: for the place qemu:arm64.", autocompletion=among(*ENVIRONMENTS))],
) -> None:
    """Fetch an environment, check what was fetched, and put it into the user's cache."""
    from edgekit.places import arm64

    if name not in ENVIRONMENTS:
        raise UsageError(f"no environment '{name}': possible are {', '.join(ENVIRONMENTS)}")
    print(arm64.install(lambda text: print(text, file=sys.stderr)))


@env.command("list", epilog="Example: `edgekit env list`")
def list_() -> None:
    """Show which environments there are, where they lie, and what is missing."""
    from edgekit.cli.console import print_table
    from edgekit.errors import NotVerifiedHere
    from edgekit.places import arm64

    try:
        arm64.command()
        state = "ready"
    except NotVerifiedHere as missing:
        state = str(missing)
    print_table(("environment", "folder", "state"), [("arm64", str(arm64.folder()), state)])
