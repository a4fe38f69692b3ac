"""An encoder and a decoder as three graphs: what they generate is transformers' own, from the hub folder's files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgekit
from edgekit.errors import EdgekitError
from edgekit.model.parts import CompositeModel
from edgekit.model.sources import resolve
from edgekit_hub.seq2seq import ENCODER, FIRST, FURTHER, NEW, SPEECH, TEXT, Greedy, Source

SLOW = pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes half a minute: set EDGEKIT_SLOW=1")
SMALL = {"d_model": 16, "vocab_size": 40, "decoder_start_token_id": 0, "pad_token_id": 0}
IDS = np.array([[5, 9, 11, 30], [7, 8, 9, 3]])


def t5() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(**SMALL, d_kv=8, d_ff=32, num_layers=1, num_heads=2))


def whisper() -> Any:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    layers = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("ffn_dim", 32))}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_mel_bins": 8}
    most = {"max_source_positions": 20, "max_target_positions": 48}
    return WhisperForConditionalGeneration(
        WhisperConfig(**SMALL, **layers, **heads, **most, bos_token_id=1, eos_token_id=2)
    )


def generated(model: Any, **inputs: torch.Tensor) -> list[list[int]]:
    model.generation_config.eos_token_id = model.config.eos_token_id = None  # as many tokens as are asked for
    found = model.generate(**inputs, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
    return [[int(token) for token in row[-NEW:]] for row in found]


@SLOW
@pytest.mark.parametrize(("make", "task"), [(t5, TEXT), (whisper, SPEECH)])
def test_the_files_in_the_hub_folder_generate_the_models_own_tokens(make: Any, task: str, tmp_path: Path) -> None:
    import onnxruntime

    torch.manual_seed(2)
    model = make().eval()
    model.save_pretrained(tmp_path / "model")
    build = edgekit.export(
        f"transformers:{tmp_path / 'model'}", task=task, targets=["onnx"], output=tmp_path, progress="none"
    )
    assert [build["onnx"].verdict, *(part["onnx"].verdict for part in build.parts.values())] == ["verified"] * 4

    class File:
        def __init__(self, name: str) -> None:
            self.session = onnxruntime.InferenceSession(build.path / "hub" / "onnx" / f"{name}.onnx")

        def run(self, inputs: Any) -> dict[str, Any]:
            return dict(
                zip([o.name for o in self.session.get_outputs()], self.session.run(None, dict(inputs)), strict=True)
            )

    files = {name: File(name) for name in (ENCODER, FIRST, FURTHER)}
    inputs: dict[str, Any] = {"input_ids": IDS, "attention_mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0]])}
    if task == SPEECH:
        inputs = {"input_features": np.random.default_rng(0).uniform(-1, 1, (2, 8, 40)).astype(np.float32)}
    tokens = Greedy(NEW)(files, Source(inputs, np.zeros((2, 1), np.int64)))["tokens"]
    assert tokens.tolist() == generated(model, **{name: torch.from_numpy(array) for name, array in inputs.items()})


def test_a_speech_model_of_several_languages_is_asked_in_english(tmp_path: Path) -> None:
    model = whisper().eval()
    model.save_pretrained(tmp_path / "model")
    told = {"lang_to_id": {"<|en|>": 5}, "task_to_id": {"transcribe": 6}, "no_timestamps_token_id": 7}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(told))
    parts = resolve(f"transformers:{tmp_path / 'model'}", task=SPEECH)
    assert isinstance(parts, CompositeModel)
    assert parts.inputs[0].beginning.tolist() == [[0, 5, 6, 7]] * 2


def test_a_model_that_is_generated_with_alone_says_its_task(tmp_path: Path) -> None:
    t5().save_pretrained(tmp_path / "model")
    with pytest.raises(EdgekitError, match=f"a decoder that runs once per token. Name its task: --task {TEXT}, or"):
        resolve(f"transformers:{tmp_path / 'model'}")
