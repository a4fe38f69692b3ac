"""Print the reasons of a run's JSON as annotations of a pull request, for the action: the worst of each artifact.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

MOST = 3
KINDS = {"rejected": "error", "failed": "error", "over budget": "error", "not verified here": "warning"}


def main() -> None:
    """Read the file that the first argument names."""
    for artifact in json.loads(Path(sys.argv[1]).read_text())["artifacts"]:
        kind = KINDS.get(artifact["status"])
        for reason in artifact["reasons"][:MOST] if kind else ():
            # A newline would end the command.
            text = " ".join(f"{reason['place']}: {reason['sentence']}".split()).replace("%", "%25")
            print(f"::{kind} title={artifact['target']} {artifact['status']}::{text}")


if __name__ == "__main__":
    main()
