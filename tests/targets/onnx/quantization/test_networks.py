"""INT8 of networks that are no transformers: made without a crash, in INT8 where that pays, and judged."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import edgekit
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.pipeline.outcome import TargetOutcome
from tests import modules, networks

STATIC, DYNAMIC = "onnx-int8-static", "onnx-int8-dynamic"


def exported(model: str, target: str, folder: Path) -> TargetOutcome:
    options = {STATIC: {"search": "none"}} if target == STATIC else {}
    return edgekit.export(model, targets=[target], options=options, output=folder, progress="none")[target]


def kinds(made: TargetOutcome) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(made.path / "model.onnx").graph.node)


SLOW = pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes 20 seconds: set EDGEKIT_SLOW=1")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["resnet", pytest.param("unet", marks=SLOW)])
def test_convolutions_compute_in_int8(name: str, tmp_path: Path) -> None:
    made = exported(f"tests.networks:{name}", STATIC, tmp_path)
    assert made.status == "verified", made.sentences
    found = kinds(made)
    assert "BatchNormalization" not in found  # folded before weights are rounded
    assert found["QuantizeLinear"] >= 5
    assert made.manifest is not None
    assert any("INT8 convolutions" in note for note in made.manifest.notes), made.manifest.notes


@pytest.mark.nightly
def test_recurrent_layers_take_int8_with_dynamic_ranges(tmp_path: Path) -> None:
    made = exported("tests.networks:lstm", DYNAMIC, tmp_path)
    assert made.status == "verified", made.sentences
    assert kinds(made)["DynamicQuantizeLSTM"] == 2


@SLOW
def test_convolutions_keep_float_arithmetic_with_dynamic_ranges(tmp_path: Path) -> None:
    made = exported("tests.networks:unet", DYNAMIC, tmp_path)
    assert made.status == "verified", made.sentences
    assert kinds(made)["ConvInteger"] == 0
    assert made.manifest is not None
    assert made.manifest.notes[0].startswith("weights only: smaller, not faster")


def one_picture() -> ModelSpec:
    """Fixed to one image, as many published models are."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 60 * 60, 4))
    return ModelSpec(
        name="one-picture",
        module=nn.Sequential(*layers).eval(),
        inputs=(Input("images", (1, 3, networks.SIZE, networks.SIZE), kind="image"),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 1)},
        evaluation=lambda: networks.pictures(4, 1),
        calibration=lambda n: networks.pictures(n, 2),
    )


@pytest.mark.nightly
def test_a_model_of_one_image_is_searched_for(tmp_path: Path) -> None:
    made = edgekit.export(one_picture(), targets=[STATIC], output=tmp_path, progress="none")[STATIC]
    assert made.status == "verified", made.sentences


@pytest.mark.nightly
@pytest.mark.parametrize(("target", "sentence"), [(STATIC, "no chain of convolutions"), (DYNAMIC, "could hold")])
def test_what_int8_cannot_change_is_told(target: str, sentence: str, tmp_path: Path) -> None:
    made = edgekit.export(modules.without_parameters(), targets=[target], output=tmp_path, progress="none")[target]
    assert made.status == "failed"
    assert sentence in made.error
