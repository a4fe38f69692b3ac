"""Folders that save_pretrained wrote: the task's inputs and outputs, the mean of pictures inside, no download."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.errors import DependencyError, EdgekitError, ModelError
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.folder import load_model, save_model
from edgekit.model.graph import capture
from edgekit.model.sources import resolve_model
from edgekit.model.sources.checkpoint import weights_digest

MEAN, DEVIATION = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=16,
        num_labels=5,
    )
    folder = tmp_path / "Tiny ViT"
    ViTForImageClassification(config).save_pretrained(folder)
    said = {"do_normalize": True, "image_mean": MEAN, "image_std": DEVIATION}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    return folder


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "tiny-bert")
    return tmp_path / "tiny-bert"


def test_a_classifier_of_pictures_takes_them_as_they_are(vit: Path, tmp_path: Path) -> None:
    from transformers import ViTForImageClassification

    spec = resolve_model(f"transformers:{vit}")
    assert (spec.name, spec.author, spec.licence) == ("tiny-vit", "", "")
    assert [(i.name, i.shape, i.kind) for i in spec.inputs] == [("images", ("batch", 3, 32, 32), "image")]
    assert [(o.name, o.role) for o in spec.outputs] == [("logits", "logits")]
    images = torch.rand(2, 3, 32, 32)
    mean, deviation = (torch.tensor(each).reshape(1, 3, 1, 1) for each in (MEAN, DEVIATION))
    with torch.no_grad():
        right = ViTForImageClassification.from_pretrained(vit).eval()((images - mean) / deviation).logits
        (got,) = spec.module(images)
    np.testing.assert_allclose(got.numpy(), right.numpy(), atol=1e-6)


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_it_is_kept_and_captured(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    spec = resolve_model(f"transformers:{request.getfixturevalue(name)}")
    save_model(spec, tmp_path / "model")
    assert str(tmp_path) not in (tmp_path / "model" / "config.json").read_text()
    again = load_model(tmp_path / "model")
    assert (again.name, weights_digest(again)) == (spec.name, weights_digest(spec))
    program = capture(again)
    arguments = to_tensors(spec, spec.random(5, {"batch": 3}))
    with torch.no_grad():
        right = named_outputs(spec, spec.module(*arguments))["logits"]
        got = named_outputs(spec, program.exported.module()(*arguments))["logits"]
    np.testing.assert_allclose(got, right, atol=1e-5)


def test_a_classifier_of_text_takes_tokens_of_its_vocabulary(bert: Path) -> None:
    spec = resolve_model(f"transformers:{bert}")
    ids, mask = spec.inputs
    assert (ids.name, ids.shape, ids.low, ids.high) == ("input_ids", ("batch", "tokens"), 0, 49)
    assert (mask.name, mask.low) == ("attention_mask", 1)


@pytest.mark.parametrize(
    ("broken", "kind", "sentence"),
    [
        (
            lambda folder: (folder / "config.json").unlink(),
            ModelError,
            "nothing is downloaded; fetch one with `hf ",
        ),
        (lambda folder: (folder / "config.json").write_text("{"), ModelError, "save the model again"),
        (lambda folder: (folder / "config.json").write_text("{}"), ModelError, "possible are ForImageClassification"),
        (lambda folder: (folder / "model.safetensors").unlink(), ModelError, "cannot be loaded: "),
    ],
)
def test_what_cannot_be_taken_is_a_sentence(broken: object, kind: type[EdgekitError], sentence: str, vit: Path) -> None:
    assert callable(broken)
    broken(vit)
    with pytest.raises(kind, match=re.escape(sentence)) as caught:
        resolve_model(f"transformers:{vit}")
    assert "\n" not in str(caught.value)


def test_without_transformers_the_sentence_says_what_to_install(vit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(DependencyError, match="needs transformers: pip install transformers"):
        resolve_model(f"transformers:{vit}")
