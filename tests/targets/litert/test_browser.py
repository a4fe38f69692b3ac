"""LiteRT.js: what is said where it is not there. What it answers is asked by tests/targets/litert/contract.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.errors import NotVerifiedHere
from edgekit_targets.litert import browser


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(browser.NAMED, str(tmp_path / "js"))
    return tmp_path / "js"


def installed(folder: Path, version: object) -> None:
    package = folder / "node_modules" / browser.PACKAGE
    package.mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"version": version}))


def test_without_it_the_sentence_names_the_command(folder: Path) -> None:
    command = f"npm install --ignore-scripts --prefix {folder} @litertjs/core@{browser.VERSION}"
    with pytest.raises(NotVerifiedHere, match=f"LiteRT.js is not in '{folder}'. Run: {command}"):
        browser.modules()


def test_another_version_is_not_asked(folder: Path) -> None:
    installed(folder, "2.4.0")
    with pytest.raises(NotVerifiedHere, match=f"has LiteRT.js 2.4.0, not {browser.VERSION}. Run: npm install"):
        browser.modules()


def test_the_version_that_is_asked_is_found(folder: Path) -> None:
    installed(folder, browser.VERSION)
    assert browser.modules() == folder / "node_modules"
