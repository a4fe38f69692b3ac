"""Adds the built page to distributions, so that an installation needs no Node.

A source distribution carries `web/dist`, a wheel the same as `edgekit_targets/web/_web`, with its WebAssembly as `.xz`:
8.5 MB instead of 14.4. In a checkout npm builds the page; a source distribution has it. Editable installations build on
demand (targets/edgekit_targets/web/site.py).
"""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGED = "edgekit_targets/web/_web"
PRESET = int(os.environ.get("EDGEKIT_XZ_PRESET", 9 | lzma.PRESET_EXTREME))
"""Of xz: the smallest takes most of a minute; tests build a larger wheel in seconds."""


class WebBuildHook(BuildHookInterface[Any]):
    """Builds the page once and adds it to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files."""
        if version == "editable":
            return
        web = Path(self.root) / "web"
        if shutil.which("npm") and not (Path(self.root) / "PKG-INFO").is_file():  # a source distribution has its page
            install = () if _installed(web) else (("npm", "ci", "--ignore-scripts"),)
            for command in (*install, ("npm", "run", "build")):
                subprocess.run(command, cwd=web, check=True, timeout=900)
        if not (web / "dist" / "index.html").is_file():
            raise RuntimeError(f"the page in '{web}' is not built, and npm is not installed. Install Node 20")
        if self.target_name == "wheel":
            self._compressed = tempfile.TemporaryDirectory(prefix="edgekit-")  # removed with the hook
            _include(web / "dist", Path(self._compressed.name), build_data["force_include"])


def _installed(web: Path) -> bool:
    """Whether npm has installed what is locked, as the Makefile asks."""
    there = web / "node_modules" / ".package-lock.json"
    return there.is_file() and there.stat().st_mtime >= (web / "package-lock.json").stat().st_mtime


def _include(dist: Path, scratch: Path, included: dict[str, str]) -> None:
    """Name the page's files and where the wheel has them; WebAssembly compressed, in a scratch folder."""
    for path in sorted(p for p in dist.rglob("*") if p.is_file() and p.name != ".sources"):
        inside = f"{PACKAGED}/{path.relative_to(dist).as_posix()}"
        if path.suffix == ".wasm":
            smaller = scratch / f"{path.name}.xz"
            smaller.write_bytes(lzma.compress(path.read_bytes(), preset=PRESET))
            included[str(smaller)] = f"{inside}.xz"
        else:
            included[str(path)] = inside
