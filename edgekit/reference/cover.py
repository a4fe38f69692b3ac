"""Real rows whose answers hold every class and label, for the few rows from which changed inputs are made.

If a label that one row in ten has is in none of four rows, nobody asks for it in a quiet signal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.judge.limits import CLASSES
from edgekit.model.spec import Array, Output

# Rows that are ordered: more than any batch takes from the first ones.
ORDERED = 128
# Most labels of an output: a wider one is a map.
MOST_LABELS = 1024


def rows_by_labels(outputs: Sequence[Output], answers: Mapping[str, Array], block: int) -> tuple[int, ...]:
    """Return up to ORDERED rows in an order in which each block has as many labels as it can (greedy set cover).

    Args:
        outputs: Outputs of the model.
        answers: Its outputs for real inputs, rows first.
        block: Rows that are used together.

    Returns:
        Numbers of rows; none if no output has labels, or all rows have the same.
    """
    count = max(map(len, answers.values()), default=0)
    arrays = [_labels_of(output, answers[output.name]) for output in outputs if output.name in answers]
    labels = [array for array in arrays if array is not None and len(array) == count]
    present = np.concatenate(labels, 1) if labels else np.zeros((count, 0), bool)
    present = present[:, present.any(0) & ~present.all(0)].astype(np.float64)
    if not present.size:
        return ()
    order: list[int] = []
    # Labels that earlier blocks have count less.
    earlier = np.zeros(present.shape[1])
    while len(order) < min(ORDERED, len(present)):
        if len(order) % block == 0:
            lacking = np.ones(present.shape[1])
        gains = present @ (lacking / (1 + earlier))
        gains[order] = -1
        order.append(int(gains.argmax()))
        lacking = lacking * (1 - present[order[-1]])
        earlier += present[order[-1]]
    return tuple(order)


def _labels_of(output: Output, array: Array) -> Array | None:
    """Return the labels in an output's rows, bool [n, labels]; None if it has none."""
    if array.ndim == 1 and output.role == "labels":
        return np.asarray(array[:, None] == np.unique(array)[:MOST_LABELS])
    if array.ndim != 2 or not 1 < array.shape[1] <= MOST_LABELS:
        return None
    within = array.min() >= 0 and array.max() <= 1
    # Probabilities that do not add up to 1, or zeros and ones: several labels at once.
    if within and output.role in ("tensor", "labels", *CLASSES) and not np.allclose(array.sum(1), 1, atol=1e-3):
        return np.asarray(array > 0.5)
    return np.asarray(array.argmax(1)[:, None] == np.arange(array.shape[1])) if output.role in CLASSES else None
