"""Numbers and a tolerance -> verified, rejected or not verified here, with the reason. Never a silent pass.

Two kinds of batches are judged:

- evaluation, real inputs: every limit of the tolerance, image by image, and the task metric against the reference's.
- stress (random, constant, extreme inputs) and the grid of shapes: whatever is absolute holds there too, differences of
  scores and features, counts and swaps. Cosine, SNR, Spearman and lost mass do not: on a nearly flat map they measure
  rounding. Where ranks need not be exact (INT8) nothing absolute is left, and such inputs are outside of what was
  calibrated: the answers must be finite, in shape and range, belong together, and not be grossly off.

A limit is the larger of the table's and NOISE_MULTIPLE times the reference's own noise, up to NOISE_CAP times the
table's. What fails it but is within the noise is not the artifact's fault and no proof either: not verified here. Where
scores differ by no more than the noise, cosine, SNR, ranks and lost mass are not asked for. A NaN fails every limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from edgekit.judge.metrics import Comparison, Measure
from edgekit.judge.tolerance import Tolerance
from edgekit.model.spec import Array

Status = Literal["verified", "rejected", "not verified here"]

NOISE_MULTIPLE = 4.0
"""Times the reference's own noise: both sides have it, and a maximum over few images is a small estimate of it."""
NOISE_CAP = 10.0
"""Times the table's limit: a reference that is noisier proves nothing, and must not excuse anything."""
NOISE_LIMIT = 0.01
"""Score units, or share of a peak. Differences above this are judged by every measure, whatever the noise."""
OWN_TOLERANCE = 1e-3
"""Score units. Ranking and counts follow from the artifact's own scores; counts up to 400 in fp16 are off by 7.4e-4."""
GROSS_UNEXPLAINED = 0.3
"""Share of a map's spread, on real inputs where the table asks for ranks only: scores scaled by 0.7 rank the same and
are wrong (0.33). Dynamic and static INT8 of the trained arr-coc-tiny had 0.05 to 0.17 on their worst photograph."""
STRANGE_UNEXPLAINED = 0.5
"""The same on other inputs, which nobody calibrated for: up to 0.29 for those graphs, 0.57 to 1 where batches mix."""
GROSS_ROW_COSINE = 0.8
"""Of a row of features, where the table asks for ranks only: less is another direction, not a coarser one."""

EVALUATION, STRESS = "evaluation", "stress"
_OF_SCORES = {"scores", "counts", "ranking"}  # roles whose differences are in units of a score
_WIDENED = {"max abs", "relative", "count excess", "swap gap", "order gap"}
_NEEDLESS = {"unexplained", "cosine", "row cosine", "snr", "spearman", "lost mass"}  # of what differs within the noise
_FORGIVEN = {
    "swap gap": "ties at the boundary of the top K: patches changed places whose reference scores are at most {} apart",
    "order gap": "ties within the top K: patches changed places whose reference scores are at most {} apart",
    "count excess": "counts that differ: a difference of {} in the scores explains each of them",
}
_AT_LEAST = {"cosine", "cosine whole", "row cosine", "snr", "spearman", "jaccard", "agreement", "equal", "matched"}
_AT_LEAST |= {"spearman raw"}


@dataclass(frozen=True)
class Check:
    """One metric of one output over one batch, at its worst image, and what it was held against.

    Attributes:
        batch: "evaluation", "stress", or the sizes of a grid shape.
        output: Name of the output; empty for the task metric.
        metric: Name of the metric.
        value: At the worst image (of a task metric's drop: its mean).
        mean: Over the images.
        limit: What `value` was held against; None where it is only shown. `table` is the tolerance's own.
        noise: NOISE_MULTIPLE times the reference's noise in the metric's units, where it can widen the limit.
        passed: Whether all images held.
        image: The worst image.
        patch: The worst patch, row-major; -1 where that means nothing.
    """

    batch: str
    output: str
    metric: str
    value: float
    mean: float
    limit: float | None = None
    table: float | None = None
    noise: float | None = None
    passed: bool = True
    image: str = ""
    patch: int = -1

    @property
    def drowned(self) -> bool:
        """Whether it failed by less than the reference differs from itself."""
        return not self.passed and self.noise is not None and self.value <= self.noise

    def __str__(self) -> str:
        what = f"{self.metric} of '{self.output}'" if self.output else self.metric
        where = f" in image '{self.image}'" if self.output else f", most in image '{self.image}'"
        where += f", patch {self.patch}" if self.patch >= 0 else ""
        where += f" ({self.batch})" if self.batch != EVALUATION else ""
        bound = "at least" if self.metric in _AT_LEAST else "at most"
        said = f", must be {bound} {self.limit:.4g}" if self.limit is not None else ""
        return f"{what} is {self.value:.4g}{where}{said}"


