"""A bundle is judged through what users call, so that a library that prepares pictures wrongly shows."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, EdgekitError, NotVerifiedHere
from edgekit.model.spec import Array
from edgekit.runtime.ort import OrtRuntime
from edgekit_arrcoc import queries
from edgekit_targets.web import browser
from edgekit_targets.web import export as web
from tests.core.judge.broken.conftest import recommit
from tests.web import small_bundle

EDGE = 224


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return small_bundle.make(tmp_path_factory.mktemp("door") / "web")
    except EdgekitError as missing:
        pytest.skip(str(missing))


def asked(scale: float = 1.0) -> dict[str, Array]:
    """A picture of bytes and a query; of no bytes where scaled."""
    draw = np.random.Generator(np.random.PCG64(5))
    picture = draw.integers(0, 256, (1, 3, EDGE, EDGE)).astype(np.float32) * np.float32(scale / 255)
    return {"images": picture, "queries": queries.vocabulary().encode("red circle")[None]}


def in_chromium(bundle: Path, inputs: dict[str, Array]) -> dict[str, Array]:
    """In a thread of its own: Playwright refuses a second start beside a browser that another test keeps open."""

    def run() -> dict[str, Array]:
        with closing(browser.BrowserRuntime(bundle, "wasm", "fp32")) as runtime:
            return runtime.run(inputs)

    with ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(run).result()
        except NotVerifiedHere as missing:
            pytest.skip(str(missing))


@pytest.mark.nightly
def test_two_runners_side_by_side_answer_as_one_does(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)  # more than the threads of one, whatever the host has
    pictures = [{**asked(), "images": np.roll(asked()["images"], k, axis=3)} for k in range(5)]
    wrong = {**asked(), "images": asked()["images"][:, :2]}
    runs = [*pictures, wrong, asked(0.999)]  # the last is not a picture of bytes

    def run() -> tuple[list[dict[str, Array]], list[dict[str, Array] | Exception], int]:
        with closing(browser.BrowserRuntime(bundle, "wasm", "fp32")) as runtime:
            alone = [runtime.run(inputs) for inputs in (*pictures, asked(0.999))]
            found = list(runtime.run_many(runs))
            return alone, found, runtime._page.evaluate("runners.length")

    with ThreadPoolExecutor(1) as pool:
        try:
            alone, found, runners = pool.submit(run).result()
        except NotVerifiedHere as missing:
            pytest.skip(str(missing))
    assert runners == 2
    refused = found.pop(len(pictures))
    assert isinstance(refused, ArtifactError), refused
    for one, other in zip(alone, found, strict=True):
        assert isinstance(other, dict), other
        for name, array in one.items():
            np.testing.assert_array_equal(other[name], array)


def test_a_picture_of_bytes_is_what_a_user_could_give(bundle: Path) -> None:
    made = read_artifact(bundle)
    found = browser.user_input(made.inputs, asked())
    assert found is not None
    assert found.pixels.shape == (EDGE, EDGE, 3)
    assert found.pixels.dtype == np.uint8
    np.testing.assert_allclose(found.pixels / np.float32(255), asked()["images"][0].transpose(1, 2, 0), atol=1e-6)
    assert browser.user_input(made.inputs, asked(0.999)) is None  # no bytes
    two = {name: np.concatenate([array, array]) for name, array in asked().items()}
    assert browser.user_input(made.inputs, two) is None  # the library takes one
    assert browser.user_input(made.inputs[:1] * 2, asked()) is None


def test_the_library_gives_the_same_outputs_by_name_as_the_model(bundle: Path) -> None:
    with closing(OrtRuntime(bundle / web.PATHS["fp32"])) as model:
        right = model.run(asked())
    found = in_chromium(bundle, asked())
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == {
        name: (array.dtype, array.shape) for name, array in right.items()
    }
    np.testing.assert_allclose(found["relevance"], right["relevance"], atol=1e-5)
    np.testing.assert_allclose(found["tokens"], right["tokens"], atol=1e-5)
    assert np.abs(found["budgets"] - right["budgets"]).max() <= 1


def test_a_library_that_scales_pictures_wrongly_shows(bundle: Path, tmp_path: Path) -> None:
    """Raw tensors do not pass through its preprocessing, so that they alone would not tell."""
    broken = tmp_path / "web"
    shutil.copytree(bundle, broken)
    (script,) = (broken / "assets").glob("worker-*.js")
    text = script.read_text()
    assert text.count("*e/255") == 1
    script.write_text(text.replace("*e/255", "*e/200"))
    recommit(broken, "web")
    with closing(OrtRuntime(bundle / web.PATHS["fp32"])) as model:
        right, raw = model.run(asked()), model.run(asked(0.999))
    assert np.abs(in_chromium(broken, asked())["relevance"] - right["relevance"]).max() > 0.01
    np.testing.assert_allclose(in_chromium(broken, asked(0.999))["relevance"], raw["relevance"], atol=1e-5)


def with_library(bundle: Path, folder: Path, right: str, wrong: str) -> Path:
    """A copy of a bundle whose library is another one."""
    shutil.copytree(bundle, folder)
    (script,) = (folder / "assets").glob("src-*.js")
    assert script.read_text().count(right) == 1
    script.write_text(script.read_text().replace(right, wrong))
    recommit(folder, "web")
    return folder


STAR = {**asked(), "queries": queries.vocabulary().encode("large blue star")[None]}


def test_a_library_that_adds_up_the_words_of_a_query_shows(bundle: Path, tmp_path: Path) -> None:
    """Vectors do not pass through its vocabulary, so that they alone would not tell."""
    found = in_chromium(with_library(bundle, tmp_path / "web", "/t.length;return", "/1;return"), STAR)
    assert np.abs(found["relevance"] - in_chromium(bundle, STAR)["relevance"]).max() > 0.01


def test_a_library_with_another_threshold_is_refused(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactError, match=r"present: False, but the largest 'relevance' is 0\.9\d+ and the threshold"
    ):
        in_chromium(with_library(bundle, tmp_path / "web", "=>e>=t)", "=>e>=2*t)"), STAR)
