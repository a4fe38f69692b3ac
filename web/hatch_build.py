"""Adds the built page to distributions, so that an installation needs no Node.

A source distribution carries `web/dist`, a wheel the same as `edgekit_targets/_web`. In a checkout npm builds the page;
a source distribution has it. Editable installations build on demand (targets/edgekit_targets/_site.py).
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
        if shutil.which("npm") and not (Path(self.root) / "PKG-INFO").is_file():  # a source distribution has its page
            for command in (("npm", "ci", "--ignore-scripts"), ("npm", "run", "build")):
                subprocess.run(command, cwd=web, check=True, timeout=900)
        if not (web / "dist" / "index.html").is_file():
            raise RuntimeError(f"the page in '{web}' is not built, and npm is not installed: install Node 20")
        if self.target_name == "wheel":
            build_data["force_include"][str(web / "dist")] = PACKAGED
