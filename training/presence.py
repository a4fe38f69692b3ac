"""Presence: does anything in the picture answer the query? The highest relevance of the map says so, at a threshold.

`presence.json` travels with the weights::

    {"output": "relevance", "statistic": "max", "threshold": 0.3}

If the highest relevance of an image is below the threshold, nothing in it answers the query.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.errors import CheckpointError
from edgekit.model.spec import Array
from edgekit_arrcoc.presets import PRESENCE
from training.scores import auroc

SEEN = 0.25
"""Patches of answer in sight from which a query is answerable. Between nothing and this it counts as neither."""


@dataclass(frozen=True)
class Presence:
    """How well the highest relevance tells answerable queries from others.

    Attributes:
        auroc: Over answerable and unanswerable queries; NaN where there are none of either.
        misses: Share of the answerable ones below the threshold.
        false_alarms: Share of the unanswerable ones that reach it.
        absent: The same, of those with an attribute that no object has.
        hard: The same, of those whose attributes are there, never on one object.
        answerable: How many queries.
        unanswerable: How many queries.
    """

    auroc: float
    misses: float
    false_alarms: float
    absent: float
    hard: float
    answerable: int
    unanswerable: int


def measure(relevance: Array, truth: Array, answer: Array, threshold: float) -> Presence:
    """Measure relevance [n, N] against truth [n, N]; answer [n] is an index into `questions.ANSWERS`."""
    highest, seen = relevance.max(1), truth.sum(1)
    there, nothing = seen > SEEN, seen == 0
    reached = highest >= threshold
    known = there | nothing

    def share(rows: Array, values: Array) -> float:
        return float(values[rows].mean()) if rows.any() else float("nan")

    return Presence(
        auroc=auroc(highest[known], there[known]),
        misses=share(there, ~reached),
        false_alarms=share(nothing, reached),
        absent=share(nothing & (answer == 1), reached),
        hard=share(nothing & (answer == 2), reached),
        answerable=int(there.sum()),
        unanswerable=int(nothing.sum()),
    )


def threshold(*sets: tuple[Array, Array, float]) -> float:
    """The threshold, in steps of 0.005, at which the rates of misses and of false alarms are least beside their goals.

    Args:
        sets: Of each its relevance [n, N], its truth [n, N] and the goal of both rates.
    """
    found = []
    for step in range(1, 200):
        at, rates = step / 200, []
        for relevance, truth, goal in sets:
            reached, seen = relevance.max(1) >= at, truth.sum(1)
            rates += [float((~reached[seen > SEEN]).mean()) / goal, float(reached[seen == 0].mean()) / goal]
        found.append((max(rates), at))
    smallest = min(rate for rate, _ in found)
    # The middle of the thresholds that are as good.
    return float(np.median([at for rate, at in found if rate <= smallest]))


def save(value: float, folder: Path) -> None:
    """Write `presence.json`."""
    record = {"output": "relevance", "statistic": "max", "threshold": value}
    (folder / PRESENCE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def load(folder: Path) -> float:
    """The threshold in `presence.json`.

    Raises:
        CheckpointError: It is missing or damaged.
    """
    try:
        value = float(json.loads((folder / PRESENCE).read_text(encoding="utf-8"))["threshold"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"'{folder / PRESENCE}' cannot be read ({error}): reinstall edgekit") from error
    if not 0.0 < value < 1.0:
        raise CheckpointError(f"the threshold in '{folder / PRESENCE}' is '{value}', which is not between 0 and 1")
    return value
