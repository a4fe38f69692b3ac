"""A transformers folder with an encoder and a decoder (T5, Whisper) as three graphs, and the loop that generates.

Parts, inputs and outputs have optimum's names: `encoder_model` runs once per input, `decoder_model` on the first
tokens, and `decoder_with_past_model` on each further one, with the keys and values of the decoder (which grow) and of
the encoder (which are constant).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ModelError
from edgekit.model.contract import check_spec
from edgekit.model.parts import CompositeModel, Session
from edgekit.model.sources.checkpoint import slug
from edgekit.model.spec import Array, Axis, Input, ModelSpec, Output
from edgekit.storage.files import load_json
from edgekit_hub.decoder import BATCHES, REACH, SingleComponent, argument, files_of, pad_texts, prompts

if TYPE_CHECKING:
    import torch

TEXT, SPEECH = "text2text-generation-with-past", "automatic-speech-recognition-with-past"
ENCODER, FIRST, FURTHER = "encoder_model", "decoder_model", "decoder_with_past_model"
JOINED = {"decoder_model_merged": (FIRST, FURTHER)}
NEW = 32
"""Number of generated tokens on which the composite model is judged."""
SOURCE, BEGINNING = 64, 8
"""Largest number of tokens of a source, and of a decoder's beginning, that is proved."""
STARTS = ("<|en|>", "<|transcribe|>")
"""Tokens after the first one of a multilingual Whisper."""
STATES, MASK = "encoder_hidden_states", "encoder_attention_mask"


@dataclass(frozen=True)
class Source:
    """An input of the composite model: the encoder's inputs, the decoder's beginning, and its continuation.

    Attributes:
        inputs: The encoder's inputs.
        beginning: [rows, tokens].
        continuation: [rows, tokens]; None continues with the chosen tokens.
    """

    inputs: Mapping[str, Array]
    beginning: Array
    continuation: Array | None = None


@dataclass(frozen=True)
class Greedy:
    """Chooses the largest logit at each step, on the model's own tokens if these are given.

    Attributes:
        count: Tokens to generate.
    """

    count: int

    def __call__(self, parts: Mapping[str, Session], source: Source) -> dict[str, Array]:
        """Return the chosen tokens, [rows, count], and the logits of the first one [rows, vocabulary]."""
        states = parts[ENCODER].run(source.inputs)["last_hidden_state"]
        masked = {MASK: source.inputs["attention_mask"]} if "attention_mask" in source.inputs else {}
        answer = parts[FIRST].run({**masked, "input_ids": source.beginning, STATES: states})
        past = _next_inputs(answer)
        logits = answer["logits"][:, -1]
        tokens = [logits.argmax(-1)]
        while len(tokens) < self.count:
            last = tokens[-1] if source.continuation is None else source.continuation[:, len(tokens) - 1]
            answer = parts[FURTHER].run({**masked, "input_ids": last[:, None], **past})
            tokens.append(answer["logits"][:, -1].argmax(-1))
            past |= _next_inputs(answer)
        return {"tokens": np.stack(tokens, 1), "first_logits": logits}


def _next_inputs(answer: Mapping[str, Array]) -> dict[str, Array]:
    """Return the parts of a decoder's output that its next run takes, by the names of the inputs."""
    return {name.replace("present", "past_key_values"): a for name, a in answer.items() if name != "logits"}


