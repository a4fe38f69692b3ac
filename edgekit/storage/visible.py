"""Texts of others as they may be shown: what is invisible or moves the cursor is escaped."""

from __future__ import annotations

import unicodedata

_UNSHOWN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of Unicode: controls (ESC starts a terminal's commands), formats (they can turn the direction of writing
around), halves of surrogate pairs (no file can hold them), separators of lines."""


def visible(text: str, kept: str = "") -> str:
    r"""Escape non-printable characters as `\x1b` or `\u202e`, but for those in `kept`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter in kept or _shown(letter) else _escaped(letter) for letter in text)


def _shown(letter: str) -> bool:
    return unicodedata.category(letter) not in _UNSHOWN


def _escaped(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
