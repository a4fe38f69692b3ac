"""The TypeScript checks of web/: types, lint, unit tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgekit_targets.web import site
from tests.processes import printed

WEB = Path(__file__).parents[2] / "web"


@pytest.fixture(scope="module")
def web() -> Path:
    """The folder web/ with its npm packages, which building the page installs."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed. Install Node 20")
    site.find()
    if not (WEB / "node_modules").is_dir():
        pytest.skip("the npm packages are not installed: npm ci --ignore-scripts in web/")
    return WEB


@pytest.mark.parametrize("script", ["check", "test"])
def test_types_lint_and_unit_tests_pass(web: Path, script: str) -> None:
    printed(web, "npm", "run", script)
