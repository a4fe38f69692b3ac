"""The site builds without a warning and without the network, and shows what the code declares."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from edgekit import doors, registry
from edgekit.artifact.fact import Code
from edgekit.artifact.metric import METRICS
from edgekit.cli.main import app
from tests.docs.blocks import ROOT

pytest.importorskip("mkdocs", reason="needs mkdocs: pip install -e '.[docs]'")
LOADED = re.compile(r"<(?:script|img|iframe|source)[^>]* src=\"?([^\" >]+)|<link[^>]* href=\"?([^\" >]+)")
IN_CSS = re.compile(r"(?:url\(|@import )[\"']?(https?:[^\"')]+)")


def build(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout by the command of `make docs`."""
    (words,) = re.findall(r"\$\(BIN\)/mkdocs (.+)", (ROOT / "Makefile").read_text())
    command = [sys.executable, "-m", "mkdocs", *words.split(), "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=quiet, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, by the command of `make docs`: a warning is an error, but where --quiet keeps warnings down."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def text(site: Path, page: str) -> str:
    """The words of a page, tags taken out."""
    return html.unescape(re.sub(r"<[^>]+>", "", (site / page / "index.html").read_text()))


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = ["".join(found) for found in LOADED.findall(page.read_text())]
        assert not [url for url in loaded if re.match(r"(https?:)?//", url)], page
    for sheet in site.rglob("*.css"):
        assert not IN_CSS.findall(sheet.read_text()), sheet


def test_every_command_and_option_is_there(site: Path) -> None:
    group: Any = get_command(app)
    shown = text(site, "commands")
    for name in doors.commands.entries():
        command = group.get_command(group.context_class(group), name)
        assert f"edgekit {name}" in shown
        for parameter in command.params:
            assert all(option in shown for option in parameter.opts), (name, parameter.name)


def test_every_target_and_option_is_there(site: Path) -> None:
    shown = text(site, "options")
    for name, entry in registry.available().items():
        if entry.origin == "edgekit":
            assert name in shown
            assert all(f"{name}.{option.name}" in shown for option in registry.find(name).options)


def test_every_metric_limit_and_message_is_there(site: Path) -> None:
    judged, messages = text(site, "judge"), text(site, "messages")
    assert all(metric.name in judged for metric in METRICS.values())
    assert all(limit in judged for limit in ("0.0001", "0.997", "NOISE_MULTIPLE", "RUNS"))
    assert all(code.value in messages for code in Code)


def test_every_room_is_on_the_map(site: Path) -> None:
    shown = text(site, "map")
    for folder in ("edgekit", "targets", "plugins"):
        for path in (ROOT / folder).rglob("*.py"):
            assert path.name in shown or path.name[0] == "_", path


def test_no_part_was_forgotten(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert "<!-- generated" not in page.read_text(), page


def test_a_link_to_nowhere_fails_the_build(tmp_path: Path) -> None:
    """--strict counts warnings; beside --quiet it would count none."""
    for name in ("docs", "edgekit", "targets", "plugins", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "checkpoints"))
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path)
    with (tmp_path / "docs" / "index.md").open("a") as page:
        page.write("\n[nowhere](nowhere.md)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere.md" in done.stdout + done.stderr
