"""Folders that save_pretrained wrote: the task's inputs and outputs, the mean of pictures inside, no download."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgekit.errors import DependencyError, EdgekitError, ModelError, UsageError
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.folder import load_model, save_model
from edgekit.model.graph import capture
from edgekit.model.overrides import words_of
from edgekit.model.sources import resolve, resolve_model
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.model.spec import Axis
from edgekit.storage.verified_io import seal_record
from tests.command import exit_code

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


def test_a_range_of_tokens_is_said_in_words_and_kept(bert: Path, tmp_path: Path) -> None:
    said = words_of(["input_ids:1=tokens:8..40/8@24"], None, ["logits:classes=no,yes"])
    spec = resolve_model(f"transformers:{bert}", said)
    save_model(spec, tmp_path / "model")
    for one in (spec, load_model(tmp_path / "model")):
        assert one.axes["tokens"] == Axis(24, 8, 40, 8)
        assert [i.shape for i in one.inputs] == [("batch", "tokens")] * 2
        assert one.outputs[0].classes == ("no", "yes")
    with pytest.raises(UsageError, match="axes name the input 'ids'"):
        resolve_model(f"transformers:{bert}", words_of(["ids:1=tokens:8..40"], None, None))
    task = "for feature-extraction describes its own"
    with pytest.raises(UsageError, match=task):
        resolve(f"transformers:{bert}", said, "feature-extraction")


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


SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
TEXTS = SMALL | {"vocab_size": 60, "max_position_embeddings": 20}


def clip() -> Any:
    from transformers import CLIPConfig, CLIPModel

    ends = {"eos_token_id": 59, "bos_token_id": 58, "pad_token_id": 0}
    seen = SMALL | {"image_size": 32, "patch_size": 16}
    return CLIPModel(CLIPConfig(text_config=TEXTS | ends, vision_config=seen, projection_dim=8))


def siglip() -> Any:
    from transformers import SiglipConfig, SiglipModel

    seen = SMALL | {"image_size": 32, "patch_size": 16}
    return SiglipModel(SiglipConfig(text_config=TEXTS | {"projection_size": 16}, vision_config=seen))


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    ends = {"eos_token_id": 59, "bos_token_id": 58}
    return GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=32, n_embd=16, n_layer=1, n_head=2, **ends))


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**TEXTS, num_key_value_heads=1))


@pytest.mark.parametrize(
    ("make", "inputs", "outputs"),
    [
        (clip, ["images", "input_ids", "attention_mask"], ["image_embeds", "text_embeds", "logits_per_image"]),
        (siglip, ["images", "input_ids", "attention_mask"], ["image_embeds", "text_embeds", "logits_per_image"]),
        (gpt2, ["input_ids", "attention_mask"], ["logits"]),
        (llama, ["input_ids", "attention_mask"], ["logits"]),
    ],
)
def test_models_of_text_and_of_pairs_answer_what_transformers_answers(
    make: Callable[[], Any], inputs: list[str], outputs: list[str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = make().eval()
    model.save_pretrained(tmp_path / "tiny")
    spec = resolve_model(f"transformers:{tmp_path / 'tiny'}")
    assert ([one.name for one in spec.inputs], [one.name for one in spec.outputs]) == (inputs, outputs)
    sizes = {"batch": 3, "tokens": 7} | ({"texts": 2} if "texts" in spec.axes else {})
    arguments = to_tensors(spec, spec.random(5, sizes))
    named = dict(zip(inputs, arguments, strict=True))
    if "images" in named:
        named["pixel_values"] = named.pop("images")
    with torch.no_grad():
        right = model(**named)
        got = named_outputs(spec, capture(spec).exported.module()(*arguments))
    for name in outputs:
        np.testing.assert_allclose(got[name], right[name], atol=1e-5)


def t5() -> Any:
    from transformers import T5Config, T5Model

    return T5Model(T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2))


def wav2vec() -> Any:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    sound = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2}
    return Wav2Vec2Model(Wav2Vec2Config(**SMALL, **sound, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (t5, "'T5Model' is an encoder and a decoder that runs once per token"),
        (wav2vec, "'Wav2Vec2Model' takes 'input_values', but only pictures and tokens"),
    ],
)
def test_a_model_of_another_kind_is_a_sentence(make: Callable[[], Any], sentence: str, tmp_path: Path) -> None:
    make().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=sentence):
        resolve_model(f"transformers:{tmp_path}")


@pytest.mark.parametrize(
    ("broken", "kind", "sentence"),
    [
        (lambda folder: (folder / "config.json").unlink(), ModelError, "Fetch one with `hf "),
        (lambda folder: (folder / "config.json").write_text("{"), ModelError, "Save the model again"),
        (lambda folder: (folder / "config.json").write_text("{}"), ModelError, "Possible: ForImageClassification"),
        (lambda folder: (folder / "model.safetensors").unlink(), ModelError, "cannot be loaded: "),
    ],
)
def test_what_cannot_be_taken_is_a_sentence(broken: object, kind: type[EdgekitError], sentence: str, vit: Path) -> None:
    assert callable(broken)
    broken(vit)
    with pytest.raises(kind, match=re.escape(sentence)) as caught:
        resolve_model(f"transformers:{vit}")
    assert "\n" not in str(caught.value)


def changed_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda folder: (folder / "config.json").write_text("[]"), "it is not an object"),
        (lambda folder: changed_config(folder, layer_norm_eps=float("nan")), "NaN is not JSON"),
        (lambda folder: changed_config(folder, architectures=["NoForImageClassification"]), "has no architecture"),
        (
            lambda folder: changed_config(folder, quantization_config={"quant_method": "awq", "bits": 4}),
            "cannot be loaded: Loading an AWQ quantized model requires",
        ),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "cannot be loaded: EOF"),
        (lambda folder: (folder / "model.safetensors").write_bytes(bytes(range(256))), "cannot be loaded: Error while"),
    ],
    ids=["a list", "NaN", "an unknown architecture", "quantized", "a broken tokenizer", "garbage weights"],
)
def test_a_damaged_folder_ends_the_command_with_one_line(
    change: Callable[[Path], object], sentence: str, vit: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change(vit)
    capfd.readouterr()
    assert exit_code("export", f"transformers:{vit}", "-t", "onnx", "-o", vit.parent / "build") == 2
    error = capfd.readouterr().err
    assert sentence in error
    assert error.splitlines()[-1].startswith("edgekit: ")
    assert "Traceback" not in error
    assert not (vit.parent / "build").exists()


def test_a_build_that_names_another_folder_as_its_model_is_refused(
    build: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = build / "model" / "config.json"
    path.write_text(seal_record(json.loads(path.read_text()) | {"factory": "transformers:../.."}))
    assert exit_code("verify", build) == 2
    assert "the build has no 'transformers.json'" in capfd.readouterr().err


def test_without_transformers_the_sentence_says_what_to_install(vit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(DependencyError, match=r"needs transformers\. Run: pip install transformers"):
        resolve_model(f"transformers:{vit}")
