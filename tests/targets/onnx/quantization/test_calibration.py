from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image

import edgekit
from edgekit.errors import CalibrationError, DataError
from edgekit.model.evaluation_set import calibration_of
from edgekit.model.spec import EvaluationSet
from edgekit.reference import dataset
from edgekit.reference.pictures import photographs
from edgekit.testing import small_model
from edgekit_targets.onnx.quantization import calibration
from edgekit_targets.onnx.quantization.calibration import IN_OTHER_LIGHT, LEAST, samples

SIZE = 96


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = np.random.default_rng(1)
    for number in range(LEAST):
        Image.fromarray(draw.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)).save(tmp_path / f"{number:03}.png")
    np.save(tmp_path / "queries.npy", draw.random((LEAST, 16)).astype(np.float32))
    return tmp_path


def test_a_folder_gives_its_images_and_rows(folder: Path) -> None:
    found = samples(small_model(), folder)
    own = [place for place, name in enumerate(found.names) if not name.endswith(IN_OTHER_LIGHT)]
    assert len(own) == LEAST
    with Image.open(folder / "007.png") as image:
        picture = found.inputs["images"][own[7]]
        np.testing.assert_allclose(picture, np.asarray(image).transpose(2, 0, 1) / 255.0, atol=1e-6)
    np.testing.assert_array_equal(found.inputs["queries"][own], np.load(folder / "queries.npy"))
    assert found.names[own[7]] == "007.png"


def test_every_fourth_picture_of_a_user_stands_in_other_light_behind_its_own(folder: Path) -> None:
    found = samples(small_model(), folder)
    relit = [place for place, name in enumerate(found.names) if name.endswith(IN_OTHER_LIGHT)]
    assert len(relit) == LEAST // 4
    for place in relit:
        assert found.names[place] == found.names[place - 1] + IN_OTHER_LIGHT
        np.testing.assert_array_equal(found.inputs["queries"][place], found.inputs["queries"][place - 1])
        changed, own = found.inputs["images"][place], found.inputs["images"][place - 1]
        assert not np.array_equal(changed, own)
        assert 0 <= changed.min() < changed.max() <= 1


def test_an_input_without_a_file_comes_from_the_models_own_set(folder: Path) -> None:
    (folder / "queries.npy").unlink()
    spec = small_model()
    made = calibration_of(spec, LEAST)
    assert made is not None
    found = samples(spec, folder)
    own = [place for place, name in enumerate(found.names) if not name.endswith(IN_OTHER_LIGHT)]
    np.testing.assert_array_equal(found.inputs["queries"][own], made.inputs["queries"])


def test_a_folder_with_a_picture_that_is_judged_is_refused(folder: Path) -> None:
    """Also where the rest of the sample is the model's own, and where its bytes became floats in another way."""
    spec = small_model()
    judged = dict(samples(spec, folder).part(9, 11).inputs)
    judged["images"] = np.nextafter(judged["images"], np.float32(1))
    spec = replace(spec, evaluation=lambda: EvaluationSet(inputs=judged, names=("first", "second")))
    for _ in range(2):
        with pytest.raises(DataError, match=r"'first' of the evaluation set is '007.png' of the calibration set"):
            samples(spec, folder)
        (folder / "queries.npy").unlink(missing_ok=True)
    (folder / "007.png").unlink()
    (folder / "008.png").unlink()
    samples(spec, folder, least=1)


