"""The service worker on static hosts: what it caches, and that a new export replaces it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.conftest import PATIENCE
from tests.web.driving import fitting
from tests.web.host import Host

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

CACHE_CONTROL = ("max-age=600", *(("no-cache",) if os.environ.get("EDGEKIT_SLOW") else ()))


def visit(context: BrowserContext, url: str) -> str:
    """Open the page, wait for its first answer and for the service worker; returns what the status says."""
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(url)
    page.wait_for_function(
        "() => document.querySelector('#savings').textContent.includes('%') ||"
        " !document.querySelector('#notice').hidden"
    )
    status = page.inner_text("#status-text")
    page.locator("#offline", has_text="offline").wait_for()
    page.close()
    return status


def exported_again(bundle: Path, folder: Path) -> Path:
    """The bundle as another export would make it: other golden vectors' bytes, and another service worker."""
    shutil.copytree(bundle, folder)
    changed = {
        "golden.bin": (folder / "golden.bin").read_bytes() + bytes(4),
        "sw.js": (folder / "sw.js").read_bytes() + b"// new",
    }
    for path, data in fitting(changed, (folder / "manifest.json").read_bytes()).items():
        (folder / path).write_bytes(data)
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize("cache_control", CACHE_CONTROL)
def test_a_new_export_is_shown_at_the_next_visit(
    browser: Browser, bundle: Path, tmp_path: Path, cache_control: str
) -> None:
    again = exported_again(bundle, tmp_path / "again")
    with Host({"/": bundle}, cache_control) as host:
        context = browser.new_context()
        assert "int8" in visit(context, host.url)
        host.folders = {"/": again}
        assert ["int8" in visit(context, host.url) for _ in range(2)] == [True, True]
        context.close()


@pytest.mark.nightly
def test_another_document_is_not_kept_as_the_page(browser: Browser, bundle: Path) -> None:
    with Host({"/": bundle}) as host:
        context = browser.new_context()
        visit(context, host.url)
        visit(context, host.url)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{host.url}licences/onnxruntime/LICENSE")
        assert "MIT License" in page.inner_text("body")
        context.set_offline(True)
        page.goto(host.url)
        assert page.title() == "Where the model looks · edgekit"
        context.close()


@pytest.mark.nightly
def test_two_bundles_on_one_origin_keep_their_own(browser: Browser, bundle: Path, tmp_path: Path) -> None:
    with Host({"/a/": bundle, "/b/": exported_again(bundle, tmp_path / "again")}) as host:
        context = browser.new_context()
        for name in "ab":
            visit(context, f"{host.url}{name}/")
        context.set_offline(True)
        assert ["int8" in visit(context, f"{host.url}{name}/") for name in "ab"] == [True, True]
        context.close()
