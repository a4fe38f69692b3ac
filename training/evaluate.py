"""Measuring: a model on freshly rendered held-out scenes, with what each scorer contributes.

`python -m training.evaluate` prints, as JSON, the numbers of the shipped model's card.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, fields

import numpy as np
import torch
from torch import Tensor

from edgekit.model.spec import Array
from edgekit_arrcoc.model import ArrCoc
from edgekit_arrcoc.queries import DRAWN, NAMES, concept_table
from training import flat, naming, obvious, photographs, presence, questions, scores, sets, sprites
from training.objects import Frame
from training.scenes import render
from training.scores import SCORERS, Scores
from training.sprites import Sprites

SIZES = ((96, 96), (224, 224), (384, 384), (512, 512), (320, 512))
"""Heights and widths in pixels at which the card gives metrics."""

SQUARE = Frame()

QUERIES = 2
"""Queries a scene."""

UNANSWERABLE = (25, 25)
"""Of a hundred attribute queries, how many are absent and hard ones: half of them have no answer."""

GOALS = (0.02, 0.04, 0.02, 0.06)
"""Rates of misses and of false alarms that are aimed at: on rendered scenes, on photographs, of flat pictures, and of
things with names on photographs."""

_PIXELS = 128 * 224 * 224


@dataclass(frozen=True)
class Sample:
    """Scenes to measure on.

    Attributes:
        first: First seed.
        scenes: How many.
        queries: Queries a scene.
        frame: Size of the scenes.
        bank: Photographs behind, among and before the objects of all scenes; None for scenes without.
        shares: As for `questions.ask`.
        plain: Whether they are flat pictures.
        things: Sprites, which most of the objects are; None for drawn shapes only.
    """

    first: int
    scenes: int
    queries: int = QUERIES
    frame: Frame = SQUARE
    bank: Tensor | None = None
    shares: tuple[int, int] = UNANSWERABLE
    plain: bool = False
    things: Sprites | None = None


@dataclass(frozen=True)
class Answers:
    """What a model said about n queries.

    Truth is [n, N], maps [n, 3, N], weights [n, 3], relevance [n, N]; kind and answer, [n], are as in
    `InputBatch`; words is [n], the noun or group that is asked for, an index into `NAMES`, -1 where it is none.
    """

    truth: Array
    maps: Array
    weights: Array
    relevance: Array
    kind: Array
    answer: Array
    words: Array


@torch.no_grad()
def answer(model: ArrCoc, sample: Sample) -> Answers:
    """Ask a model about scenes, in float32 without TF32."""
    device = next(model.parameters()).device
    table = concept_table().to(device)
    bank = None if sample.bank is None else sample.bank.to(device)
    things = None if sample.things is None else sample.things.to(device)
    parts = []
    allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    last, batch = sample.first + sample.scenes, max(1, _PIXELS // (sample.frame.height * sample.frame.width))
    for start in range(sample.first, last, min(batch, 512)):
        seeds = torch.arange(start, min(start + min(batch, 512), last), device=device)
        if sample.plain:
            rendered = flat.render(seeds, sample.frame, things)
        else:
            rendered = render(seeds, sample.frame, bank, sprites=things)
        asked = questions.answered(rendered, naming.poser(things)(rendered, seeds, sample.queries, sample.shares))
        features, rows, columns = model.texture(rendered.images.to(torch.float32) / 255.0)
        relevance, maps, weights = model.weigh(features, rows, columns, asked.encode(table))
        names = asked.concepts[..., len(DRAWN) :]
        words = torch.where(names.any(2), names.to(torch.int64).argmax(2), -1)
        found = (asked.truth, maps, weights, relevance, asked.kind, asked.answer, words)
        parts.append([field.flatten(0, 1).cpu().numpy() for field in found])
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = allowed
    return Answers(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def by_kind(answers: Answers, relevance: Array) -> dict[str, Scores]:
    """Scores of a relevance [n, N] over the answerable queries, all of them and by kind; none without any."""
    there = answers.truth.sum(1) > presence.SEEN
    if not there.any():
        return {}
    figures = {"all": scores.measure(relevance[there], answers.truth[there])}
    for number, name in enumerate(questions.KINDS):
        if (rows := there & (answers.kind == number)).any():
            figures[name] = scores.measure(relevance[rows], answers.truth[rows])
    if (rows := there & (answers.words >= 0)).any():
        figures["names"] = scores.measure(relevance[rows], answers.truth[rows])
    return figures


def by_word(answers: Answers, threshold: float) -> dict[str, dict[str, float]]:
    """Of each noun and group: answerable queries, pointing, misses, unanswerable ones, false alarms."""
    there = answers.truth.sum(1) > presence.SEEN
    nothing = answers.truth.sum(1) == 0
    best = np.take_along_axis(answers.truth, answers.relevance.argmax(1)[:, None], 1)[:, 0] > 0
    found = answers.relevance.max(1) >= threshold
    figures = {}
    for number, word in enumerate(NAMES):
        own = answers.words == number
        seen, absent = own & there, own & nothing
        figures[word] = {
            "answerable": int(seen.sum()),
            "pointing": float(best[seen].mean()) if seen.any() else float("nan"),
            "misses": float(1 - found[seen].mean()) if seen.any() else float("nan"),
            "unanswerable": int(absent.sum()),
            "false alarms": float(found[absent].mean()) if absent.any() else float("nan"),
        }
    return figures


def tuning(model: ArrCoc, bank: Tensor, scenes: int, things: Sprites) -> list[tuple[Array, Array, float]]:
    """Relevance, truth and goal on scenes of each kind, the last with sprites: for `presence.threshold`."""
    samples = (
        Sample(sets.TUNING, scenes),
        Sample(sets.TUNING + scenes, scenes, bank=bank),
        Sample(sets.TUNING + 2 * scenes, scenes, plain=True),
        Sample(sets.TUNING + 3 * scenes, scenes, bank=bank, things=things),
    )
    answers = [answer(model, sample) for sample in samples]
    return [(one.relevance, one.truth, goal) for one, goal in zip(answers, GOALS, strict=True)]


def report(model: ArrCoc, threshold: float, scenes: int) -> dict[str, object]:
    """All figures of the model card.

    Args:
        model: On its device.
        threshold: Of presence.
        scenes: How many rendered scenes, on held-out photographs and flat pictures each, and twice as many of things
            with names on photographs and on flat pictures; a quarter of it at other
            sizes.
    """
    bank = photographs.held_out("evaluation")
    rendered = answer(model, Sample(sets.HELD_OUT, scenes))
    composed = answer(model, Sample(sets.HELD_OUT + 2**24, scenes, bank=bank))
    things = sprites.load(sprites.HERE, (sprites.HELD_OUT,))
    named = _known(answer(model, Sample(sets.HELD_OUT + 2**27, 2 * scenes, bank=bank, things=things)))
    named_flat = _known(answer(model, Sample(sets.HELD_OUT + 2**27 + 2**24, 2 * scenes, plain=True, things=things)))
    ablations = {
        f"{name} without its {how}": _plain(by_kind(rendered, scores.ablate(rendered.maps, rendered.weights, at, how)))
        for at, name in enumerate(SCORERS)
        for how in ("weight", "map")
    }
    return {
        "device": _device(model),
        "torch": torch.__version__,
        "threshold": threshold,
        "rendered": _figures(rendered, threshold),
        "photographs": _figures(composed, threshold),
        "flat": _figures(answer(model, Sample(sets.HELD_OUT + 2**26, scenes, plain=True)), threshold),
        "named": _figures(named, threshold),
        "named, flat": _figures(named_flat, threshold),
        "words": by_word(_joined(named, named_flat), threshold),
        "obvious": asdict(obvious.measure(model, threshold)),
        "sizes": _sizes(model, threshold, max(scenes // 4, 1), bank),
        "weights": _weights(rendered),
        "ablations": ablations,
    }


def _known(answers: Answers) -> Answers:
    """Without queries for what the shipped model does not answer to."""
    kept = (answers.words < 0) | naming.KNOWN.numpy()[answers.words]
    return Answers(*(getattr(answers, one.name)[kept] for one in fields(Answers)))


def _joined(first: Answers, second: Answers) -> Answers:
    return Answers(*(np.concatenate([getattr(first, one.name), getattr(second, one.name)]) for one in fields(Answers)))


def _sizes(model: ArrCoc, threshold: float, scenes: int, bank: Tensor) -> dict[str, object]:
    found: dict[str, object] = {}
    for number, (height, width) in enumerate(SIZES):
        first, frame = sets.HELD_OUT + 2**25 + number * 2**20, Frame(height, width)
        found[f"{height} x {width}"] = {
            "rendered": _figures(answer(model, Sample(first, scenes, frame=frame)), threshold),
            "photographs": _figures(answer(model, Sample(first + 2**19, scenes, frame=frame, bank=bank)), threshold),
            "flat": _figures(answer(model, Sample(first + 2**18, scenes, frame=frame, plain=True)), threshold),
        }
    return found


def _figures(answers: Answers, threshold: float) -> dict[str, object]:
    found = presence.measure(answers.relevance, answers.truth, answers.answer, threshold)
    return {"scores": _plain(by_kind(answers, answers.relevance)), "presence": asdict(found)}


def _weights(answers: Answers) -> dict[str, list[float]]:
    """Mean weights of the balancer, over all queries and by kind."""
    weights = {"all": answers.weights.mean(0).tolist()}
    for number, kind in enumerate(questions.KINDS):
        if (rows := answers.kind == number).any():
            weights[kind] = answers.weights[rows].mean(0).tolist()
    return weights


def _device(model: ArrCoc) -> str:
    device = next(model.parameters()).device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _plain(scores: dict[str, Scores]) -> dict[str, dict[str, float]]:
    return {kind: asdict(values) for kind, values in scores.items()}


def main() -> None:
    """Measure the shipped model."""
    from edgekit_arrcoc.presets import HOME, arr_coc_tiny

    parser = argparse.ArgumentParser(description="Measure the shipped arr-coc-tiny on held-out scenes.")
    parser.add_argument("--scenes", type=int, default=1024)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    model = arr_coc_tiny().module
    if not isinstance(model, ArrCoc):
        raise SystemExit("the preset arr-coc-tiny is not an ArrCoc")
    found = report(model.to(given.device), presence.load(HOME), given.scenes)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
