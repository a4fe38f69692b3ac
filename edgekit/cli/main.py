"""The command line: parse, call, print."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from edgekit.cli import build_commands, use_commands
from edgekit.cli.arguments import INTERRUPTED, USER_ERROR, VERBOSE, app
from edgekit.errors import EdgekitError

__all__ = ["app", "build_commands", "main", "use_commands"]


def main() -> None:
    """Entry point: turn what a user can fix into one sentence and exit code 2."""
    try:
        app()
    except EdgekitError as error:
        if VERBOSE in sys.argv:
            from edgekit.model.causes import plain

            print(plain(error.report or "".join(traceback.format_exception(error))), file=sys.stderr)
        print(f"edgekit: {error}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        print("edgekit: interrupted; what was finished is kept, run the same command to go on", file=sys.stderr)
        sys.exit(INTERRUPTED)


@app.callback(invoke_without_command=True)
def edgekit(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Export a trained model to everything the edge runs, and prove each artifact against a recorded reference."""
    if version:
        import edgekit as package

        print(f"edgekit {package.__version__}")
        raise typer.Exit


if __name__ == "__main__":
    main()