def test_bad_folders_are_refused_with_a_sentence(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    spec, other = small_model(), tmp_path_factory.mktemp("other")
    with pytest.raises(DataError, match="does not exist"):
        samples(spec, other / "nowhere")
    with pytest.raises(DataError, match=r"has no images"):
        samples(spec, other)
    (folder / "003.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"the picture '.*003.png' cannot be read"):
        samples(spec, folder)
    (folder / "003.png").write_bytes((folder / "004.png").read_bytes()[:200])
    with pytest.raises(DataError, match=r"003.png' cannot be read"):
        samples(spec, folder)
    Image.new("L", (9000, 8000)).save(folder / "003.png")
    with pytest.raises(DataError, match=r"003.png' cannot be read \(it has 9000 x 8000 pixels, and at most 24000000"):
        samples(spec, folder)


@pytest.mark.parametrize(
    ("fit", "corner"), [("stretch", (1, 0, 0)), ("crop", (0, 0, 1)), ("letterbox", (114 / 255,) * 3)]
)
def test_pictures_of_another_size_get_the_models_by_the_rule_of_the_input(
    folder: Path, fit: Literal["stretch", "crop", "letterbox"], corner: tuple[float, ...]
) -> None:
    wide = Image.new("RGB", (3 * SIZE, SIZE), (0, 0, 255))
    wide.paste((255, 0, 0), (0, 0, SIZE // 2, SIZE))
    wide.save(folder / "003.png")
    spec = small_model()
    spec = replace(spec, inputs=tuple(replace(i, fit=fit) if i.kind == "image" else i for i in spec.inputs))
    found = samples(spec, folder)
    picture = found.inputs["images"][found.names.index("003.png")]
    assert picture.shape == (3, SIZE, SIZE)
    np.testing.assert_allclose(picture[:, 0, 0], corner, atol=1e-6)
    np.testing.assert_allclose(picture[:, SIZE // 2, SIZE // 2], (0, 0, 1), atol=1e-6)
    (folder / "003.png").unlink()
    with pytest.raises(DataError, match=r"queries.npy' has the shape \(64, 16\)\. 'queries' takes \(63, 16\)"):
        samples(spec, folder)
    (folder / "queries.npy").unlink()
    with pytest.raises(DataError, match=r"has 63 calibration samples\. At least 64 are needed"):
        samples(spec, folder)


def test_a_nan_is_refused_by_name(folder: Path) -> None:
    rows = np.load(folder / "queries.npy")
    rows[5, 2] = np.nan
    np.save(folder / "queries.npy", rows)
    with pytest.raises(DataError, match=r"sample '005.png' has a NaN or Inf in 'queries'"):
        samples(small_model(), folder)


def test_a_file_that_would_run_code_is_not_loaded(folder: Path) -> None:
    np.save(folder / "queries.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"queries.npy' cannot be read"):
        samples(small_model(), folder)


def test_a_model_without_or_with_too_small_a_set_is_refused() -> None:
    with pytest.raises(CalibrationError, match="'small' declares no calibration set"):
        samples(replace(small_model(), calibration=None))
    made = {"images": np.zeros((3, 3, SIZE, SIZE), np.float32), "queries": np.zeros((3, 16), np.float32)}
    few = EvaluationSet(inputs=made, names=("a", "b", "c"))
    with pytest.raises(CalibrationError, match=r"'small' declares 3 calibration samples\. At least 64 are needed"):
        samples(replace(small_model(), calibration=lambda count: few))
    assert samples(replace(small_model(), calibration=lambda count: few), least=3).names == ("a", "b", "c")
    none = EvaluationSet(inputs={name: array[:0] for name, array in made.items()}, names=())
    with pytest.raises(CalibrationError, match=r"'small' declares 0 calibration samples\. At least 1 are needed"):
        samples(replace(small_model(), calibration=lambda count: none), least=1)


def test_a_model_of_pictures_without_a_set_is_shown_parts_of_photographs_that_are_not_asked() -> None:
    spec = small_model()
    spec = replace(spec, calibration=None, inputs=tuple(i for i in spec.inputs if i.kind == "image"))
    found = samples(spec, count=70)
    images = found.inputs["images"]
    assert images.shape == (70, 3, SIZE, SIZE)
    assert 0 <= images.min() < 0.02
    assert 0.98 < images.max() <= 1
    assert len({image.tobytes() for image in images}) == 70
    np.testing.assert_array_equal(samples(spec, count=70).inputs["images"], images)
    shown, asked = photographs(calibration.SHIPPED), photographs()
    assert len(shown) == 5
    assert not set(shown) & set(asked)
    assert calibration.unknown(spec)
    assert not calibration.unknown(spec, calibration.SHIPPED)  # a folder of the user's
    assert not calibration.unknown(small_model())


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({}, "has nothing for 'images'"),
        ({"images": np.zeros((LEAST, 3, 8, 8), np.float32)}, r"has float32 \(64, 3, 8, 8\) for 'images'"),
        ({"images": np.zeros((LEAST, 3, SIZE, SIZE))}, "has float64 .* for 'images', not float32"),
    ],
)
def test_a_set_that_does_not_fit_the_model_is_refused(made: dict[str, np.ndarray], said: str) -> None:
    wrong = EvaluationSet(inputs=made, names=tuple(map(str, range(LEAST))))
    with pytest.raises(CalibrationError, match=f"the calibration set of 'small' {said}"):
        samples(replace(small_model(), calibration=lambda count: wrong))


def test_a_folder_for_a_model_without_images_holds_its_arrays(tmp_path: Path) -> None:
    spec = small_model()
    spec = replace(spec, inputs=tuple(replace(i, kind="tensor") for i in spec.inputs))
    Image.new("RGB", (SIZE, SIZE)).save(tmp_path / "001.png")
    with pytest.raises(DataError, match=r"no .npz files .* and none of images.npy, queries.npy"):
        samples(spec, tmp_path)


def test_a_folder_must_be_whole_where_the_model_has_no_set(folder: Path) -> None:
    (folder / "queries.npy").unlink()
    with pytest.raises(DataError, match=r"has no queries.npy, and 'small'"):
        samples(replace(small_model(), calibration=None), folder)


def test_a_folder_that_cannot_calibrate_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"

    def refused(why: str) -> None:
        with pytest.raises(DataError, match=why):
            edgekit.quantize("edgekit.testing:small_model", calibration=folder, output=tmp_path / "build")
        assert not (tmp_path / "build").exists()

    refused("does not exist")
    folder.mkdir()
    refused(r"has no images")
    for number in range(LEAST):
        if number == LEAST - 1:
            refused("has 63 calibration samples. At least 64 are needed")
        Image.new("RGB", (5, 4)).save(folder / f"{number:03d}.png")
    dataset.check_folder(folder)
    (folder / "007.png").write_bytes((folder / "007.png").read_bytes()[:40])
    refused(r"007.png' cannot be read")
