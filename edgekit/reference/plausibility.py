"""Signs that a model is set up wrongly: its own metric is near chance, or another preprocessing serves it better.

An artifact that agrees with a wrongly set up model is verified against that model, and is wrong all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.evaluation_set import metric_values, rows_of, run_of, stack_runs
from edgekit.model.image_input import from_planes, spec_in_planes, to_planes
from edgekit.model.spec import Array, EvaluationSet, Input, ModelSpec

if TYPE_CHECKING:
    Change = Callable[[Array], Array]

FEWEST, MOST_ROWS = 16, 64
"""Rows that are answered again for each other preprocessing."""
TURNS = 8
"""Times that the truth is given to other rows, which says what chance has."""
SURE = 2.33
"""Standard errors: chance alone is further away in 1 of 100 cases."""
GOOD_ENOUGH = 0.9
"""Of the metric: no other preprocessing is tried beyond."""
CLEAR_GAIN = 0.1
"""Of the metric: what another preprocessing must gain to be named."""
MENDED = 0.5
"""Of what the metric lacks: what is right after all gains more. From 0 %, half of the classes are right by chance."""
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and std of torchvision's models, for pixels in 0 to 1."""
# Share of what a metric can gain over chance: a useful model has more.
LITTLE_SKILL = 0.3
SUM_TOLERANCE = 0.01


def find_doubt(spec: ModelSpec, evaluation: EvaluationSet | None, outputs: Mapping[str, Array]) -> str:
    """Return what looks wrong in a model's own answers to its evaluation set, as a sentence; empty if nothing does.

    Args:
        spec: The model.
        evaluation: Its evaluation set; without a metric and truth only the outputs' roles are checked.
        outputs: Its answers by output name, [n, ...].
    """
    doubts = [*_doubtful_roles(spec, outputs)]
    if evaluation is not None and (metric_doubt := _doubtful_metric(spec, evaluation, outputs)):
        doubts.insert(0, metric_doubt)
    return "; ".join(doubts)


