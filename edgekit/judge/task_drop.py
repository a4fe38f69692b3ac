"""The user's own metric: how much its mean and its rows may fall, and on which rows it stays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from edgekit.artifact.fact import EVALUATION
from edgekit.artifact.result import Measure
from edgekit.judge.chance import BEYOND, FEW_ROWS, SURE_ERRORS, may_pass
from edgekit.judge.limits import TASK_DROP, TASK_DROP_WORST, Tolerance
from edgekit.judge.metrics import Comparison, RowValues
from edgekit.model.spec import Array

# End of the name of the check on the row whose task metric falls most.
ONE_ROW = "drop, one row"
# Drop of a row's task metric that is none: half of INT8's limit on the mean.
TASK_DROP_UNMOVED = 0.0025
# Of a drop: a metric that is a mean of ten numbers is off by some 1e-17.
DIGITS = 12


def task_measures(
    t: Tolerance, evaluation: Sequence[Comparison], name: str, batch: str = EVALUATION
) -> Iterator[Measure]:
    """Yield the checks of the task metric: the drop of its mean, and of the row that loses most."""
    tasks = [
        (each.names, np.round(each.task[0] - each.task[1], DIGITS)) for each in evaluation if each.task is not None
    ]
    if not tasks:
        return
    rows = [row for names, _ in tasks for row in names]
    drops = np.concatenate([drop for _, drop in tasks])
    worst, mean = int(drops.argmax()), float(drops.mean())
    # A metric of right or wrong has no drop between 0 and 1: a limit on one row would allow none of thousands to turn.
    graded = any(map(is_graded, evaluation))
    mean_limit, row_limit = (t.limit(metric, "task") for metric in (TASK_DROP, TASK_DROP_WORST))
    if row_limit is not None and _step(evaluation) > row_limit:
        # Of a share of five points, each row that changes at all is beyond it.
        row_limit = None
    # Rows that turned wrong, less those that turned right: so few may be chance.
    turned = round(drops.sum()) if not graded and not t.exact_ranking else 0
    lost = int((drops > row_limit).sum()) if graded and row_limit is not None else 0
    # A mean of so few rows may exceed its limit by chance.
    error = float(drops.std()) / math.sqrt(len(drops)) if graded and not t.exact_ranking else 0.0
    chance = None
    if mean_limit is not None and mean > mean_limit and error > 0 and len(drops) >= FEW_ROWS:
        chance = mean_limit + SURE_ERRORS * error
    # An average precision of few objects jumps by chance, up as often as down: rows that gain as much are set off.
    if row_limit is not None and len(drops) >= FEW_ROWS and (gained := int((drops < -row_limit).sum())):
        by_chance = SURE_ERRORS * math.sqrt(lost + gained)
        lost = lost - gained if lost - gained > may_pass(len(drops), BEYOND) + by_chance else 0
    for noted, value, limit, noise, beyond, passed in (
        ("drop", mean, mean_limit, chance, turned, mean_limit is None or mean <= mean_limit),
        (
            ONE_ROW,
            float(drops[worst]),
            row_limit if graded else None,
            None,
            lost,
            lost <= may_pass(len(drops), BEYOND),
        ),
    ):
        yield Measure(
            batch=batch,
            output="",
            metric=f"{name} {noted}",
            value=value,
            limit=limit,
            table=limit,
            noise=noise,
            passed=passed,
            row=rows[worst],
            # A drop beyond the limit that is set off is still one of so many rows.
            rows=len(drops) if beyond > 0 or (noted == ONE_ROW and limit is not None and value > limit) else 0,
            beyond=max(beyond, 0),
            # The limit of a metric of right or wrong is itself a share of the rows.
            share=BEYOND if noted == ONE_ROW or not limit else limit,
        )


def _step(evaluation: Sequence[Comparison]) -> float:
    """Return the step of a task metric whose values are all multiples of one; 0 if they are not."""
    values = np.concatenate([side for each in evaluation if each.task is not None for side in each.task])
    step = float(np.diff(np.unique(np.round(values, DIGITS))).min(initial=1.0))
    return step if np.allclose(values / step, np.round(values / step), atol=1e-6) else 0.0


def beside_alone(batches: Sequence[Comparison], evaluation: Sequence[Comparison]) -> list[Comparison]:
    """Return rows in batches whose task metric is measured by the artifact's own alone, if that is less.

    What a row loses alone counts there. The rows in batches are some of all, and would make more of it.
    """
    tasks = [(each.names, each.task[1]) for each in evaluation if each.task is not None]
    alone = {name: value for names, values in tasks for name, value in zip(names, values, strict=True)}
    return [
        replace(each, task=(np.minimum(each.task[0], [alone.get(name, np.inf) for name in each.names]), each.task[1]))
        for each in batches
        if each.task is not None
    ]


def unmoved_rows(comparison: Comparison, m: RowValues) -> Array:
    """Return the rows on which the user's metric, if it is more than right or wrong, stays the same or improves."""
    if comparison.task is None or not is_graded(comparison) or m.names:
        return np.zeros(len(m.values), bool)
    before, after = comparison.task
    return np.asarray(before - after <= TASK_DROP_UNMOVED)


def is_graded(comparison: Comparison) -> bool:
    """Return whether the task metric is more than right or wrong."""
    return comparison.task is not None and not all(np.isin(side, (0, 1)).all() for side in comparison.task)
