"""An opened artifact takes what its manifest declares; all else is a sentence, not the runtime's exception."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import edgekit
from edgekit.errors import ArtifactError, UsageError
from edgekit.pipeline.loaded import LoadedArtifact, check_inputs, load
from edgekit.reference.pictures import in_size
from edgekit.testing import small_model
from tests.manifests import manifest

IMAGES = np.zeros((2, 3, 96, 96), np.float32)
QUERIES = np.zeros((2, 16), np.float32)


@pytest.fixture(scope="module")
def folder(small_build: Path) -> Path:
    return small_build / "onnx"


@pytest.fixture
def loaded(folder: Path) -> Iterator[LoadedArtifact]:
    with load(folder) as found:
        yield found


def test_it_answers_every_size_that_was_proved(loaded: LoadedArtifact) -> None:
    inputs = small_model().random(3, {"batch": 2})
    answers = loaded.run(inputs)
    right = small_model().module(*map(torch.from_numpy, inputs.values()))
    for output, tensor in zip(small_model().outputs, right, strict=True):
        np.testing.assert_allclose(answers[output.name], tensor.detach().numpy(), atol=1e-4)
    assert answers["relevance"].shape == (2, 36)
    wide = np.zeros((2, 3, 96, 160), np.float32)
    assert loaded.run({"images": wide, "queries": QUERIES})["relevance"].shape == (2, 60)
    assert repr(loaded) == f"<small onnx in {loaded.device}>"


def test_a_picture_in_bytes_of_any_size_is_prepared_as_on_devices(loaded: LoadedArtifact) -> None:
    draw = np.random.default_rng(0)
    pixels, query = draw.integers(0, 256, (96, 96, 3), dtype=np.uint8), QUERIES[:1] + 0.1
    for picture, small in ((pixels, pixels), (pixels[:40, 8:], in_size(pixels[:40, 8:], 96, 160))):
        tensor = (small.transpose(2, 0, 1)[None] / 255).astype(np.float32)
        right = loaded.run({"images": tensor, "queries": query})["relevance"]
        np.testing.assert_array_equal(loaded.run({"images": picture, "queries": query})["relevance"], right)
    with pytest.raises(UsageError, match=r"input 'images' is uint8 \[96, 96, 4\]"):
        loaded.run({"images": np.zeros((96, 96, 4), np.uint8), "queries": query})


def size_of(picture: tuple[int, ...], axes: Mapping[str, Any], sizes: Sequence[Any] = ()) -> tuple[int, ...]:
    """The size that a picture gets as an input of some axes."""
    image = {"name": "images", "dtype": "float32", "shape": (1, 3, "height", "width"), "kind": "image"}
    listed = tuple(dict(zip(("height", "width"), size, strict=True)) for size in sizes)
    made = manifest(axes=axes, inputs=(image,), sizes=listed)
    return check_inputs(made, {"images": np.zeros((*picture, 3), np.uint8)})["images"].shape[2:]


def test_a_pictures_size_is_that_of_the_libraries() -> None:
    golden = json.loads((Path(__file__).parents[2] / "golden" / "fitting.json").read_text())
    axes, listed = dict.fromkeys(("height", "width"), golden["axis"]), golden["listed"]
    for case in golden["cases"]:
        assert size_of(case["picture"], axes) == tuple(case["size"])
    for case in listed["cases"]:
        assert size_of(case["picture"], axes, listed["sizes"]) == tuple(case["size"])


AXES = st.builds(
    lambda step, least, more, default: {
        "minimum": step * least,
        "maximum": step * (least + more),
        "multiple_of": step,
        "default": step * (least + min(default, more)),
        "dynamic": True,
    },
    *(st.integers(1, 16), st.integers(1, 9), st.integers(0, 12), st.integers(0, 12)),
)


@given(rows=AXES, columns=AXES, picture=st.tuples(st.integers(1, 300), st.integers(1, 300)))
@example(
    rows={"minimum": 1, "maximum": 40, "multiple_of": 1, "default": 9, "dynamic": True},
    columns={"minimum": 1, "maximum": 40, "multiple_of": 1, "default": 25, "dynamic": True},
    picture=(7, 7),
)
def test_no_size_suits_a_picture_better(
    rows: dict[str, int], columns: dict[str, int], picture: tuple[int, int]
) -> None:
    """Of all sizes, as the rule is defined: shape first, then about as many pixels as the default."""

    def quotient(one: int, other: int) -> Fraction:
        return Fraction(max(one, other), min(one, other))

    def misfit(size: tuple[int, ...]) -> Fraction:
        pixels = quotient(size[0] * size[1], rows["default"] * columns["default"])
        return quotient(size[0] * picture[1], size[1] * picture[0]) ** 4 * pixels

    sides = (range(a["minimum"], a["maximum"] + 1, a["multiple_of"]) for a in (rows, columns))
    best = min(map(misfit, itertools.product(*sides)))
    assert math.isclose(misfit(size_of(picture, {"height": rows, "width": columns})), best, rel_tol=1e-12)


def test_an_axis_of_many_sizes_is_searched_at_once() -> None:
    """All pairs of a height and a width are ten thousand million; they would take hours."""
    axis = {"minimum": 1, "maximum": 100_000, "multiple_of": 1, "default": 224, "dynamic": True}
    assert size_of((9, 16), {"height": axis, "width": axis}) == (168, 299)


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (None, "inputs are a NoneType"),
        ({"images": IMAGES}, "'small' lacks the input 'queries'. Its inputs: images, queries"),
        ({"images": IMAGES, "queries": QUERIES, "x": QUERIES}, "'small' does not have the input 'x'"),
        ({"images": IMAGES.astype("float64"), "queries": QUERIES}, "input 'images' is float64 .* takes a NumPy array"),
        ({"images": IMAGES[0], "queries": QUERIES}, r"is float32 \[3, 96, 96\]\. .*\[batch, 3, height, width\]"),
        ({"images": IMAGES.tolist(), "queries": QUERIES}, "input 'images' is list"),
        ({"images": IMAGES[:, :2], "queries": QUERIES}, "One dimension of 'small' must be 3"),
        ({"images": IMAGES, "queries": QUERIES[:1]}, "Axis 'batch' of 'small' must be 2, as in another input"),
        ({"images": IMAGES[:0], "queries": QUERIES[:0]}, "Axis 'batch' of 'small' must be 1 to 8"),
        (
            {"images": np.zeros((9, 3, 96, 96), np.float32), "queries": np.zeros((9, 16), np.float32)},
            "Axis 'batch' of 'small' must be 1 to 8, which was proved",
        ),
        (
            {"images": np.zeros((2, 3, 100, 96), np.float32), "queries": QUERIES},
            "Axis 'height' of 'small' must be 96 to 160 in steps of 16",
        ),
    ],
)
def test_what_it_does_not_take_is_named(loaded: LoadedArtifact, inputs: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        loaded.run(inputs)


def test_it_closes_once_and_then_answers_no_more(folder: Path) -> None:
    found = load(folder)
    found.close()
    found.close()
    with pytest.raises(UsageError, match=r"<small onnx in .*> was closed"):
        found.run({"images": IMAGES, "queries": QUERIES})


def test_a_wrong_path_or_place_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"'.*model.onnx' is a file.*'{folder}'"):
        load(folder / "model.onnx")
    with pytest.raises(UsageError, match=r"'gpu'\. Places: cpu"):
        load(folder, place="gpu")
    with pytest.raises(ArtifactError, match="no artifact in"):
        load(tmp_path)
    with pytest.raises(ArtifactError, match=f"'{folder}' is an artifact. Pass its build folder, '{folder.parent}'"):
        edgekit.verify(folder, progress="none")


def test_the_model_of_a_build_can_be_read_by_others(folder: Path) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.parent.iterdir() if path.is_dir()}
    assert modes["model"] == modes["onnx"]
