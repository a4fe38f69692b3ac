"""The page of a model that takes no picture: a text encoder, a tabular network, a detector that declares nothing."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import edgekit
from edgekit.model.sources import resolve_model
from edgekit.model.spec import Array
from edgekit.pipeline import given_model
from edgekit.runtime.ort import OrtRuntime
from tests.builds import unjudged
from tests.web.conftest import DESKTOP, PATIENCE, PHONE
from tests.web.driving import until
from tests.web.host import Host
from tests.web.test_page import AXE, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NEAR = 1e-4
Visitor = Callable[..., "Page"]


class Tabular(nn.Module):
    """Five features -> three logits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.layers(features)  # type: ignore[no-any-return]


class Detector(nn.Module):
    """A picture that nobody declares -> four boxes with a score."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, 2), nn.Linear(8, 20)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.head(torch.relu(self.conv(images)).mean((2, 3)))).view(-1, 4, 5)


FP32 = {"web": {"variants": "fp32"}}


@pytest.fixture(scope="module")
def tabular(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    return unjudged(
        given_model.resolve_model(Tabular().eval(), (torch.rand(1, 5),)),
        tmp_path_factory.mktemp("tabular"),
        ("web",),
        FP32,
    )


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    spec = given_model.resolve_model(Detector().eval(), (torch.rand(1, 3, 32, 32),))
    return unjudged(spec, tmp_path_factory.mktemp("detector"), ("web",), FP32)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text encoder of the zoo."""
    pytest.importorskip("transformers", reason="no transformers: pip install -e '.[test]'")
    spec = resolve_model("tools.zoo.words:clip_text")
    return unjudged(spec, tmp_path_factory.mktemp("encoder"), ("web",), FP32)


@pytest.fixture
def opened(browser: Browser) -> Iterator[Visitor]:
    """Opens a build's page on a size of screen; the page must stay free of uncaught errors."""
    hosts: list[Host] = []
    errors: list[str] = []

    def open_page(build: Path, device: Mapping[str, Any] = DESKTOP) -> Page:
        hosts.append(Host({"/": build / "web"}).__enter__())
        context = browser.new_context(reduced_motion="reduce", service_workers="block", bypass_csp=True, **device)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(hosts[-1].url)
        page.locator("#tensor-message", has_text="Largest difference from what the model itself answered").wait_for()
        return page

    yield open_page
    for context in browser.contexts:
        context.close()
    for host in hosts:
        host.__exit__()
    assert errors == []


def values(page: Page, output: str) -> Array:
    section = page.locator(f'.answers section[aria-label="{output}"]')
    return np.array(json.loads(section.locator("pre").inner_text()))


def run(page: Page) -> None:
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("#tensor-message", has_text="Answered.").wait_for()


@pytest.mark.nightly
def test_a_text_encoder_answers_its_examples_and_changed_words(encoder: Path, opened: Visitor) -> None:
    page = opened(encoder)
    difference = float(page.inner_text("#tensor-message").split()[-1].rstrip("."))
    assert 0 <= difference < NEAR
    assert page.locator("label", has_text="input_ids").count() == 1
    assert page.inner_text("#tensor-input_ids-facts") == "int64, batch 1 to 3 x tokens 2 to 16"
    assert page.locator("#tensor-examples button").count() == 2
    assert page.inner_text('.answers section[aria-label="text_embeds"] h3') == "text_embeds float32 [1, 16]"
    ids = np.array([[2, 5, 9, 30, 2]])
    page.fill("#tensor-input_ids", json.dumps(ids.tolist()))
    page.fill("#tensor-attention_mask", json.dumps(np.ones_like(ids).tolist()))
    run(page)
    with closing(OrtRuntime(encoder / "onnx" / "model.onnx")) as runtime:
        right = runtime.run({"input_ids": ids, "attention_mask": np.ones_like(ids)})["text_embeds"]
    np.testing.assert_allclose(values(page, "text_embeds"), right, atol=NEAR)
    for text, sentence in (
        ("[[2, 5", "The values of “input_ids” are no JSON"),
        ("[[2, 0.5]]", "takes whole numbers (int64), not 0.5"),
    ):
        page.fill("#tensor-input_ids", text)
        page.locator("#tensor-message", has_text=sentence.replace("“", '"').replace("”", '"')).wait_for()
        assert page.locator("#run-tensors").is_disabled()
    page.fill("#tensor-input_ids", "[2, 5, 9]")
    page.click("#run-tensors")
    page.locator(
        "#tensor-message", has_text='The input "input_ids" has the shape [3], but the model accepts'
    ).wait_for()
    page.locator("#tensor-examples button").first.click()
    page.locator("#tensor-message", has_text="Largest difference").wait_for()
    page.locator('#self-test [data-pass="true"]').nth(1).wait_for()  # the self-test runs here too


