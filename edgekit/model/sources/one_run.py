"""A folder of transformers whose task takes one run -> one graph as transformers.js and optimum look for it.

Its inputs have their names there; pictures are `pixel_values`, less the mean and divided by the deviation, which those
libraries do themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.model.input_rows import BATCH
from edgekit.model.parts import Parts, Session
from edgekit.model.sources.decoder import PAIRS, PART, files_of, padded, prompts
from edgekit.model.spec import Array, Input, ModelSpec, Output

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
BEST = {"best_text": "logits_per_image", "best_image": "logits_per_text"}
"""Of pictures and texts: which is the nearest to each, by the similarities that say it."""


@dataclass(frozen=True)
class Once:
    """Runs the model, and says which text is the nearest to each picture where there are both."""

    def __call__(self, parts: Mapping[str, Session], given: Mapping[str, Array]) -> dict[str, Array]:
        """Its answer, by name."""
        answer = parts[PART].run(given)
        best = {name: answer[scores].argmax(1) for name, scores in BEST.items() if scores in answer}
        return {**answer, **best}


def parts_of(folder: Path, spec: ModelSpec) -> Parts:
    """A model as one graph with the files of its hub folder, asked texts and pictures.

    Args:
        folder: What save_pretrained wrote.
        spec: The model of it.
    """
    outputs: Any = (*spec.outputs, *(Output(name, "labels") for name, of in BEST.items() if of in _names(spec)))
    part = {PART: spec}
    return Parts(spec.name, part, Once(), list(_asked(folder, spec)), outputs=outputs, files=files_of(folder))


def _names(spec: ModelSpec) -> list[str]:
    return [output.name for output in spec.outputs]


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