@dataclass(frozen=True)
class Reason:
    """Why an artifact was not verified; printed as one sentence.

    Attributes:
        text: The sentence.
        batch: Where, as in `Check`.
        check: What failed, with metric, value, limit, worst image and patch; None for what has no number.
    """

    text: str
    batch: str = ""
    check: Check | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Verdict:
    """One artifact in one place.

    Attributes:
        status: What was found.
        reasons: Why it is not verified; empty where it is.
        notes: What a reader should know although it passed: ties forgiven, limits widened, what was not asked.
        checks: Every number, with the limits that were used.
        proved: The sizes of the grid shapes at which everything held.
    """

    status: Status
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    proved: tuple[Mapping[str, int], ...] = ()


def not_verified(sentence: str) -> Verdict:
    """The verdict where this host lacks what it takes; the sentence says what is missing."""
    return Verdict("not verified here", (Reason(sentence),))


def score_tolerance(tolerance: Tolerance, noise: float) -> float:
    """The limit on scores that `judge` uses, in score units, given the noise of that output: for `compare`."""
    return _limit(tolerance.max_abs or 0.0, NOISE_MULTIPLE * noise)


def judge(
    tolerance: Tolerance,
    noise: Mapping[str, float],
    *,
    evaluation: Sequence[Comparison] = (),
    stress: Sequence[Comparison] = (),
    grid: Sequence[tuple[Mapping[str, int], Comparison]] = (),
    metric_name: str = "task metric",
) -> Verdict:
    """Judge one artifact in one place.

    Args:
        tolerance: The row of the table.
        noise: Largest absolute difference of the reference from itself, by output; 0 where none is given.
        evaluation: Real inputs, in one or more comparisons; empty where the model has none.
        stress: Random, constant and extreme inputs.
        grid: Sizes of each proved shape and what was found there.
        metric_name: What the task metric is called.
    """
    bad = [name for name, value in noise.items() if not 0 <= value < np.inf]
    if bad:
        return not_verified(f"the reference's own noise of '{bad[0]}' is '{noise[bad[0]]}': record the reference again")
    shapes = {", ".join(f"{axis} {size}" for axis, size in sizes.items()): sizes for sizes, _ in grid}
    batches = [(EVALUATION, evaluation), (STRESS, stress)]
    batches += [(shape, [found for each, found in grid if each == sizes]) for shape, sizes in shapes.items()]
    checks = list(_task(tolerance, evaluation, metric_name))
    reasons: list[Reason] = []
    for batch, comparisons in batches:
        checks += _checks(batch, comparisons, _rules(tolerance, batch == EVALUATION), noise)
        where = "" if batch == EVALUATION else f" ({batch})"
        reasons += [Reason(text + where, batch) for each in comparisons for text in each.faults]
    reasons += [Reason(str(check), check.batch, check) for check in checks if not check.passed]
    reasons.sort(key=lambda reason: reason.check is not None and reason.check.drowned)
    failed = {reason.batch for reason in reasons}
    proved = tuple(sizes for shape, sizes in shapes.items() if shape not in failed)
    status: Status = "verified"
    if any(reason.check is None or not reason.check.drowned for reason in reasons):
        status = "rejected"
    elif reasons or (missing := _missing(tolerance, checks, evaluation)):
        status = "not verified here"
        reasons = reasons or [Reason(missing)]
    return Verdict(status, tuple(reasons), tuple(_notes(tolerance, checks, evaluation)), tuple(checks), proved)


def _missing(t: Tolerance, checks: Sequence[Check], evaluation: Sequence[Comparison]) -> str:
    if not checks:
        return "nothing was compared"
    if not t.exact_ranking and not evaluation:
        return f"the limits of '{t.name}' need real inputs, and the model has no evaluation set"
    limited = {check.output for check in checks if check.limit is not None}
    free = [check.output for check in checks if check.output and check.output not in limited]
    return f"no limit of '{t.name}' applies to output '{free[0]}'" if free else ""


def _rules(t: Tolerance, real: bool) -> dict[tuple[str, str], float]:
    rules = {("scores", "max abs"): t.max_abs, ("features", "relative"): t.relative, ("tensor", "relative"): t.relative}
    rules |= {("counts", "own count excess"): OWN_TOLERANCE, ("ranking", "own gap"): OWN_TOLERANCE}
    if real:
        rules |= {(role, "cosine"): t.cosine for role in ("scores", "features", "tensor")}
        rules |= {("scores", "snr"): t.snr_db, ("scores", "spearman"): t.spearman}
        rules |= {("ranking", "lost mass"): t.lost_mass}
    if t.exact_ranking:
        exact = (("counts", "count excess"), ("ranking", "swap gap"), ("ranking", "order gap"))
        rules |= dict.fromkeys(exact, t.max_abs or 0.0)
    elif real:
        rules |= {("scores", "unexplained"): GROSS_UNEXPLAINED, ("features", "row cosine"): GROSS_ROW_COSINE}
    else:
        rules |= {("scores", "unexplained"): STRANGE_UNEXPLAINED}
    return {key: limit for key, limit in rules.items() if limit is not None}


