"""A transformers folder with a causal language model as one graph with a cache, and the loop that generates with it.

Inputs and outputs have optimum's names, which transformers.js requires: input_ids, attention_mask, position_ids and
past_key_values.N.key/value in, logits and present.N.key/value out. A past of length 0 is the first run.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ModelError
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.contract import check_spec
from edgekit.model.parts import CompositeModel, Session
from edgekit.model.sources.checkpoint import slug
from edgekit.model.spec import Array, Axis, Input, ModelSpec, Output

if TYPE_CHECKING:
    import torch

TASK = "text-generation-with-past"
PART = "model"
"""The part's name, which transformers.js expects as its file name."""
FILES = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "normalizer.json",
    "spiece.model",
)
"""Files that belong to a model, as far as they exist."""
BATCHES = Axis(1, 1, 4)
TOKENS, PAST = 64, 256
"""Largest number of tokens in a run, and in the past, that is proved; less if the model takes less."""
NEW = 64
"""Number of generated tokens on which the composite model is judged."""
REACH = 4.0
"""Range of keys and values in random inputs: the outputs of layer norms lie within it."""
PAIRS, LONGEST = 6, 12
SENTENCES = (
    "The train leaves the station at",
    "Once upon a time there was a",
    "She opened the old box and found",
    "The capital of the country is",
    "In winter the lake is",
    "He wrote a letter to his",
    "Water boils at a temperature of",
    "The children went to the",
    "A good recipe for bread needs",
    "On Monday morning the office",
    "The cat sat on",
    "To learn a language you",
)
"""Prompts if the folder has a tokenizer; otherwise the tokens are random."""


@dataclass(frozen=True)
class Cache:
    """One tensor of the cache: its name after `past_key_values.` and `present.`, its heads and their width."""

    name: str
    heads: int
    width: int


@dataclass(frozen=True)
class Text:
    """Prompts of several lengths, and their continuations [prompts, tokens]; None continues with the chosen tokens."""

    prompts: Sequence[Sequence[int]]
    continuation: Array | None = None


@dataclass(frozen=True)
class Greedy:
    """Chooses the largest logit at each step, for a batch of prompts of several lengths.

    The inputs follow the tokens that the model itself chooses. An artifact that chooses the same tokens generates the
    same text; one that chooses another token gets the same input as before at the next step, so that each choice counts
    once.

    Attributes:
        cache: Its tensors.
        positions: True if the model takes position_ids.
        count: Tokens to generate.
    """

    cache: tuple[Cache, ...]
    positions: bool
    count: int

    def __call__(self, parts: Mapping[str, Session], text: Text) -> dict[str, Array]:
        """Return the chosen tokens, [prompts, count]; shorter prompts are padded on the right, and masked there."""
        prompts, continuations = text.prompts, text.continuation
        lengths = np.array([len(prompt) for prompt in prompts])
        ids, mask = pad_texts(prompts, max(lengths)).values()
        at, rows = np.broadcast_to(np.arange(ids.shape[1]), ids.shape), np.arange(len(ids))
        past = {c.name: np.zeros((len(ids), c.heads, 0, c.width), np.float32) for c in self.cache}
        tokens: list[Array] = []
        while len(tokens) < self.count:
            inputs = {"input_ids": ids, "attention_mask": mask, **({"position_ids": at} if self.positions else {})}
            answer = parts[PART].run(inputs | {f"past_key_values.{name}": array for name, array in past.items()})
            last = lengths - 1 if not tokens else np.zeros_like(lengths)
            tokens.append(answer["logits"][rows, last].argmax(-1))
            past = {c.name: answer[f"present.{c.name}"] for c in self.cache}
            ids = (tokens[-1] if continuations is None else continuations[:, len(tokens) - 1])[:, None]
            at = (lengths + len(tokens) - 1)[:, None]
            mask = np.concatenate([mask, np.ones_like(ids)], 1)
        return {"tokens": np.stack(tokens, 1)}


