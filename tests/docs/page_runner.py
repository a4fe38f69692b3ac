"""Runs the blocks of one page in this folder: `python -m tests.docs.page_runner PAGE`. Python blocks share their names.

Python is compiled under the page's own name and lines, so that a traceback points into the page. A block with a title
is a file, and is written. What a page shows as output is compared with what was printed: blanks count as one, and `...`
stands for anything. A plain `edgekit` command runs in this process, so that PyTorch is imported once; all others run in
a shell.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.command import exit_code
from tests.docs.blocks import RUN, Block, blocks

SHELL = re.compile(r"[|&;<>$`*\\]|\n.")


def main(page: Path) -> None:
    found = blocks(page)
    _show_sources(page, found)
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in found:
        if block.output:
            _compare(page, block, block.text, printed)
        elif block.skipped is None and block.title:
            Path(block.title).write_text(block.text)
        elif block.skipped is None and block.kind in RUN:
            printed = _python(page, block, names) if block.kind == "python" else _shell(page, block)


def _python(page: Path, block: Block, names: dict[str, object]) -> str:
    said = io.StringIO()
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    with contextlib.redirect_stdout(said):
        exec(code, names)  # noqa: S102 - the page's own code
    return said.getvalue()


def _shell(page: Path, block: Block) -> str:
    if block.kind == "bash":
        return _ran(page, block, block.text)
    told = ""
    for part in re.split(r"^(?=\$ )", block.text, flags=re.MULTILINE):
        if part.startswith("$ "):
            command, _, shown = part[2:].partition("\n")
            told = _ran(page, block, command)
            if shown.strip():
                _compare(page, block, shown, told)
    return told


def _ran(page: Path, block: Block, command: str) -> str:
    if command.startswith("edgekit ") and not SHELL.search(command):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = exit_code(*shlex.split(command, comments=True)[1:])
        if code:
            raise SystemExit(f"{page}:{block.line}: exit code {code}\n{command}\n{said.getvalue()}")
        return said.getvalue()
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{page}:{block.line}: exit code {done.returncode}\n{command}\n{done.stdout}{done.stderr}")
    return done.stdout


def _compare(page: Path, block: Block, shown: str, printed: str) -> None:
    parts = (re.escape(part) for part in " ".join(shown.split()).split("..."))
    if not re.fullmatch(".*?".join(parts), " ".join(printed.split()), re.DOTALL):
        raise SystemExit(f"{page}:{block.line}: the page shows\n{shown}\nand this was printed\n{printed}")


def _show_sources(page: Path, found: list[Block]) -> None:
    """Let `inspect` find the source of what a page defines: its Python blocks at their lines, all else empty."""
    lines = [""] * len(page.read_text().splitlines())
    for block in found:
        if block.kind == "python":
            code = block.text.splitlines()
            lines[block.line - 1 : block.line - 1 + len(code)] = code
    text = "\n".join(lines) + "\n"
    linecache.cache[str(page)] = (len(text), None, text.splitlines(keepends=True), str(page))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
