"""`python -m edgekit`."""

import sys
from pathlib import Path

if not sys.flags.safe_path and sys.path[0] == str(Path.cwd()):
    # `-m` puts it there; edgekit itself decides when code of the working directory may run.
    del sys.path[0]

from edgekit.cli.main import main

main()
