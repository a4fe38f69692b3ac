"""What a picture's input declares: computed inside the model, or refused where it means nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.errors import CheckpointError, ModelError
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.contract import check_spec
from edgekit.model.folder import load_model, save_model
from edgekit.model.graph import capture
from edgekit.model.sources import resolve_model
from edgekit.model.sources.checkpoint import weights_digest, with_weights
from tests import modules

FACTORY = "tests.modules:backwards"


def test_artifacts_take_plain_pictures_and_the_module_gets_what_it_wants(tmp_path: Path) -> None:
    spec = resolve_model(FACTORY)
    (image,) = spec.inputs
    assert (image.shape, image.channels, image.layout, image.mean) == (("batch", 3, "height", 24), "RGB", "NCHW", ())
    assert image.preprocessing.endswith("bytes scaled to [0, 255], channels first, cropped to its proportions")
    save_model(spec, tmp_path)
    again = load_model(tmp_path)
    program = capture(again)
    arguments = to_tensors(spec, spec.random(3, {"batch": 2, "height": 24}))
    (rgb,) = arguments
    mean, deviation = (torch.tensor(each) for each in (modules.BGR_MEAN, modules.BGR_DEVIATION))
    wanted = modules.backwards().module((rgb.flip(1).permute(0, 2, 3, 1) - mean) / deviation)["logits"]
    for module in (spec.module, again.module, program.exported.module()):
        with torch.no_grad():
            got = named_outputs(spec, module(*arguments))["logits"]
        np.testing.assert_allclose(got, wanted.detach().numpy(), atol=1e-5)
    with torch.no_grad():
        wrong = named_outputs(spec, spec.module(rgb.flip(1)))["logits"]
    assert np.abs(wrong - wanted.detach().numpy()).max() > 0.01


def test_what_is_inside_once_stays_inside_once() -> None:
    spec = resolve_model(FACTORY)
    assert check_spec(spec).module is spec.module


def test_another_mean_is_another_model() -> None:
    other = modules.backwards()
    inputs = (replace(other.inputs[0], mean=(0.0, 0.0, 0.0)),)
    assert weights_digest(check_spec(replace(other, inputs=inputs))) != weights_digest(resolve_model(FACTORY))


@pytest.mark.parametrize("prefix", ["", "model."])
def test_a_file_of_weights_holds_neither_mean_nor_deviation(prefix: str, tmp_path: Path) -> None:
    theirs = modules.Backwards().state_dict()
    torch.save({f"{prefix}{name}": tensor for name, tensor in theirs.items()}, tmp_path / "w.pt")
    filled = with_weights(resolve_model(FACTORY), tmp_path / "w.pt").module.state_dict()
    assert torch.equal(filled["inner.inner.conv.weight"], theirs["conv.weight"])
    assert filled["mean_0"].flatten().tolist() == pytest.approx(modules.BGR_MEAN)


def test_the_averaged_weights_of_a_file_are_chosen_by_option(tmp_path: Path) -> None:
    theirs = modules.Backwards().state_dict()
    twice = {f"module.{name}": 2 * tensor for name, tensor in theirs.items()}
    torch.save({"model": theirs, "state_dict_ema": twice, "epoch": 3}, tmp_path / "w.pt")
    for ema, factor in ((False, 1), (True, 2)):
        filled = with_weights(resolve_model(FACTORY), tmp_path / "w.pt", ema).module.state_dict()
        assert torch.equal(filled["inner.inner.conv.weight"], factor * theirs["conv.weight"])
    torch.save({"model": theirs}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=r"holds no averaged weights \(.*\) but 'model'"):
        with_weights(resolve_model(FACTORY), tmp_path / "w.pt", True)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"channels": "GRB"}, "unknown channels 'GRB' of 'images'. Possible: RGB, BGR"),
        ({"layout": "HWC"}, "unknown layout 'HWC' of 'images'. Possible: NCHW, NHWC"),
        ({"fit": "pad"}, "unknown fit 'pad' of 'images'. Possible: stretch, crop, letterbox"),
        ({"mean": (0.5,)}, "the mean of 'images' has 1 numbers"),
        ({"std": (1.0, 0.0, 1.0)}, "cannot be divided by 0"),
        ({"layout": "NCHW"}, "in NCHW has 3 channels at dimension 1"),
        ({"kind": "tensor"}, "'images' of 'backwards' is not an image"),
    ],
)
def test_what_means_nothing_is_refused(change: dict[str, object], sentence: str) -> None:
    spec = modules.backwards()
    wrong = replace(spec, inputs=(replace(spec.inputs[0], **change),))  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ModelError, match=re.escape(sentence)):
        check_spec(wrong)
