"""What a first visit transfers until its first answer: each file once, none that can wait, little beside the model."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edgekit_targets.web import export as web
from tests.web.first_visit import LATER, SAMPLES, transferred, visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ASKED_AGAIN = {"icon.svg", "samples/000.png"}  # the server answers that they are unchanged
RUNTIME = "ort/ort-wasm-simd-threaded.wasm"
BESIDE = 92_000  # bytes with brotli of all but the model, the runtime's WASM and a sample's picture; here 90,413
WASM = 2_320_000  # of the runtime's; measured: 2,300,583 of onnxruntime-web 1.30.0


def test_a_first_visit_loads_each_file_once_and_after_its_answer_what_can_wait(
    browser: Browser, bundle: Path, url: str
) -> None:
    found = visit(browser, url)
    twice = {path for path, count in Counter(found.first).items() if count > 1}
    assert twice <= ASKED_AGAIN, twice
    (first,) = {path for path in found.first if path.startswith(SAMPLES)}
    assert set(found.later) - set(LATER) == {path for path in found.later if path.startswith(SAMPLES)} != set()
    assert set(LATER) < set(found.later)
    told = {path.relative_to(bundle).as_posix() for path in web.first_visit(bundle, "q8")}
    assert set(found.first) - {first, "manifest.json"} == told & set(found.first)
    unasked = told - set(found.first)
    assert unasked <= {"icon.svg", "app.webmanifest"}, unasked  # which a headless browser does not show
    sizes = transferred(bundle, tuple(p for p in found.first if p not in (RUNTIME, web.PATHS["q8"], first)))
    print(sizes)
    assert sum(sizes.values()) < BESIDE, sizes


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes half a minute: set EDGEKIT_SLOW=1")
def test_the_runtime_is_as_small_as_it_was(bundle: Path) -> None:
    assert sum(transferred(bundle, (RUNTIME,)).values()) < WASM
