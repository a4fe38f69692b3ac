"""The QR code of an address: what stands in it is read back from its characters."""

from __future__ import annotations

import re

import pytest

from edgekit_targets.web.demo import qr_code

URL = "http://192.168.1.20:8000/"
BLOCKS = {" ": (0, 0), "▀": (1, 0), "▄": (0, 1), "█": (1, 1)}


def test_the_code_has_the_modules_of_the_address() -> None:
    segno = pytest.importorskip("segno", reason="segno is not installed: pip install segno")
    plain = re.sub(r"\x1b\[[\d;]*m", "", qr_code(URL))
    rows: list[list[int]] = []
    for line in plain.splitlines():
        cells = [BLOCKS[character] for character in line]
        rows += [[cell[half] for cell in cells] for half in (0, 1)]
    wanted = [[int(module) for module in row] for row in segno.make(URL, error="m", micro=False).matrix_iter(border=4)]
    light = [[1 - module for module in row] for row in wanted]  # the characters' ink is the light of a dark terminal
    found = [row[: len(wanted[0])] for row in rows[: len(wanted)]]
    assert found in (wanted, light)


def test_without_segno_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert qr_code(URL) == ""
