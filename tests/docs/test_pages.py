"""The code of the documentation runs: every fenced block of Python and of the shell, page by page, and the notebook."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNERS = {"python": [sys.executable, "-W", "ignore"], "bash": ["bash", "-euo", "pipefail"]}


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(page.read_text())]


def test_every_fenced_block_is_of_a_kind_that_runs() -> None:
    kinds = {kind for page in PAGES for kind, _ in blocks(page)}
    assert kinds == set(RUNNERS)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for number, (kind, code) in enumerate(blocks(page)):
        script = tmp_path / f"block{number}.{kind}"
        script.write_text(code)
        command = [*RUNNERS[kind], str(script)]
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{page.name}, block {number}:\n{done.stdout}{done.stderr}"


def test_the_notebook_runs(tmp_path: Path) -> None:
    """A module that is defined in a cell, three targets, a table with verdicts."""
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install 'edgekit[test]'")
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install 'edgekit[test]'")
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        output["data"]["text/html"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    ]
    assert any("<table>" in table and table.count(">verified<") == 3 for table in shown), shown


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs mkdocs: pip install 'edgekit[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    settings = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site" / "options" / "index.html").read_text()
    assert "reduce_range" in page
    assert "fonts.googleapis" not in page


def test_a_link_to_nowhere_fails_the_build(tmp_path: Path) -> None:
    """The command of the Makefile counts warnings; with --quiet it would not."""
    pytest.importorskip("mkdocs", reason="needs mkdocs: pip install 'edgekit[docs]'")
    [command] = re.findall(r"mkdocs (build .*)", (ROOT / "Makefile").read_text())
    for name in ("docs", "edgekit", "targets"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "checkpoints"))
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    with (tmp_path / "docs" / "index.md").open("a") as page:
        page.write("\n[nowhere](nowhere.md)\n")
    settings = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *command.split()], cwd=tmp_path, env=settings, capture_output=True, check=False
    )
    assert done.returncode != 0
    assert b"nowhere.md" in done.stdout + done.stderr
