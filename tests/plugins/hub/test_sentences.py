"""A folder of sentence-transformers: its embedding is the pooling and normalization of the same states in torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.errors import ModelError
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.folder import load_model, save_model
from edgekit.model.graph import capture
from edgekit.model.parts import CompositeModel
from edgekit.model.sources import resolve, resolve_model
from edgekit.model.spec import ModelSpec
from tests.command import exit_code

TRANSFORMER, POOLING, NORMALIZE, DENSE = (
    f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize", "Dense")
)
# Names that sentence-transformers 6.2.0 writes.
RENAMED = {
    TRANSFORMER: "sentence_transformers.base.modules.transformer.Transformer",
    POOLING: "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    NORMALIZE: "sentence_transformers.base.modules.normalize.Normalize",
}
FIELDS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
MEAN = {name: name == FIELDS["mean"] for name in FIELDS.values()}
IDS = np.array([[5, 6, 7, 8], [9, 10, 11, 0], [12, 13, 0, 0]])
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]])


def write_folder(folder: Path, types: tuple[str, ...], pooling: Mapping[str, object]) -> torch.nn.Module:
    """Write a folder as sentence-transformers does, from a model with a head, and return its bare encoder."""
    from transformers import BertConfig, BertForMaskedLM, BertModel

    torch.manual_seed(0)
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50)
    BertForMaskedLM(config).save_pretrained(folder)
    paths = ("", "1_Pooling", "2_Normalize", "3_More")
    rows = [{"idx": n, "name": str(n), "path": paths[n], "type": name} for n, name in enumerate(types)]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, **pooling}))
    encoder: torch.nn.Module = BertModel.from_pretrained(folder).eval()
    return encoder


def embed(encoder: torch.nn.Module, mode: str, normalized: bool) -> np.ndarray:
    """The embeddings, text by text without padding."""
    rows = []
    for ids, mask in zip(IDS, MASK, strict=True):
        with torch.no_grad():
            states = encoder(torch.tensor(ids[mask == 1])[None]).last_hidden_state[0].numpy()
        row = {"mean": states.mean(0), "cls": states[0], "max": states.max(0)}[mode]
        rows.append(row / np.linalg.norm(row) if normalized else row)
    return np.stack(rows)


def answer(spec: ModelSpec) -> dict[str, np.ndarray]:
    arguments = to_tensors(spec, {"input_ids": IDS, "attention_mask": MASK})
    with torch.no_grad():
        return named_outputs(spec, capture(spec).exported.module()(*arguments))


@pytest.mark.parametrize(
    ("mode", "normalized", "pooling"),
    [
        ("mean", True, MEAN),
        ("cls", False, {FIELDS["cls"]: True, FIELDS["mean"]: False}),
        ("max", True, {"pooling_mode": "max"}),
    ],
)
def test_the_graph_ends_with_the_pooling_of_the_folder(
    mode: str, normalized: bool, pooling: dict[str, object], tmp_path: Path
) -> None:
    types = (TRANSFORMER, POOLING, *([NORMALIZE] if normalized else []))
    names = tuple(RENAMED[name] for name in types) if "pooling_mode" in pooling else types
    encoder = write_folder(tmp_path / "minilm", names, pooling)
    spec = resolve_model(f"transformers:{tmp_path / 'minilm'}")
    [output] = spec.outputs
    assert (output.name, output.role) == ("sentence_embedding", "embedding")
    expected = embed(encoder, mode, normalized)
    np.testing.assert_allclose(answer(spec)["sentence_embedding"], expected, atol=1e-5)

    # A build makes it again from its own files.
    save_model(spec, tmp_path / "model")
    again = answer(load_model(tmp_path / "model"))
    np.testing.assert_allclose(again["sentence_embedding"], expected, atol=1e-5)


def test_the_task_also_has_the_states_of_the_tokens(tmp_path: Path) -> None:
    encoder = write_folder(tmp_path / "minilm", (TRANSFORMER, POOLING, NORMALIZE), MEAN)
    composite = resolve(f"transformers:{tmp_path / 'minilm'}", task="feature-extraction")
    assert isinstance(composite, CompositeModel)
    spec = composite.parts["model"]
    assert isinstance(spec, ModelSpec)
    outputs = answer(spec)
    assert list(outputs) == ["last_hidden_state", "sentence_embedding"]
    np.testing.assert_allclose(outputs["sentence_embedding"], embed(encoder, "mean", normalized=True), atol=1e-5)
    with torch.no_grad():
        states = encoder(torch.tensor(IDS), torch.tensor(MASK)).last_hidden_state
    np.testing.assert_allclose(outputs["last_hidden_state"], states, atol=1e-5)


@pytest.mark.parametrize(
    ("types", "pooling", "words"),
    [
        ((TRANSFORMER, POOLING, DENSE), MEAN, "Transformer, Pooling, Dense"),
        ((TRANSFORMER, POOLING, NORMALIZE, DENSE), MEAN, "Normalize, Dense"),
        ((TRANSFORMER, NORMALIZE), MEAN, "Transformer, Normalize"),
        (("custom_st.Transformer", POOLING), MEAN, "custom_st.Transformer"),
        ((), MEAN, "no modules"),
        ((TRANSFORMER, POOLING), {"pooling_mode_lasttoken": True}, "pooling_mode_lasttoken"),
        ((TRANSFORMER, POOLING), {"pooling_mode": "weightedmean"}, "weightedmean"),
        ((TRANSFORMER, POOLING), {FIELDS["cls"]: True, FIELDS["mean"]: True}, "cls and mean"),
        ((TRANSFORMER, POOLING), {}, "nothing"),
    ],
)
def test_other_modules_are_refused_in_one_sentence(
    types: tuple[str, ...], pooling: dict[str, object], words: str, tmp_path: Path
) -> None:
    write_folder(tmp_path, types, pooling)
    with pytest.raises(ModelError, match=words) as refusal:
        resolve_model(f"transformers:{tmp_path}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["{", "{}", '["x"]', "3"])
def test_a_damaged_list_of_modules_ends_the_command_with_a_sentence(
    text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path / "minilm", (TRANSFORMER, POOLING), MEAN)
    (tmp_path / "minilm" / "modules.json").write_text(text)
    assert exit_code("export", f"transformers:{tmp_path / 'minilm'}", "-t", "onnx", "-o", tmp_path / "build") == 2
    error = capfd.readouterr().err
    assert "modules.json" in error.splitlines()[-1]
    assert "Traceback" not in error
