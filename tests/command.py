"""The command line in this process."""

from __future__ import annotations

import sys

from edgekit.cli import main


def exit_code(*arguments: object) -> int:
    """Run `edgekit` with these arguments; what it prints goes where this process prints."""
    before, sys.argv = sys.argv, ["edgekit", *map(str, arguments)]
    try:
        main.main()
    except SystemExit as left:
        return int(left.code or 0)
    finally:
        sys.argv = before
    return 0
