"""English sentences that Python ships: the first lines of its own modules' docstrings."""

from __future__ import annotations

import ast
import functools
import random
import sysconfig
from pathlib import Path

HELD_OUT, CALIBRATION = "held out", "calibration"
MODULES = (
    *("argparse", "ast", "bdb", "calendar", "cmd", "codecs", "configparser", "contextlib", "copy", "csv", "datetime"),
    *("decimal", "difflib", "dis", "doctest", "enum", "filecmp", "fractions", "ftplib", "functools", "gettext", "gzip"),
    *("heapq", "imaplib", "inspect", "ipaddress", "locale", "mailbox", "mimetypes", "nntplib", "optparse", "pathlib"),
    *("pdb", "pickle", "platform", "plistlib", "poplib", "pstats", "random", "sched", "shutil", "smtplib", "socket"),
    *("socketserver", "statistics", "string", "subprocess", "tarfile", "tempfile", "textwrap", "threading", "trace"),
    *("traceback", "turtle", "typing", "unittest/case", "urllib/parse", "urllib/request", "uuid", "warnings", "wave"),
    *("weakref", "webbrowser", "zipfile"),
)
WORDS = range(6, 17)
"""Number of words of a sentence."""


@functools.cache
def sentences(part: str) -> tuple[str, ...]:
    """Return the sentences of a part, HELD_OUT or CALIBRATION, in an order that is the same in every run."""
    home, lines = Path(sysconfig.get_path("stdlib")), set()
    for module in MODULES:
        path = home / f"{module}.py"
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                line = (ast.get_docstring(node) or "").strip().partition("\n")[0].rstrip(". ")
                if len(line.split()) in WORDS and line.isascii():
                    lines.add(line)
    ordered = sorted(lines)
    random.Random(1).shuffle(ordered)
    middle = len(ordered) // 2
    return tuple(ordered[:middle] if part == HELD_OUT else ordered[middle:])
