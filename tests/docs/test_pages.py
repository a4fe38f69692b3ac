"""The code of the README and of the documentation's pages runs; what does not run says why, and is parsed at least."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from edgekit import registry
from edgekit.cli.main import app
from edgekit.testing import contract
from tests.docs.blocks import PAGES, ROOT, RUN, Block, blocks, commands

REASONS = re.compile(r"(needs|takes|installs|serves|runs in|records|illustration:) .{10,}", re.DOTALL)
FROM_NOTHING = ("README.md", "SKILL.md", "graphs.md", "index.md", "phones.md", "model.md", "qat.md")
"""Pages that show the first export of the small model, or none."""
RUNNER = "tests.docs.page_runner"
OF_EXAMPLES = ("operators",)
"""Commands of the packages in examples/."""


def runs(page: Path) -> bool:
    return any(block.kind in RUN and block.skipped is None for block in blocks(page))


@pytest.mark.nightly
@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """In a folder with the small model, its program, its reference and its ONNX artifact: no page makes them again."""
    there = () if page.name in FROM_NOTHING else ("onnx",)
    shutil.copytree(contract.small_build(tmp_path_factory.getbasetemp(), there), tmp_path / "build" / "small")
    found = {"PATH": Path(sys.executable).parent, "PYTHONPATH": ROOT}
    env = {name: f"{first}{os.pathsep}{os.environ.get(name, '')}" for name, first in found.items()}
    done = subprocess.run(
        [sys.executable, "-m", RUNNER, page],
        cwd=tmp_path,
        env=os.environ | env | {"EDGEKIT_BUILDS": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_are_right(page: Path) -> None:
    """Each names its language, and says why it is not run; its Python compiles, its commands and options exist."""
    text, there = page.read_text(), blocks(page)
    notes = re.findall(r"^<!-- (not run|output)", text, re.MULTILINE)
    assert notes.count("not run") == sum(block.skipped is not None for block in there)
    assert notes.count("output") == sum(block.output for block in there)
    for block in there:
        place = f"{page.name}:{block.line}"
        assert block.kind, f"{place}: a fence names its language"
        assert block.skipped is None or REASONS.fullmatch(block.skipped), f"{place}: '{block.skipped}' is no reason"
        if block.kind == "python":
            compile(block.text, place, "exec")
        elif block.kind in ("bash", "console"):
            _check_commands(block, place)


@pytest.mark.parametrize("page", [page for page in PAGES if "<!-- end -->" in page.read_text()], ids=lambda p: p.name)
def test_the_parts_that_a_page_holds_are_those_of_the_code(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "hooks")
    import rendering

    assert page.read_text() == rendering.store(page.read_text()), "run `make pages`"


def test_the_readme_lists_every_target_with_its_limits() -> None:
    listed = dict(re.findall(r"^\| `([\w-]+)` \|.*\| ([^|]+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE))
    there = {n: registry.find(n) for n, entry in registry.available().items() if entry.origin == "edgekit"}
    limits = {n: list(dict.fromkeys(t for p in target.places for t in p.tolerances)) for n, target in there.items()}
    assert {name: [w.strip() for w in cell.split(";")] for name, cell in listed.items()} == limits


def _check_commands(block: Block, place: str) -> None:
    targets = [line for line in (ROOT / "Makefile").read_text().splitlines() if re.match(r"[a-z-]+:", line)]
    made = {line.partition(":")[0] for line in targets}
    for line in commands(block):
        for words in _split(line):
            if words[0] == "make":
                assert words[1] in made, f"{place}: {line}"
            elif words[0] == "edgekit":
                _parse(words[1:], f"{place}: {line}")


def _split(line: str) -> list[list[str]]:
    """The commands of a line: what `&&`, `||`, `|` or `;` joins; what is redirected is left out."""
    found: list[list[str]] = [[]]
    for word in shlex.split(line, comments=True):
        if word in ("&&", "||", "|", ";"):
            found.append([])
        elif ">" not in word:
            found[-1].append(word)
    return [words for words in found if words]


def _parse(words: list[str], line: str) -> None:
    """Parse as the command line does; what it refuses is raised."""
    group: Any = get_command(app)
    if words[0].startswith("-"):
        assert words[0] in {option for each in group.params for option in each.opts}, line
        return
    if words[0] in OF_EXAMPLES:
        return
    command = group.get_command(group.context_class(group), words[0])
    assert command is not None, line
    with command.make_context(words[0], words[1:]) as context:
        if "||" not in line:  # such a line shows what is refused
            _check_targets(context.params.get("target") or [], line)


def _check_targets(names: list[str], line: str) -> None:
    targets, _ = registry.loadable()
    known = {*targets, *registry.groups_of(targets), "onnx-json"}
    assert set(names) <= known, line
