"""`python -m edgekit`."""

from edgekit.cli.main import main

main()