def parts_of(folder: Path, module: Any) -> CompositeModel:
    """Return a causal language model as a graph with a cache, and the loop that generates with it.

    Args:
        folder: Written by save_pretrained.
        module: The folder's model, in eval mode.

    Raises:
        ModelError: If it has no cache of keys and values, or its context is too short.
    """
    config = module.config
    most = int(getattr(config, "max_position_embeddings", None) or TOKENS + PAST)
    tokens = min(TOKENS, most // 4)
    past = min(PAST, most - tokens)
    count = min(NEW, past - LONGEST)
    if tokens < LONGEST:
        raise ModelError(f"'{folder}' takes {most} tokens, but generation with a cache needs at least {4 * LONGEST}")
    cache = _cache(folder, module)
    positions = "position_ids" in inspect.signature(module.forward).parameters
    inputs = [
        Input("input_ids", ("batch", "tokens"), "int64", 0, config.vocab_size - 1),
        Input("attention_mask", ("batch", "past+tokens"), "int64", 1, 1),
        *([Input("position_ids", ("batch", "tokens"), "int64", 0, most - 1)] if positions else []),
        *(
            Input(f"past_key_values.{c.name}", ("batch", c.heads, "past", c.width), low=-REACH, high=REACH)
            for c in cache
        ),
    ]
    spec = ModelSpec(
        name=PART,
        module=_with_past(module, [i.name for i in inputs]),
        inputs=tuple(inputs),
        outputs=(Output("logits", "logits"), *(Output(f"present.{c.name}", "state") for c in cache)),
        axes={"batch": BATCHES, "tokens": Axis(1, 1, tokens), "past": Axis(1, 0, past)},
        notes=("masks are tested with gaps on the right of a prompt, as in its loop, never with a whole row masked",),
    )
    greedy, itself = Greedy(cache, positions, count), {PART: SingleComponent(check_spec(spec))}
    texts = [Text(pair, greedy(itself, Text(pair))["tokens"]) for pair in prompts(folder, config.vocab_size)]
    return CompositeModel(slug(folder.resolve().name) or "model", {PART: spec}, greedy, texts, files=files_of(folder))


def files_of(folder: Path) -> dict[str, Path]:
    """Return a folder's files that belong to its model, by name."""
    return {name: folder / name for name in FILES if (folder / name).is_file()}


@dataclass(frozen=True)
class SingleComponent:
    """The model's own module as a session."""

    spec: ModelSpec

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch."""
        import torch

        with torch.no_grad():
            return named_outputs(self.spec, self.spec.module(*to_tensors(self.spec, inputs)))


def _cache(folder: Path, module: Any) -> tuple[Cache, ...]:
    """Return the tensors of the cache after a run of two tokens."""
    import torch
    from transformers import DynamicCache

    cache = DynamicCache()
    with torch.no_grad():
        module(input_ids=torch.zeros(1, 2, dtype=torch.int64), **{argument(module): cache}, use_cache=True)
    layers = getattr(cache, "layers", ())
    if not layers or not all(getattr(layer, "keys", None) is not None and layer.keys.ndim == 4 for layer in layers):
        raise ModelError(
            f"'{folder}' does not keep keys and values for each of its layers. Leave out --task, or write a function "
            "that returns an edgekit.CompositeModel with its state as inputs and outputs"
        )
    each = (
        (f"{n}.{kind}", tensor)
        for n, layer in enumerate(layers)
        for kind, tensor in (("key", layer.keys), ("value", layer.values))
    )
    return tuple(Cache(name, int(tensor.shape[1]), int(tensor.shape[3])) for name, tensor in each)


def _with_past(inner: Any, names: Sequence[str]) -> torch.nn.Module:
    """Return the model with its cache as tensors: the past after the other inputs, and the present after the logits."""
    import torch
    from transformers import DynamicCache

    first = [name for name in names if not name.startswith("past_key_values.")]
    called = argument(inner)

    class WithPast(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = inner

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            cache, past = DynamicCache(), tensors[len(first) :]
            for layer, (key, value) in enumerate(zip(past[::2], past[1::2], strict=True)):
                cache.update(key, value, layer)
            inputs = dict(zip(first, tensors, strict=False))
            answer = self.model(**inputs, **{called: cache}, use_cache=True)
            return (answer.logits, *(tensor for layer in cache.layers for tensor in (layer.keys, layer.values)))

    return WithPast().eval()


def argument(module: Any) -> str:
    """Return the name of the model's cache argument."""
    # transformers 5.20 renamed it.
    return "cache" if "cache" in inspect.signature(module.forward).parameters else "past_key_values"


def prompts(folder: Path, vocabulary: int) -> list[list[list[int]]]:
    """Return pairs of prompts of several lengths: beginnings of sentences with a tokenizer, otherwise random tokens."""
    draw = np.random.default_rng(0)
    prompts: list[list[int]] = [
        draw.integers(0, vocabulary, 3 + number % (LONGEST - 3)).tolist() for number in range(2 * PAIRS)
    ]
    if (folder / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        read = Tokenizer.from_file(str(folder / "tokenizer.json"))
        texts = [read.encode(sentence).ids[:LONGEST] for sentence in SENTENCES]
        prompts = texts if all(texts) else prompts
    return [prompts[number : number + 2] for number in range(0, len(prompts), 2)]


def pad_texts(texts: Sequence[Sequence[int]], longest: int) -> dict[str, Array]:
    """Return texts of several lengths as one batch of ids and mask."""
    ids = np.array([[*text, *[0] * (longest - len(text))] for text in texts], np.int64)
    lengths = np.array([len(text) for text in texts])
    return {"input_ids": ids, "attention_mask": (np.arange(longest) < lengths[:, None]).astype(np.int64)}
