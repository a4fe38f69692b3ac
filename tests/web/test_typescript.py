"""The TypeScript checks of web/ (types, lint, unit tests), and the reviewed texts of the library and the page."""

from __future__ import annotations

import difflib
import shutil
from pathlib import Path

import pytest

from edgekit_targets.web import site
from tests.processes import printed

WEB = Path(__file__).parents[2] / "web"
MESSAGES = Path(__file__).parent / "messages.txt"


@pytest.fixture(scope="module")
def web() -> Path:
    """The folder web/ with its npm packages, which building the page installs."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: install Node 20")
    site.find()
    if not (WEB / "node_modules").is_dir():
        pytest.skip("the npm packages are not installed: npm ci --ignore-scripts in web/")
    return WEB


@pytest.mark.parametrize("script", ["check", "test"])
def test_types_lint_and_unit_tests_pass(web: Path, script: str) -> None:
    printed(web, "npm", "run", script)


def test_every_text_is_a_reviewed_text(web: Path) -> None:
    texts = printed(web, "node", "messages.mjs").splitlines()
    reviewed = MESSAGES.read_text(encoding="utf-8").splitlines()
    changes = list(difflib.unified_diff(reviewed, texts, "reviewed", "now", n=0, lineterm=""))
    assert changes == [], "review the texts, then run in web/: node messages.mjs > ../tests/web/messages.txt"
