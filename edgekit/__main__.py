"""`python -m edgekit`."""

import sys
from pathlib import Path

if not sys.flags.safe_path and sys.path[0] == str(Path.cwd()):
    # `-m` adds the working directory; edgekit itself decides when code in it may run.
    del sys.path[0]

from edgekit.cli.main import main

main()
