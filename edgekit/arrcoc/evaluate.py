"""Measuring: a model on freshly rendered held-out scenes, with what each scorer contributes.

`python -m edgekit.arrcoc.evaluate` prints, as JSON, the numbers of the shipped model's card.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass

import numpy as np
import torch

from edgekit.arrcoc import datasets, evaluation, questions
from edgekit.arrcoc.evaluation import SCORERS, Scores
from edgekit.arrcoc.model import ArrCoc
from edgekit.arrcoc.queries import concept_table
from edgekit.arrcoc.scenes import render
from edgekit.model.spec import Array

_BATCH = 128


@dataclass(frozen=True)
class Answers:
    """What a model said about n queries: truth [n, N], maps [n, 3, N], weights [n, 3], relevance [n, N], kind [n]."""

    truth: Array
    maps: Array
    weights: Array
    relevance: Array
    kind: Array


@torch.no_grad()
def answer(model: ArrCoc, first: int, scenes: int, queries: int) -> Answers:
    """Ask a model so many queries about each of so many scenes from a seed on, in float32 without TF32."""
    device = next(model.parameters()).device
    table = concept_table().to(device)
    parts = []
    allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for start in range(first, first + scenes, _BATCH):
        seeds = torch.arange(start, min(start + _BATCH, first + scenes), device=device)
        rendered = render(seeds)
        asked = questions.ask(rendered, seeds, queries)
        features, rows, columns = model.texture(rendered.images.to(torch.float32) / 255.0)
        relevance, maps, weights = model.weigh(features, rows, columns, asked.encode(table))
        fields = (asked.truth, maps, weights, relevance, asked.kind)
        parts.append([field.flatten(0, 1).cpu().numpy() for field in fields])
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = allowed
    return Answers(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def measure(model: ArrCoc, first: int, scenes: int, queries: int) -> dict[str, Scores]:
    """Scores over all queries and by kind of query."""
    return by_kind(answers := answer(model, first, scenes, queries), answers.relevance)


def by_kind(answers: Answers, relevance: Array) -> dict[str, Scores]:
    """Scores of a relevance [n, N], over all queries and by kind of query."""
    scores = {"all": evaluation.measure(relevance, answers.truth)}
    for number, name in enumerate(questions.KINDS):
        if (rows := answers.kind == number).any():
            scores[name] = evaluation.measure(relevance[rows], answers.truth[rows])
    return scores


def report(model: ArrCoc, first: int, scenes: int) -> dict[str, object]:
    """Scores, the balancer's mean weights, and the scores without each scorer; one query a scene."""
    answers = answer(model, first, scenes, 1)
    ablations = {
        f"{name} without its {how}": _plain(by_kind(answers, evaluation.ablate(answers.maps, answers.weights, at, how)))
        for at, name in enumerate(SCORERS)
        for how in ("weight", "map")
    }
    weights = {"all": answers.weights.mean(0).tolist()}
    for number, kind in enumerate(questions.KINDS):
        if (rows := answers.kind == number).any():
            weights[kind] = answers.weights[rows].mean(0).tolist()
    return {"scores": _plain(by_kind(answers, answers.relevance)), "weights": weights, "ablations": ablations}


def _plain(scores: dict[str, Scores]) -> dict[str, dict[str, float]]:
    return {kind: asdict(values) for kind, values in scores.items()}


def main() -> None:
    """Measure the shipped model."""
    from edgekit.arrcoc.presets import arr_coc_tiny

    parser = argparse.ArgumentParser(description="Measure the shipped arr-coc-tiny on held-out scenes.")
    parser.add_argument("--scenes", type=int, default=1024)
    given = parser.parse_args()
    model = arr_coc_tiny().module
    if not isinstance(model, ArrCoc):
        raise SystemExit("the preset arr-coc-tiny is not an ArrCoc")
    sys.stdout.write(json.dumps(report(model, datasets.HELD_OUT, given.scenes), indent=1) + "\n")


if __name__ == "__main__":
    main()
