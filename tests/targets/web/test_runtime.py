import base64
import contextlib
import gc
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from edgekit.artifact.manifest import BundleInfo, Variant
from edgekit.artifact.store import commit
from edgekit.errors import NotVerifiedHere
from edgekit.storage.environment import SUFFIXES
from edgekit_targets.litert import browser as litert
from edgekit_targets.web import browser
from tests.chromium import no_chromium
from tests.manifests import manifest


def launch() -> None:
    """In a thread of its own: a Playwright that another test keeps running has the environment that it started with."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(browser.launch).result()


def test_no_chromium_is_a_sentence_that_tells_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("playwright", reason=browser.NO_PLAYWRIGHT)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", "/nowhere")
    monkeypatch.delenv(browser.VARIABLE, raising=False)
    with pytest.raises(NotVerifiedHere, match=r"Chromium is missing\. Install it .* or name one in EDGEKIT_CHROMIUM"):
        launch()


def test_a_chromium_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("playwright", reason=browser.NO_PLAYWRIGHT)
    monkeypatch.setenv(browser.VARIABLE, "/bin/false")
    with pytest.raises(NotVerifiedHere, match=r"Chromium does not start .* Check the file '/bin/false'"):
        launch()


def test_without_chromium_no_socket_stays_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A leak would warn when the socket is collected, in whichever test that happens."""

    def launch(flags: tuple[str, ...]) -> None:
        raise NotVerifiedHere("Chromium is missing")

    (tmp_path / "index.html").write_text("<!doctype html>")
    variants = (Variant(name="fp32", precision="fp32", path="index.html", target="onnx"),)
    commit(tmp_path, manifest(target="web", entry="index.html", bundle=BundleInfo(variants=variants)))
    monkeypatch.setattr(browser, "launch", launch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.suppress(NotVerifiedHere):  # keeps no traceback, which would keep the socket
            browser.BrowserRuntime(tmp_path, "wasm", "fp32")
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_the_environment_names_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(browser.VARIABLE, "/opt/chrome")
    assert browser.find_chromium() == "/opt/chrome"


def test_arrays_come_back_as_they_were_sent() -> None:
    data = base64.b64encode(bytes(range(18))).decode()
    array = browser.decode_tensor({"dtype": "uint8", "shape": [3, 6], "data": data})
    assert array.shape == (3, 6)
    assert array.dtype == np.uint8
    assert array.flags.writeable


def test_a_change_of_what_runs_in_the_page_is_a_change_of_the_code_that_judges() -> None:
    assert {browser.SCRIPT.suffix, litert.OWN_SCRIPT.suffix} <= SUFFIXES
    assert browser.SCRIPT.is_file()
    assert litert.OWN_SCRIPT.is_file()


def test_two_artifacts_are_open_in_browsers_at_once() -> None:
    if missing := no_chromium():
        pytest.skip(missing)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(two_browsers).result()


def two_browsers() -> None:
    (first, one), (second, other) = browser.launch(), browser.launch()
    assert first is second
    one.close()
    first.stop()
    assert other.new_page().evaluate("1 + 1") == 2
    other.close()
    second.stop()
    again, third = browser.launch()
    third.close()
    again.stop()