def parts_of(folder: Path, module: Any) -> CompositeModel:
    """Return an encoder and a decoder as three graphs, and the loop that generates with them.

    Args:
        folder: Written by save_pretrained.
        module: The folder's model, in eval mode.

    Raises:
        ModelError: If its inputs are of an unknown kind, or its decoder is too short.
    """
    config = module.config
    spoken = module.main_input_name == "input_features"
    most = int(getattr(config, "max_target_positions", None) or BEGINNING + NEW)
    count = min(NEW, most - BEGINNING)
    if count < 1 or module.main_input_name not in ("input_ids", "input_features"):
        raise ModelError(
            f"'{folder}' takes '{module.main_input_name}' and generates {most} tokens. Possible are tokens or "
            f"features of speech, and more than {BEGINNING} tokens"
        )
    frames = config.max_source_positions if spoken else "source"
    sources = Axis(SOURCE // 4, 1, SOURCE)
    states = Input(STATES, ("batch", frames, config.d_model), low=-REACH, high=REACH)
    mask = () if spoken else (Input(MASK, ("batch", "source"), "int64", 1, 1),)
    ids = Input("input_ids", ("batch", "tokens"), "int64", 0, config.vocab_size - 1)
    inputs = (
        (Input("input_features", ("batch", config.num_mel_bins, 2 * config.max_source_positions), low=-1.5, high=1.5),)
        if spoken
        else (
            Input("input_ids", ("batch", "source"), "int64", 0, config.vocab_size - 1),
            Input("attention_mask", ("batch", "source"), "int64", 1, 1),
        )
    )
    cached = _caches(module, inputs, frames)
    presents = [Output(f"present.{i.name.removeprefix('past_key_values.')}", "state") for i in cached]
    axes = {"batch": BATCHES} | ({} if spoken else {"source": sources})
    first, further = (*mask, ids, states), (*mask, Input(ids.name, ("batch", 1), "int64", 0, ids.high), *cached)
    grown = [present for present in presents if ".decoder." in present.name]
    notes = ("masks are tested with gaps on the right of a source, as in its loop, never with a row masked",)
    specs = {
        ENCODER: ModelSpec(ENCODER, _encoder(module), inputs, (Output("last_hidden_state"),), axes, notes=notes),
        FIRST: ModelSpec(
            FIRST,
            _decoder(module, first),
            first,
            (Output("logits", "logits"), *presents),
            {**axes, "tokens": Axis(1, 1, BEGINNING)},
        ),
        FURTHER: ModelSpec(
            FURTHER,
            _decoder(module, further),
            further,
            (Output("logits", "logits"), *grown),
            {**axes, "past": Axis(NEW // 2, 1, most - 1)},
        ),
    }
    greedy = Greedy(count)
    itself = {name: SingleComponent(check_spec(spec)) for name, spec in specs.items()}
    model_inputs = [
        Source(source.inputs, source.beginning, greedy(itself, source)["tokens"])
        for source in _sources(folder, module, inputs)
    ]
    outputs = (Output("tokens", "labels"), Output("first_logits", "logits"))
    name = slug(folder.resolve().name) or "model"
    return CompositeModel(name, specs, greedy, model_inputs, outputs, files=files_of(folder), joined=JOINED)


def _sources(folder: Path, module: Any, inputs: Sequence[Input]) -> list[Source]:
    """Return pairs of sources: beginnings of sentences, random tokens, or features of tones with changing pitch."""
    start = np.full((2, 1), module.config.decoder_start_token_id, np.int64)
    if inputs[0].name == "input_ids":
        texts = prompts(folder, module.config.vocab_size)
        longest = max(len(text) for pair in texts for text in pair)
        return [Source(pad_texts(pair, longest), start) for pair in texts]
    draw = np.random.default_rng(0)
    start = np.concatenate([start, *(np.full((2, 1), token, np.int64) for token in _spoken_starts(folder))], 1)
    shape = module.config.num_mel_bins, 2 * module.config.max_source_positions
    return [Source({"input_features": np.stack([_tones(draw, *shape), _tones(draw, *shape)])}, start) for _ in range(6)]


def _tones(draw: np.random.Generator, bins: int, frames: int) -> Array:
    """Return a spectrogram like speech's log-mel features: bands rise and fall over a quiet floor, in [-1, 1.5]."""
    time, bands = np.linspace(0, 1, frames), np.linspace(0, 1, bins)[:, None]
    spectrogram = np.full((bins, frames), -0.8)
    for _ in range(4):
        pitch, sway, speed, phase = draw.random(4)
        centre = 0.1 + 0.8 * pitch + 0.1 * sway * np.sin(2 * np.pi * (10 * speed * time + phase))
        loud = 0.5 + 0.5 * np.sin(2 * np.pi * (20 * draw.random() * time + draw.random()))
        spectrogram += 1.5 * loud * np.exp(-(((bands - centre) / 0.05) ** 2))
    return (spectrogram + 0.05 * draw.standard_normal((bins, frames))).clip(-1, 1.5).astype(np.float32)


def _spoken_starts(folder: Path) -> list[int]:
    """Return the tokens after a multilingual Whisper's first one: English, transcribed, without timestamps."""
    path = folder / "generation_config.json"
    config = load_json(path.read_text()) if path.is_file() else {}
    token_ids = {
        **(config.get("lang_to_id") or {}),
        **{f"<|{task}|>": n for task, n in (config.get("task_to_id") or {}).items()},
    }
    start_ids = [token_ids.get(name) for name in STARTS] + [config.get("no_timestamps_token_id")]
    return [int(token) for token in start_ids if token is not None]


def _caches(module: Any, inputs: Sequence[Input], frames: int | str) -> list[Input]:
    """Return the keys and values after a run of the decoder: its own and the encoder's, by layer."""
    import torch

    sizes = [2 if isinstance(size, str) else size for size in inputs[0].shape]
    zeros = torch.zeros(sizes, dtype=torch.int64 if inputs[0].dtype == "int64" else torch.float32)
    with torch.no_grad():
        states = module.get_encoder()(zeros).last_hidden_state
        cache = _run(module, torch.zeros(2, 1, dtype=torch.int64), states, None, {})[1]
    caches = []
    for number, tensors in enumerate(_layers(cache)):
        for (side, kind), tensor in tensors.items():
            shape = ("batch", int(tensor.shape[1]), "past" if side == "decoder" else frames, int(tensor.shape[3]))
            caches.append(Input(f"past_key_values.{number}.{side}.{kind}", shape, low=-REACH, high=REACH))
    return caches


def _layers(cache: Any) -> list[dict[tuple[str, str], torch.Tensor]]:
    own, other = cache.self_attention_cache.layers, cache.cross_attention_cache.layers
    return [
        {
            ("decoder", "key"): a.keys,
            ("decoder", "value"): a.values,
            ("encoder", "key"): b.keys,
            ("encoder", "value"): b.values,
        }
        for a, b in zip(own, other, strict=True)
    ]


def _run(
    module: Any, ids: torch.Tensor, states: torch.Tensor, mask: torch.Tensor | None, past: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, Any]:
    """Return the logits and the cache of a run of the decoder."""
    from transformers import DynamicCache, EncoderDecoderCache
    from transformers.modeling_outputs import BaseModelOutput

    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    for layer in range(len(past) // 4):
        for side, layer_cache in (("decoder", cache.self_attention_cache), ("encoder", cache.cross_attention_cache)):
            key, value = (past[f"past_key_values.{layer}.{side}.{kind}"] for kind in ("key", "value"))
            layer_cache.update(key, value, layer)
        cache.is_updated[layer] = True
    arguments = {"encoder_outputs": BaseModelOutput(last_hidden_state=states), "decoder_input_ids": ids}
    arguments |= {} if mask is None else {"attention_mask": mask}
    answer = module(**arguments, **{argument(module): cache}, use_cache=True)
    return answer.logits, cache


def _encoder(inner: Any) -> torch.nn.Module:
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = inner.get_encoder()

        def forward(self, first: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            answer = self.encoder(first) if mask is None else self.encoder(first, attention_mask=mask)
            states: torch.Tensor = answer.last_hidden_state
            return states

    return Encoder().eval()


def _decoder(inner: Any, inputs: Sequence[Input]) -> torch.nn.Module:
    """Return the decoder: from encoder states it outputs all keys and values, with a cache only those that grow."""
    import torch

    names = [i.name for i in inputs]

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = _without_encoder(inner)

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            arguments = dict(zip(names, tensors, strict=True))
            past = {name: tensor for name, tensor in arguments.items() if name.startswith("past_key_values.")}
            ids, states = arguments["input_ids"], arguments.get(STATES)
            # The decoder only uses their length.
            if states is None:
                key = past["past_key_values.0.encoder.key"]
                states = key.new_zeros(key.shape[0], key.shape[2], inner.config.d_model)
            logits, cache = _run(self.model, ids, states, arguments.get(MASK), past)
            own_states = [
                t for layer in _layers(cache) for (side, _), t in layer.items() if side == "decoder" or not past
            ]
            return logits, *own_states

    return Decoder().eval()


def _without_encoder(inner: Any) -> Any:
    """Return the model without its encoder's weights, which would be written with each of the decoder's graphs."""
    alone = copy.copy(inner)
    alone._modules = {name: module for name, module in inner._modules.items() if name != "encoder"}
    # Whisper and BART have their encoder inside `model`.
    if "model" in alone._modules:
        alone._modules["model"] = _without_encoder(alone._modules["model"])
    return alone
