"""A causal language model as one graph with a cache: its text is transformers' own, from its hub folder's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgekit
from edgekit.artifact.run_record import PARTS
from edgekit.errors import EdgekitError
from edgekit.model.parts import CompositeModel
from edgekit.model.sources import resolve
from edgekit.storage.files import digest_file
from edgekit_hub.decoder import NEW, TASK

PROMPT = [5, 9, 11, 30]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 60}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    folder = tmp_path_factory.mktemp("models") / "Tiny Llama"
    config = LlamaConfig(**sizes, **heads, max_position_embeddings=128, bos_token_id=1, eos_token_id=2)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def generated(folder: Path) -> list[int]:
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor([PROMPT])
    mask = torch.ones_like(ids)
    found = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
    return [int(token) for token in found[0, len(PROMPT) :]]


@pytest.mark.nightly
def test_the_file_in_the_hub_folder_generates_the_models_own_text(llama: Path, tmp_path: Path) -> None:
    import onnxruntime

    build = edgekit.export(f"transformers:{llama}", task=TASK, targets=["onnx"], output=tmp_path, progress="none")
    assert [build["onnx"].verdict, build.parts["model"]["onnx"].verdict] == ["verified", "verified"]
    hub = build.path / "hub"
    names = ["README.md", "config.json", "generation_config.json", "onnx/model.onnx"]
    record = json.loads((build.path / PARTS).read_text())
    assert record["hub"] == {name: digest_file(hub / name) for name in names}

    session = onnxruntime.InferenceSession(hub / "onnx" / "model.onnx")
    shapes = {one.name: one.shape for one in session.get_inputs()}
    past = [f"past_key_values.0.{kind}" for kind in ("key", "value")]
    assert list(shapes) == ["input_ids", "attention_mask", "position_ids", *past]
    assert shapes["attention_mask"] == ["batch", "past+tokens"]
    tokens: list[int] = []
    given: dict[str, Any] = {name: np.zeros((1, 1, 0, 8), np.float32) for name in past}
    ids = PROMPT
    while len(tokens) < NEW:
        length = given[past[0]].shape[2] + len(ids)
        positions = np.arange(length - len(ids), length)[None]
        given |= {"input_ids": np.array([ids]), "attention_mask": np.ones((1, length), np.int64)}
        logits, *cache = session.run(
            ["logits", "present.0.key", "present.0.value"], given | {"position_ids": positions}
        )
        ids = [int(logits[0, -1].argmax())]
        tokens += ids
        given = dict(zip(past, cache, strict=True))
    assert tokens == generated(llama)

    loaded = edgekit.load(build.parts["model"]["onnx"].path)
    wrong = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, 3), np.int64), "position_ids": np.array([[1]])}
    with pytest.raises(EdgekitError, match=r"takes past\+tokens, which is"):
        loaded.run(given | wrong)


def test_along_its_own_text_the_model_chooses_that_text(llama: Path) -> None:
    parts = resolve(f"transformers:{llama}", task=TASK)
    assert isinstance(parts, CompositeModel)
    text = parts.inputs[0]
    assert text.continuation.shape == (2, NEW)
    assert len({len(prompt) for prompt in text.prompts}) == 2  # one is padded


def test_a_task_that_there_is_not_is_a_sentence(llama: Path, tmp_path: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification, LlamaConfig

    with pytest.raises(EdgekitError, match=f"mean '{TASK}'"):
        resolve(f"transformers:{llama}", task="text-generation")
    with pytest.raises(EdgekitError, match=f"'{TASK}'"):
        edgekit.export("arr-coc-tiny", task=TASK)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertForSequenceClassification(BertConfig(**small, vocab_size=50)).save_pretrained(tmp_path / "bert")
    with pytest.raises(EdgekitError, match="is 'BertForSequenceClassification', but the task"):
        resolve(f"transformers:{tmp_path / 'bert'}", task=TASK)
    config = LlamaConfig.from_pretrained(llama)
    config.max_position_embeddings = 20
    config.save_pretrained(llama)
    with pytest.raises(EdgekitError, match="takes 20 tokens, but generation with a cache needs at least 48"):
        resolve(f"transformers:{llama}", task=TASK)