def chance_of(evaluation: EvaluationSet, outputs: Mapping[str, Array]) -> Array | None:
    """Return the metric of each row with the truth of other rows, float64 [turns, n]; None without truth."""
    if evaluation.truth is None:
        return None
    count = len(evaluation.names)
    turns = sorted({max(1, count * turn // TURNS) for turn in range(1, TURNS)})
    turned = [replace(evaluation, truth=np.roll(np.asarray(evaluation.truth), turn, axis=0)) for turn in turns]
    values = [each for other in turned if (each := metric_values(other, outputs)) is not None]
    return np.array(values) if values else None


def _doubtful_roles(spec: ModelSpec, outputs: Mapping[str, Array]) -> Iterator[str]:
    """Name outputs declared as probabilities that do not add up to 1, as a sigmoid's do not."""
    for output in spec.outputs:
        array = outputs.get(output.name)
        if output.role != "probabilities" or array is None or array.ndim < 2 or array.dtype.kind != "f":
            continue
        sums = array.sum(output.axes.index("channels") if "channels" in output.axes else -1, dtype=np.float64)
        if np.abs(sums - 1).max() > SUM_TOLERANCE:
            yield (
                f"the probabilities '{output.name}' of an input add up to {sums.min():.3g} to {sums.max():.3g}, not to "
                "1: does a sigmoid give them, not a softmax?"
            )


def _doubtful_metric(spec: ModelSpec, evaluation: EvaluationSet, outputs: Mapping[str, Array]) -> str:
    own, chance = metric_values(evaluation, outputs), chance_of(evaluation, outputs)
    if own is None or chance is None:
        return ""
    count, mean, by_chance = len(own), float(own.mean()), float(chance.mean())
    # A share spreads as chance does; any other metric has its own spread.
    spread = max(math.sqrt(by_chance * (1 - by_chance)) if 0 < by_chance < 1 else 0.0, float(own.std()))
    # With few inputs nearly everything lies within chance's scatter, so that the gain must be small too.
    skill = (mean - by_chance) / (1 - by_chance) if by_chance < 1 else 1.0
    is_chance = mean - by_chance < SURE * spread / math.sqrt(count) and skill < LITTLE_SKILL
    # Of eight ways to prepare a few inputs one is better by chance.
    better = _better_preprocessing(spec, evaluation, outputs) if mean < GOOD_ENOUGH and count >= FEWEST else ""
    if not is_chance and not better:
        return ""
    chance_text = f", where chance has {by_chance:.0%}" if is_chance else ""
    question = better or "are mean, std, channel order, size or labels wrong?"
    return f"the model itself has {mean:.0%} by '{evaluation.metric_name}' on {count} inputs{chance_text}: {question}"


def _better_preprocessing(spec: ModelSpec, evaluation: EvaluationSet, outputs: Mapping[str, Array]) -> str:
    """Name the other preprocessing, or the other first class, with which the model is clearly better."""
    count = min(len(evaluation.names), MOST_ROWS)
    part = rows_of(evaluation, range(count))
    own = metric_values(part, {name: array[:count] for name, array in outputs.items()})
    image = next((i for i in spec_in_planes(spec).inputs if i.kind == "image"), None)
    if own is None:
        return ""
    gains: list[tuple[float, str, str]] = []

    def compare(values: Array | None, text: str) -> None:
        if values is None:
            return
        gain = values - own
        mean, error = float(gain.mean()), float(gain.std()) / math.sqrt(count)
        if mean >= CLEAR_GAIN and mean > SURE * error and mean > MENDED * (1 - float(own.mean())):
            gains.append((mean, text, f"it has {values.mean():.0%}"))

    if part.truth is not None and np.asarray(part.truth).dtype.kind in "iu" and np.asarray(part.truth).ndim == 1:
        answers = {name: array[:count] for name, array in outputs.items()}
        for step in (-1, 1):
            compare(
                metric_values(replace(part, truth=np.asarray(part.truth) + step), answers), f"with labels {step:+d}"
            )
    if image is not None:
        for text, change in _changes(image):
            compare(_metric_with(spec, part, image, change), text)
    best = max((gain for gain, *_ in gains), default=0.0)
    ways = [(text, result) for gain, text, result in gains if gain == best]
    return f"{' or '.join(text for text, _ in ways)} {ways[0][1]}" if ways else ""


def _changes(image: Input) -> Iterator[tuple[str, Change]]:
    """Yield other ways to prepare a picture [n, 3, h, w], each in words."""
    span = image.high - image.low
    mean, std = (np.array(values, np.float32).reshape(1, -1, 1, 1) for values in IMAGENET)

    yield "with the channels in the other order (BGR)", lambda x: x[:, ::-1].copy()
    if image.shape[1] == len(IMAGENET[0]):
        yield "with ImageNet's mean and std", lambda x: ((x - image.low) / span - mean) / std
    for low, high in ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0)):
        if (low, high) != (image.low, image.high):
            yield f"with pixels from {low:g} to {high:g}", _rescale(image, low, high)
    for factor in (0.5, 2.0):
        yield f"at {factor:g} times the size", _resize(factor)


def _rescale(image: Input, low: float, high: float) -> Change:
    return lambda pictures: low + (pictures - image.low) * ((high - low) / (image.high - image.low))


def _resize(factor: float) -> Change:
    from edgekit.reference.pictures import resize

    return lambda pictures: resize(pictures, *(max(1, round(size * factor)) for size in pictures.shape[2:]))


def _metric_with(spec: ModelSpec, part: EvaluationSet, image: Input, change: Change) -> Array | None:
    """Return the metric of each row where its picture is prepared otherwise; None if the model cannot answer that."""

    def prepare(arrays: dict[str, Array]) -> dict[str, Array]:
        planes = to_planes(spec, arrays)
        planes[image.name] = np.ascontiguousarray(change(planes[image.name]), np.float32)
        return from_planes(spec, planes, rounded=False)

    try:
        return metric_values(part, answer_rows(spec, part, prepare))
    except Exception:  # another size, or another answer, may be beyond what the model can do
        return None


def answer_rows(
    spec: ModelSpec,
    part: EvaluationSet,
    prepare: Callable[[dict[str, Array]], dict[str, Array]] = lambda arrays: arrays,
) -> dict[str, Array]:
    """Return the model's outputs for each row of a set, asked one by one, [n, ...]; `prepare` changes its inputs."""
    import torch

    answers: list[dict[str, Array]] = []
    with torch.no_grad():
        for row in range(len(part.names)):
            arrays = {i.name: run_of(part.inputs[i.name], row, len(part.names), i.shape) for i in spec.inputs}
            answers.append(named_outputs(spec, spec.module(*to_tensors(spec, prepare(arrays)))))
    return {name: stack_runs(answer[name] for answer in answers) for name in answers[0]}