def _checks(
    batch: str, comparisons: Sequence[Comparison], rules: Mapping[tuple[str, str], float], noise: Mapping[str, float]
) -> Iterator[Check]:
    groups: dict[tuple[str, str], list[tuple[Comparison, Measure]]] = {}
    for comparison in comparisons:
        for measure in comparison.measures:
            groups.setdefault((measure.output, measure.metric), []).append((comparison, measure))
    for found in groups.values():
        table = rules.get((found[0][1].role, found[0][1].metric))
        if table is not None or batch == EVALUATION:  # elsewhere only what is judged is worth showing
            yield _check(batch, found, table, noise)


def _check(
    batch: str, found: Sequence[tuple[Comparison, Measure]], table: float | None, noise: Mapping[str, float]
) -> Check:
    measure = found[0][1]
    values = np.concatenate([m.values for _, m in found])
    patches = np.concatenate([m.patches for _, m in found])
    names = [name for comparison, _ in found for name in comparison.names]
    sign = -1.0 if measure.metric in _AT_LEAST else 1.0
    own = max(_own(m, noise) for _, m in found) if measure.metric in _WIDENED else None
    limit = None if table is None else _limit(table, own or 0.0)
    held = np.ones(len(values), bool)
    if limit is not None:
        excused = [_excused(comparison, m, noise, batch == EVALUATION) for comparison, m in found]
        held = (sign * values <= sign * limit) | np.concatenate(excused)
    pool = np.flatnonzero(~held) if not held.all() else np.arange(len(values))
    worst = int(pool[(sign * values[pool]).argmax()])  # argmax takes a NaN first
    passed, value, mean = bool(held.all()), float(values[worst]), float(values.mean())
    where = names[worst], int(patches[worst])
    return Check(batch, measure.output, measure.metric, value, mean, limit, table, own, passed, *where)


def _own(m: Measure, noise: Mapping[str, float]) -> float:
    return NOISE_MULTIPLE * (noise.get(m.of, 0.0) if m.role in _OF_SCORES else noise.get(m.output, 0.0) / m.peak)


def _excused(comparison: Comparison, m: Measure, noise: Mapping[str, float], real: bool) -> Array:
    excused = np.zeros(len(m.values), bool)
    if m.metric in _NEEDLESS:
        off = comparison.get(m.of, "max abs") if m.role in _OF_SCORES else comparison.get(m.output, "relative")
        excused |= np.asarray(off) <= min(_own(m, noise), NOISE_LIMIT)
    if m.role == "features" and not real:  # of a flat map each side may choose other patches: no row is left to compare
        excused |= np.asarray(comparison.get(m.output, "matched")) == 0
    return excused


def _limit(table: float, own: float) -> float:
    return max(table, min(own, NOISE_CAP * table))


def _task(t: Tolerance, evaluation: Sequence[Comparison], name: str) -> Iterator[Check]:
    found = [(each.names, each.task[0] - each.task[1]) for each in evaluation if each.task is not None]
    if not found:
        return
    images = [image for names, _ in found for image in names]
    drops = np.concatenate([drop for _, drop in found])
    worst, mean = int(drops.argmax()), float(drops.mean())
    asked = ((f"{name} drop", mean, t.task_drop), (f"{name} drop, one image", float(drops[worst]), t.task_drop_worst))
    for metric, value, limit in asked:
        passed = limit is None or value <= limit
        yield Check(EVALUATION, "", metric, value, mean, limit, limit, None, passed, images[worst])


def _notes(t: Tolerance, checks: Sequence[Check], evaluation: Sequence[Comparison]) -> Iterator[str]:
    if not evaluation:
        yield "judged on random and extreme inputs only: the model has no evaluation set"
    elif t.task_drop is not None and not any(comparison.task for comparison in evaluation):
        yield "no task metric was judged: the evaluation set has no truth"
    for check in (c for c in checks if c.batch == EVALUATION):
        what = _FORGIVEN.get(check.metric)
        if what and check.limit is not None and check.passed and check.value > 0:
            where = f"most in image '{check.image}', patch {check.patch}"
            yield f"forgiven {what.format(f'{check.value:.2g}')} (limit {check.limit:.2g}; {where})"
        if check.limit is not None and check.table is not None and check.limit > check.table:
            yield (
                f"the limit on {check.metric} of '{check.output}' is {check.limit:.2g} instead of {check.table:.2g}:"
                f" {NOISE_MULTIPLE:g} times the reference's own noise"
            )
