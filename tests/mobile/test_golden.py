"""The shared golden vectors are what their definitions say, and what Python's own encoder and PyTorch compute."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.errors import UsageError
from edgekit.reference.pictures import in_size
from edgekit.reference.vocabulary import read_vocabulary

GOLDEN = Path(__file__).parents[1] / "golden"


def test_the_files_are_what_their_definitions_make() -> None:
    maker = _maker()
    for name, content in maker.files().items():
        assert (GOLDEN / name).read_bytes() == content, f"run python {maker.__file__}"


def test_pythons_query_encoder_agrees() -> None:
    vocabulary = read_vocabulary(GOLDEN)
    assert vocabulary is not None
    golden = json.loads((GOLDEN / "query_encoding.json").read_text())
    refused = 0
    for case in golden["cases"]:
        if "vector" not in case:
            refused += 1
            with pytest.raises(UsageError) as refusal:
                vocabulary.encode(case["text"])
            assert all(f"'{word}'" in str(refusal.value) for word in case["unknown"])
            continue
        query = vocabulary.encode(case["text"])
        assert case["unknown"] == []
        wanted = _part(golden["binary"], case["vector"], "<f4")
        np.testing.assert_allclose(query, wanted, rtol=0, atol=golden["tolerance"])
    assert refused == 8


def test_the_filter_is_pytorchs_antialiased_bilinear() -> None:
    import torch

    golden = json.loads((GOLDEN / "preprocessing.json").read_text())
    scaled = 0
    for case in golden["cases"]:
        pixels = _part(golden["binary"], case["pixels"], "u1").astype(np.float64)
        if list(pixels.shape[:2]) == case["size"] or case["fit"] != "stretch":
            continue
        scaled += 1
        planes = torch.from_numpy(pixels[..., :3].transpose(2, 0, 1)[None].copy())
        wanted = torch.nn.functional.interpolate(planes, size=tuple(case["size"]), mode="bilinear", antialias=True)
        rgb = _part(golden["binary"], case["rgb"], "u1").astype(np.float64)
        np.testing.assert_allclose(rgb, wanted[0].numpy().transpose(1, 2, 0), rtol=0, atol=0.501, err_msg=case["name"])
    assert scaled == 5


def test_pythons_pictures_agree() -> None:
    golden = json.loads((GOLDEN / "preprocessing.json").read_text())
    fits = set()
    for case in golden["cases"]:
        pixels = _part(golden["binary"], case["pixels"], "u1")
        if (pixels[..., 3] < 255).any():
            continue  # Python is given RGB
        fits.add(case["fit"])
        height, width = case["size"]
        made = in_size(pixels[..., :3], height, width, case["fit"]).astype(int)
        rgb = _part(golden["binary"], case["rgb"], "u1")
        assert np.abs(made - rgb).max() <= 1, case["name"]
    assert fits == {"stretch", "crop", "letterbox"}


def test_planes_are_red_green_blue_and_rows_run_down() -> None:
    golden = json.loads((GOLDEN / "preprocessing.json").read_text())
    tensor = _part(golden["binary"], golden["cases"][0]["tensor"], "<f4")
    assert tensor.shape == (3, 2, 3)
    assert (tensor[0, 0, 0], tensor[1, 0, 2], tensor[2, 1, 0]) == (1, 1, 1)
    assert tensor.sum() == 3


def _part(binary: str, part: dict[str, Any], dtype: str) -> npt.NDArray[Any]:
    data = (GOLDEN / binary).read_bytes()
    count = int(np.prod(part["shape"]))
    return np.frombuffer(data, dtype, count, part["offset"]).reshape(part["shape"])


def _maker() -> ModuleType:
    found = importlib.util.spec_from_file_location("make_golden", GOLDEN / "make_golden.py")
    if found is None or found.loader is None:
        raise FileNotFoundError("make_golden.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
