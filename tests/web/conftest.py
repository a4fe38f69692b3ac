"""A small bundle and its server; skipped with the reason where the bundle cannot be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edgekit.errors import EdgekitError
from edgekit_targets.web.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

DESKTOP = {"viewport": {"width": 1280, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True, "is_mobile": True}
PATIENCE = 60_000  # ms; a shared machine with two cores


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle around a model of a few operators, made as the target makes one."""
    from tests.web.small_bundle import make

    try:
        return make(tmp_path_factory.mktemp("bundle") / "web")
    except EdgekitError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def url(bundle: Path) -> Iterator[str]:
    """Where the bundle is served."""
    with Server(bundle) as server:
        yield server.url


Opener = Callable[..., "Page"]


def close(context: BrowserContext) -> None:
    """End a context; a route that is just answering is no error of the next test."""
    for page in context.pages:
        page.unroute_all(behavior="ignoreErrors")
    context.close()


@pytest.fixture
def open_page(browser: Browser, url: str) -> Iterator[Opener]:
    """Opens pages in contexts of their own; every page must stay free of uncaught errors."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def opened(path: str = "", **options: Any) -> Page:
        context = browser.new_context(**{"reduced_motion": "reduce", **options})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url + path)
        return page

    yield opened
    for context in contexts:
        close(context)
    assert errors == []


def ready(page: Page) -> None:
    """Wait for the first answer."""
    page.locator("#savings", has_text="%").wait_for()


@pytest.fixture
def device() -> dict[str, Any]:
    return DESKTOP


@pytest.fixture
def page(open_page: Opener, device: dict[str, Any]) -> Page:
    """The bundle's page on a device, after its first answer."""
    opened: Page = open_page(**device)
    ready(opened)
    return opened


@pytest.fixture
def library(browser: Browser, url: str) -> Iterator[Page]:
    """A page of the bundle's origin that runs nothing but what a test runs in it, without a service worker."""
    context = browser.new_context(service_workers="block")
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(url + "manifest.json")
    yield page
    close(context)
