"""Blocks of code in a page, in order, and what a page says of those that are not run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "skill" / "SKILL.md", *sorted((ROOT / "docs").glob("*.md")))
RUN = ("python", "bash", "console")
FENCE = re.compile(r"^```(\w*)[ \t]*(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(
    r"^<!-- generated: [^\n]* -->$(?:(?!^<!-- generated).)*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)
TITLE = re.compile(r'title="([^"]+)"')
NOTE = re.compile(r"<!-- (not run|output)(?:: ((?:(?!-->).)*))? -->\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        kind: The word after its fence.
        line: Of its first line of code, from 1.
        text: The code.
        title: The file that it is; empty for a block that is run where it stands.
        skipped: The page's reason why it is not run; None where it is run.
        output: Whether it is what the block before it printed.
    """

    kind: str
    line: int
    text: str
    title: str
    skipped: str | None
    output: bool


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, without those of parts that are made from the code."""
    text = GENERATED.sub(lambda part: "\n" * part[0].count("\n"), page.read_text())
    found = []
    for fence in FENCE.finditer(text):
        note = NOTE.search(text[: fence.start()])
        title = TITLE.search(fence[2])
        found.append(
            Block(
                kind=fence[1],
                line=text[: fence.start(3)].count("\n") + 1,
                text=fence[3],
                title=title[1] if title else "",
                skipped=(note[2] or "") if note and note[1] == "not run" else None,
                output=note is not None and note[1] == "output",
            )
        )
    return found


def commands(block: Block) -> list[str]:
    """The command lines of a block of the shell, continued lines joined; comments and outputs are left out."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.kind == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
