import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from edgekit.errors import CheckpointError
from edgekit.model.spec import ModelSpec
from edgekit_arrcoc import presets
from training import presence

Tensors = dict[str, Tensor]


@pytest.fixture(scope="module")
def tiny() -> ModelSpec:
    return presets.arr_coc_tiny()


@pytest.mark.parametrize("factory", [presets.arr_coc_tiny, presets.arr_coc_0_1, presets.arr_coc_0_1_wide])
def test_a_preset_answers_what_it_declares(factory: Callable[[], ModelSpec]) -> None:
    spec = factory()
    made = spec.random(1, {"batch": 2})
    with torch.no_grad():
        outputs = spec.module(*(torch.from_numpy(made[i.name]) for i in spec.inputs))
    assert not spec.module.training
    for declared, output in zip(spec.outputs, outputs, strict=True):
        assert str(output.dtype).removeprefix("torch.") == declared.dtype
        assert len(output) == 2
    assert spec.factory == f"edgekit_arrcoc.presets:{factory.__name__}"


def test_arr_coc_base_is_the_full_size() -> None:
    spec = presets.arr_coc_base()
    encoder = spec.module.get_submodule("texture")
    assert 85e6 < sum(parameter.numel() for parameter in encoder.parameters()) < 87e6
    assert spec.evaluation is not None
    made = spec.evaluation()
    assert (made.truth, made.metric) == (None, None)


def test_arr_coc_tiny_is_as_small_as_promised(tiny: ModelSpec) -> None:
    assert sum(parameter.numel() for parameter in tiny.module.parameters()) < 3.4e6
    assert (presets.HOME / "model.safetensors").stat().st_size < 16e6
    assert {name: path.is_file() for name, path in tiny.files.items()} == {
        "vocabulary.json": True,
        "embeddings.bin": True,
        "credits.json": True,
        "presence.json": True,
    }


def test_arr_coc_tiny_finds_what_is_asked_for(tiny: ModelSpec) -> None:
    assert tiny.evaluation is not None
    made = tiny.evaluation()
    assert made.metric is not None
    assert made.truth is not None
    with torch.no_grad():
        outputs = tiny.module(*(torch.from_numpy(made.inputs[i.name]) for i in tiny.inputs))
    named = {o.name: output.numpy() for o, output in zip(tiny.outputs, outputs, strict=True)}
    coverage = made.metric(named, made.truth)
    assert coverage.mean() > 0.99
    assert np.sort(coverage)[1] > 0.8
    assert coverage.min() > 0.5
    there = np.nan_to_num(made.truth).sum(1) > 0
    best = np.take_along_axis(made.truth, named["indices"][:, :1].astype(np.int64), 1)
    assert float((best[there] > 0).mean()) >= 0.97
    assert coverage[there].mean() > 0.99
    # The highest relevance says whether anything answers; nobody knows that of photographs as they are.
    reached = named["relevance"].max(1) >= presence.load(presets.HOME)
    assert float(reached[there].mean()) >= 0.95
    assert float(reached[(made.truth == 0).all(1)].mean()) <= 0.1
    # The map follows the words: with the queries of other images it is no better than chance.
    with torch.no_grad():
        some = slice(0, 48)
        images, queries = made.inputs["images"][some], np.roll(made.inputs["queries"], 1, 0)[some]
        other = tiny.module(torch.from_numpy(images), torch.from_numpy(queries))
    assert made.metric({"indices": other[2].numpy()}, made.truth[some])[there[some]].mean() < 0.7


def test_a_checkpoint_is_recognised_by_its_tensors(tiny: ModelSpec) -> None:
    weights = tiny.module.state_dict()
    made = presets.from_checkpoint(weights)
    assert made.name == "arr-coc-tiny"
    assert made.reference is None
    for name, tensor in made.module.state_dict().items():
        assert torch.equal(tensor, weights[name])


@pytest.mark.parametrize(("factory", "width"), [(presets.arr_coc_0_1, 1536), (presets.arr_coc_0_1_wide, 2048)])
def test_a_full_public_checkpoint_is_recognised_and_its_language_model_ignored(
    factory: Callable[[], ModelSpec], width: int
) -> None:
    weights = factory().module.state_dict()
    full = weights | {"base_model.model.embed_tokens.weight": torch.zeros(2, 2), "base_model.lm_head": torch.ones(1)}
    made = presets.from_checkpoint(full)
    assert made.name == "arr-coc-0.1"
    assert made.inputs[1].shape == ("batch", width)
    assert made.factory.endswith(factory.__name__)


def test_half_precision_weights_are_widened(tiny: ModelSpec) -> None:
    made = presets.from_checkpoint({name: value.half() for name, value in tiny.module.state_dict().items()})
    assert {parameter.dtype for parameter in made.module.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: {n: tensor for n, tensor in w.items() if n != "realizing.gate.bias"}, "realizing.gate.bias"),
        (lambda w: w | {"texture.norm.bias": torch.zeros(7)}, "'texture.norm.bias' [7] instead of [192]"),
        (lambda w: w | {"classifier.bias": torch.zeros(7)}, "classifier.bias"),
        (lambda w: w | {"texture.norm.bias": torch.zeros(192, dtype=torch.int64)}, "integers"),
        (lambda w: w | {"texture.patch.weight": torch.zeros(384, 3, 16, 16)}, "'384'"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    tiny: ModelSpec, change: Callable[[Tensors], Tensors], said: str
) -> None:
    with pytest.raises(CheckpointError, match=re.escape(said)):
        presets.from_checkpoint(change(dict(tiny.module.state_dict())))


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"encoder.weight": torch.zeros(3)},
        {"balancer.weight_predictor.0.bias": torch.zeros(128)},
        {"participatory_scorer.texture_proj.2.weight": torch.zeros(999, 64, 1, 1)},
        {"participatory_scorer.texture_proj.2.weight": torch.tensor(1.0)},
        {"texture.patch.weight": torch.tensor(1.0)},
    ],
)
def test_tensors_of_no_known_family_are_refused(tensors: Tensors) -> None:
    with pytest.raises(CheckpointError):
        presets.from_checkpoint(tensors)


@pytest.mark.parametrize("content", [None, b"", b"\0" * 100])
def test_missing_or_damaged_embedded_weights_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    monkeypatch.setattr(presets, "HOME", tmp_path)
    with pytest.raises(CheckpointError, match=re.escape(str(tmp_path))):
        presets.arr_coc_tiny()


def test_a_recorded_reference_is_found_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes((presets.HOME / "model.safetensors").read_bytes())
    monkeypatch.setattr(presets, "HOME", tmp_path)
    assert presets.arr_coc_tiny().reference is None
    (tmp_path / "reference").mkdir()
    assert presets.arr_coc_tiny().reference == tmp_path / "reference"
    assert {f.name for f in dataclasses.fields(presets.arr_coc_tiny())} >= {"evaluation", "calibration"}
