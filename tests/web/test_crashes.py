"""A tab that dies is the host's fault: it is opened again once, and dying again is no verdict."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edgekit.errors import NotVerifiedHere
from edgekit.evaluate.engine import InputBatch, evaluate
from edgekit_targets.web import browser
from tests.web.small_bundle import EDGE, WIDTH

if TYPE_CHECKING:
    from playwright.sync_api import Page

INPUTS = {
    "images": np.full((2, 3, EDGE, EDGE), 0.5, np.float32),
    "queries": np.full((2, WIDTH), 0.1, np.float32),
}


def crash(page: Page) -> None:
    with contextlib.suppress(Exception):
        page.goto("chrome://crash", timeout=20_000)


@pytest.fixture
def runtime(bundle: Path) -> Iterator[browser.BrowserRuntime]:
    try:
        opened = browser.BrowserRuntime(bundle, "wasm", "fp32")
    except NotVerifiedHere as missing:
        pytest.skip(str(missing))
    yield opened
    opened.close()


def test_a_tab_that_dies_is_opened_again(runtime: browser.BrowserRuntime) -> None:
    before = runtime.run(INPUTS)
    crash(runtime._page)
    again = runtime.run(INPUTS)
    assert {name: array.tobytes() for name, array in again.items()} == {n: a.tobytes() for n, a in before.items()}


def test_a_tab_that_dies_twice_is_no_verdict_and_names_the_batch(
    runtime: browser.BrowserRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_load", lambda _device, _dtype: crash(runtime._page))
    crash(runtime._page)
    batch = InputBatch("stress", lambda: iter([INPUTS]), 2, 0)
    with pytest.raises(NotVerifiedHere, match=r"the browser's tab or GPU died twice \(.*\); it ran 'stress'"):
        evaluate(runtime, [batch], {}, None, lambda _share, _text: None)
