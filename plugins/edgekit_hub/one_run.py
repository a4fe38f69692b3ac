"""A folder of transformers whose task takes one run -> one graph as transformers.js and optimum look for it.

Its inputs have their names there; pictures are `pixel_values`, less the mean and divided by the deviation, which those
libraries do themselves.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.model.evaluation_set import BATCH
from edgekit.model.parts import Parts, Session
from edgekit.model.spec import Array, Input, ModelSpec, Output
from edgekit_hub.decoder import PAIRS, PART, files_of, padded, prompts

ZERO_SHOT = "zero-shot-image-classification"
TASKS = {
    "feature-extraction": "Model",
    "text-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "question-answering": "ForQuestionAnswering",
    "fill-mask": "ForMaskedLM",
    "image-classification": "ForImageClassification",
    ZERO_SHOT: "Model",
}
"""What transformers.js and optimum call a task, and how its architectures end."""
PIXELS = "pixel_values"
PATCHES = 8
"""Across a drawn picture."""
VISION, TEXT = "vision_model", "text_model"
"""Of pictures and texts each tower is a part too: what is searched is embedded once."""
BEST = ("best_text", "best_image", "best_text_of_towers", "best_image_of_towers")
"""Of pictures and texts: which is the nearest to each."""


@dataclass(frozen=True)
class Once:
    """Runs the model, and its towers where it has two; says which text is the nearest to each picture."""

    def __call__(self, parts: Mapping[str, Session], given: Mapping[str, Array]) -> dict[str, Array]:
        """Its answer, by name."""
        answer = parts[PART].run(given)
        if VISION not in parts:
            return answer
        texts = {name: array for name, array in given.items() if name != PIXELS}
        pictures, words = (
            next(iter(parts[part].run(some).values()))
            for part, some in ((VISION, {PIXELS: given[PIXELS]}), (TEXT, texts))
        )
        similarity = _directions(pictures) @ _directions(words).T
        both = answer["logits_per_image"], similarity
        best = [one.argmax(axis) for one in both for axis in (1, 0)]
        return {**answer, "similarity": similarity, **dict(zip(BEST, best, strict=True))}


def parts_of(folder: Path, spec: ModelSpec, module: Any) -> Parts:
    """A model as one graph, its towers beside it, with the files of its hub folder, asked texts and pictures.

    Args:
        folder: What save_pretrained wrote.
        spec: The model of it.
        module: As transformers has it.
    """
    paired = {PIXELS, "input_ids"} <= {i.name for i in spec.inputs}
    towers = {part: _tower(spec, module, part) for part in (VISION, TEXT)} if paired else {}
    outputs = (*spec.outputs, *([Output("similarity"), *(Output(name, "labels") for name in BEST)] if paired else []))
    return Parts(
        spec.name, {PART: spec, **towers}, Once(), list(_asked(folder, spec)), outputs=outputs, files=files_of(folder)
    )


def _directions(embeddings: Array) -> Array:
    found: Array = embeddings / np.linalg.norm(embeddings, axis=-1, keepdims=True)
    return found


def _tower(spec: ModelSpec, inner: Any, part: str) -> ModelSpec:
    """One of the towers, which answers with its embedding, as long as it comes."""
    import torch

    seeing = part == VISION
    taken = [i for i in spec.inputs if (i.name == PIXELS) == seeing]
    inputs = tuple(replace(i, shape=(BATCH, *i.shape[1:])) for i in taken)
    alone = copy.copy(inner)  # without the other tower, whose weights would be written too
    others = ("text",) if seeing else ("vision", "visual")
    alone._modules = {name: one for name, one in inner._modules.items() if not name.startswith(others)}
    features = alone.get_image_features if seeing else alone.get_text_features
    names = [i.name for i in inputs]

    class Tower(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = alone

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            found = features(**dict(zip(names, tensors, strict=True)))
            embedding: torch.Tensor = getattr(found, "pooler_output", found)
            return embedding

    projected = hasattr(inner, "text_projection")  # of CLIP; SigLIP's towers end with it
    name = f"{'image' if seeing else 'text'}_embeds" if projected else "pooler_output"
    axes = {name: axis for name, axis in spec.axes.items() if name in {BATCH, *(d for i in inputs for d in i.shape)}}
    return ModelSpec(part, Tower().eval(), inputs, (Output(name, "embedding"),), axes)


def _asked(folder: Path, spec: ModelSpec) -> Iterator[dict[str, Array]]:
    """Pairs of texts, of pictures, or of both."""
    inputs = {i.name: i for i in spec.inputs}
    most = spec.axes["tokens"].maximum if "tokens" in spec.axes else 1
    texts = prompts(folder, int(inputs["input_ids"].high) + 1) if "input_ids" in inputs else []
    longest = min(max((len(text) for pair in texts for text in pair), default=1), most)
    draw = np.random.default_rng(0)
    for number in range(PAIRS):
        given = padded([text[:longest] for text in texts[number]], longest) if texts else {}
        if PIXELS in inputs:
            given[PIXELS] = np.stack([_drawn(draw, inputs[PIXELS]) for _ in range(2)])
        yield given


def _drawn(draw: np.random.Generator, pixels: Input) -> Array:
    """A picture of patches, each of a colour, with some grain."""
    channels, high, wide = (size for size in pixels.shape if size != BATCH and isinstance(size, int))
    patches = draw.random((channels, PATCHES, PATCHES))
    rows, columns = (np.arange(size) * PATCHES // size for size in (high, wide))
    shares = patches[:, rows][:, :, columns] + 0.05 * draw.standard_normal((channels, high, wide))
    return (pixels.low + (pixels.high - pixels.low) * shares.clip(0, 1)).astype(np.float32)