def test_a_tabular_network_takes_files(tabular: Path, opened: Visitor, tmp_path: Path) -> None:
    page = opened(tabular)
    rows = np.linspace(-1, 1, 10).reshape(2, 5)
    with closing(OrtRuntime(tabular / "onnx" / "model.onnx")) as runtime:
        right = runtime.run({"features": rows.astype(np.float32)})["output"]
    stream = io.BytesIO()
    np.save(stream, rows)  # float64, as numpy makes it
    files = (("rows.npy", stream.getvalue()), ("rows.json", json.dumps(rows.tolist()).encode()))
    for name, data in files:
        page.locator("#tensor-examples button").last.click()
        page.locator("#tensor-message", has_text="Largest difference").wait_for()
        chooser = page.get_by_label("File with features")
        chooser.set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": data})
        page.locator("#tensor-message", has_text="Changed: press Run.").wait_for()
        run(page)
        np.testing.assert_allclose(values(page, "output"), right, atol=NEAR)
    swapped = io.BytesIO()
    np.save(swapped, rows.astype(">f4"))
    chooser.set_input_files({"name": "x.npy", "mimeType": "application/octet-stream", "buffer": swapped.getvalue()})
    page.locator("#tensor-message", has_text="in little endian: save it with").wait_for()
    assert page.locator(".map-area").is_hidden()
    assert page.locator("#notice").is_hidden()


@pytest.mark.nightly
def test_a_detector_that_declares_no_picture_answers_and_is_told_the_line_that_does(
    detector: Path, opened: Visitor
) -> None:
    page = opened(detector)
    line = re.findall(r'Input\(.*kind="image"\)', page.inner_text("#purpose"))
    (declared,) = line
    assert eval(declared, {"Input": edgekit.Input}) == edgekit.Input("images", ("batch", 3, 32, 32), kind="image")  # noqa: S307 - as a user pastes it
    assert "too many to write here" in page.input_value("#tensor-images")
    assert values(page, "output").shape == (1, 4, 5)


@pytest.mark.nightly
def test_nothing_overflows_on_a_phone_and_axe_finds_nothing(tabular: Path, opened: Visitor) -> None:
    page = opened(tabular, PHONE)
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm ci --ignore-scripts in web/")
    page.add_script_tag(path=str(AXE))
    assert violations(page) == []


@pytest.mark.nightly
def test_the_six_lines_run_in_a_page_of_ones_own(tabular: Path, browser: Browser, tmp_path: Path) -> None:
    with Host({"/bundle/": tabular / "web", "/app/": tmp_path}) as host:
        context = browser.new_context(service_workers="block")
        context.set_default_timeout(PATIENCE)
        page, own = context.new_page(), context.new_page()
        page.goto(f"{host.url}bundle/")
        page.locator("#tensor-message", has_text="Largest difference").wait_for()
        (tmp_path / "own.html").write_text(f"<!doctype html><title>Mine</title>{page.inner_text('#code')}")
        said: list[str] = []
        own.on("console", lambda message: said.append(message.text))
        own.goto(f"{host.url}app/own.html")
        until(own, lambda: [text for text in said if "output" in text], "what the code writes")
        context.close()
