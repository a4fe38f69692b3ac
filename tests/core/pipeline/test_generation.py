"""A small decoder with a cache generates what it generates in PyTorch, wherever it runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import edgekit
from edgekit_hub.decoder import TASK
from tests.chromium import no_chromium

SLOW = pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes a minute: set EDGEKIT_SLOW=1")
WORDS, SMALLEST = 48, 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder that has learned to count in steps: INT8 can be right of a model alone that is sure of its answers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": WORDS}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, max_position_embeddings=384, bos_token_id=1, eos_token_id=2))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(150):
        first, step = torch.randint(WORDS, (32, 1)), torch.randint(1, 4, (32, 1))
        ids = (first + step * torch.arange(24)) % (WORDS - SMALLEST) + SMALLEST
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    folder = tmp_path_factory.mktemp("models") / "counting"
    model.eval().save_pretrained(folder)
    return folder


@SLOW
@pytest.mark.parametrize("target", ["onnx-int8-dynamic", "openvino", "executorch", "web"])
def test_it_generates_the_same_64_tokens(trained: Path, tmp_path: Path, target: str) -> None:
    if target == "web" and (missing := no_chromium()):
        pytest.skip(missing)
    build = edgekit.export(f"transformers:{trained}", task=TASK, targets=[target], output=tmp_path, progress="none")
    assert build.ok, build[target].sentences
    assert build[target].status == "verified"
    for place in build[target].places:  # of 6 pairs of prompts and 64 tokens each none is another one
        wrong = {measure.value for measure in place.measures if measure.metric == "wrong labels"}
        assert (place.place, wrong) == (place.place, {0.0})
