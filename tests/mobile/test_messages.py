"""Texts for users of an app are reviewed texts; `python -m tests.mobile.test_messages` writes the reviewed file."""

from __future__ import annotations

import difflib
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.mobile.texts import phrases

MOBILE = Path(__file__).parents[2] / "mobile"
MESSAGES = Path(__file__).parent / "messages.txt"
FOLDERS = (
    "android/edgekit/src/main/kotlin/org/edgekit",
    "android/sample/src/main/kotlin/org/edgekit",
    "android/bench/src/main/kotlin/org/edgekit",
    "apple/Sources",
    "apple/Sample/Sources",
)
STRINGS = MOBILE / "android/sample/src/main/res/values/strings.xml"


def test_every_text_is_a_reviewed_text() -> None:
    reviewed = MESSAGES.read_text(encoding="utf-8").splitlines()
    changes = list(difflib.unified_diff(reviewed, texts().splitlines(), "reviewed", "now", n=0, lineterm=""))
    assert changes == [], "review the texts, then run: python -m tests.mobile.test_messages"


def test_literals_are_found_with_their_expressions() -> None:
    kotlin = (
        """val a = "one ${b.map { "'$it' or so" }} $c" // "no text"\n val q = '"' /* "nor this" */ + "two words\""""
    )
    assert phrases(kotlin) == ["one {b.map { \"'$it' or so\" }} {c}", "'{it}' or so", "two words"]
    assert phrases('throw Wrong("it is \\(f("x y")) long")') == ['it is {f("x y")} long', "x y"]
    assert phrases('val json = """{"a b": 1}""" + "short"') == []


def texts() -> str:
    """The texts of all files, sorted, each once; then those of the sample's resources by name."""
    paths = (p for folder in FOLDERS for p in (MOBILE / folder).rglob("*") if p.suffix in (".kt", ".swift"))
    said = sorted({text for path in paths for text in phrases(path.read_text(encoding="utf-8"))})
    strings = [f"{e.get('name')}: {e.text}" for e in ET.parse(STRINGS).getroot()]  # noqa: S314 - our own file
    return "\n".join((*said, "", *strings)) + "\n"


if __name__ == "__main__":
    MESSAGES.write_text(texts(), encoding="utf-8")
