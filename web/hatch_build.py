"""Puts the built page into wheels, so that an installation needs no Node: `web/dist` -> `edgekit_targets/_web`.

A wheel from a checkout builds the page with npm; a wheel from a source distribution takes the page that lies in it.
Editable installations build on demand (targets/edgekit_targets/_shared/site.py).
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGED = "edgekit_targets/_web"


class WebBuildHook(BuildHookInterface[Any]):
    """Builds the page once and adds it to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files."""
        if version == "editable":
            return
        web = Path(self.root) / "web"
        if shutil.which("npm"):
            for command in (("npm", "ci", "--ignore-scripts"), ("npm", "run", "build")):
                subprocess.run(command, cwd=web, check=True, timeout=900)
        elif not (web / "dist" / "index.html").is_file():
            raise RuntimeError(f"the page in '{web}' is not built, and npm is not installed: install Node 20")
        build_data["force_include"][str(web / "dist")] = PACKAGED
