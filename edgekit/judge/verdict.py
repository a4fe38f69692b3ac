"""Numbers and a tolerance -> verified, rejected or not verified here, with the reason. Never a silent pass.

What is judged:

- evaluation, real inputs: every limit of the tolerance, row by row, and the task metric against the reference's.
- all real inputs together: shares of wrong answers, which in one batch may be over their limit by chance.
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
from typing import get_args

import numpy as np

from edgekit.artifact.fact import EVALUATION, Code, Fact, fact
from edgekit.artifact.metric import metric_info, plain
from edgekit.artifact.result import Measure, Status, Verdict
from edgekit.judge.limits import STRESS, TASK_DROP, TASK_DROP_WORST, Kind, Tolerance, kind_of
from edgekit.judge.metrics import Comparison, RowValues
from edgekit.model.spec import Array, Output

NOISE_MULTIPLE = 4.0
"""Times the reference's own noise: both sides have it, and a maximum over few images is a small estimate of it."""
NOISE_CAP = 10.0
"""Times the table's limit: a reference that is noisier proves nothing, and must not excuse anything."""
NOISE_LIMIT = 0.01
"""Score units, or share of a peak. Differences above this are judged by every measure, whatever the noise."""


SHARED = {"batch", "output", "metric", "value", "limit", "row", "index"}
"""What a reason has of the measure that gives it."""
_OF_SCORES = {"scores", "counts", "ranking"}  # roles whose differences are in units of a score
REAL_INPUTS = "real inputs"
"""All of them, of every size: shares of wrong answers are held to their limit there."""
CHANCE = 2.0
"""Standard deviations by which the share of wrong answers in one batch may be over its limit: three of 128 answers are
allowed where the limit is 1 %, and two of 96."""
_ROUNDING = {
    "swap gap": Code.TIES_AT_K,
    "order gap": Code.TIES_WITHIN_K,
    "count excess": Code.COUNTS_ROUNDED,
}
"""What a note says of a difference within the limit on scores."""


def not_verified(reason: Fact) -> Verdict:
    """The verdict where this host lacks what it takes; the reason says what is missing."""
    return Verdict(status="not verified here", reasons=(reason,))


def failed(reason: Fact) -> Verdict:
    """The verdict where a runtime refuses an artifact, or dies of it."""
    return Verdict(status="rejected", reasons=(reason,))


def judge(
    tolerance: Tolerance,
    noise: Mapping[str, float],
    *,
    evaluation: Sequence[Comparison] = (),
    stress: Sequence[Comparison] = (),
    grid: Sequence[tuple[Mapping[str, int], Comparison]] = (),
    more: Mapping[str, Sequence[Comparison]] | None = None,
    metric_name: str = "task metric",
) -> Verdict:
    """Judge one artifact in one place.

    Args:
        tolerance: The row of the table.
        noise: Largest absolute difference of the reference from itself, by output; 0 where none is given.
        evaluation: Real inputs, in one or more comparisons; empty where the model has none.
        stress: Random, constant and extreme inputs.
        grid: Sizes of each proved shape and what was found there.
        more: Other inputs at default sizes by what they are: photographs, changed ones, any of these asked again.
        metric_name: What the task metric is called.
    """
    bad = [name for name, value in noise.items() if not 0 <= value < np.inf]
    if bad:
        details: dict[str, str | int | float] = {"noise": str(noise[bad[0]])}
        return not_verified(Fact(code=Code.REFERENCE_NOISE, output=bad[0], details=details))
    shapes = {", ".join(f"{axis} {size}" for axis, size in sizes.items()): sizes for sizes, _ in grid}
    batches = [(EVALUATION, evaluation), (STRESS, stress), *(more or {}).items()]
    batches += [(shape, [found for each, found in grid if each == sizes]) for shape, sizes in shapes.items()]
    checks = list(_task(tolerance, evaluation, metric_name))
    faults: list[Fact] = []
    for batch, comparisons in batches:
        for kind in get_args(Kind):
            some = [each for each in comparisons if _kind(tolerance, batch, each) == kind]
            checks += _checks(batch, some, tolerance.on(kind), noise)
        faults += [fault.model_copy(update={"batch": batch}) for each in comparisons for fault in each.faults]
    every = [(batch, each) for batch, comparisons in batches for each in comparisons]
    checks += _pooled(tolerance, [each for batch, each in every if _kind(tolerance, batch, each) == "real"], noise)
    broken = [check for check in checks if not check.passed]
    beyond = [reason_of(check) for check in broken if not check.within_noise]
    reasons = (*faults, *beyond, *(reason_of(check) for check in broken if check.within_noise))
    unproved = {reason.batch for reason in reasons}
    proved = tuple(dict(sizes) for shape, sizes in shapes.items() if shape not in unproved)
    status: Status = "verified"
    if unusable := [fault for fault in faults if fault.details.get("side") == "reference"]:
        status, reasons = "not verified here", tuple(unusable)
    elif faults or beyond:
        status = "rejected"
    elif reasons or (missing := _missing(tolerance, checks, evaluation)):
        status = "not verified here"
        reasons = reasons or tuple(missing)
    notes = tuple(_notes(tolerance, checks, evaluation))
    return Verdict(status=status, reasons=reasons, notes=notes, measures=tuple(checks), proof=proved)


def _kind(t: Tolerance, batch: str, comparison: Comparison) -> Kind:
    """Real inputs at another size are asked for ranks too: where scores have absolute limits, these say more."""
    return "real" if comparison.real and not t.exact_ranking else kind_of(batch)


def _missing(t: Tolerance, checks: Sequence[Measure], evaluation: Sequence[Comparison]) -> list[Fact]:
    asked = checks if t.exact_ranking else [check for check in checks if kind_of(check.batch) == "real"]
    if not asked:
        needed = not t.exact_ranking and not evaluation
        return [fact(Code.REAL_INPUTS_NEEDED, tolerance_name=t.name) if needed else fact(Code.NOTHING_COMPARED)]
    limited = {check.output for check in checks if check.limit is not None}
    free = [check.output for check in checks if check.output and check.output not in limited]
    return [Fact(code=Code.NO_LIMIT_APPLIES, output=free[0], details={"tolerance_name": t.name})] if free else []


def _checks(
    batch: str, comparisons: Sequence[Comparison], rules: Mapping[tuple[str, str], float], noise: Mapping[str, float]
) -> Iterator[Measure]:
    groups: dict[tuple[str, str], list[tuple[Comparison, RowValues]]] = {}
    for comparison in comparisons:
        for measure in comparison.measures:
            groups.setdefault((measure.output, measure.metric), []).append((comparison, measure))
    for found in groups.values():
        table = rules.get((found[0][1].role, found[0][1].metric))
        if table is not None or batch == EVALUATION:  # elsewhere only what is judged is worth showing
            yield _check(batch, found, table, noise)


def _check(
    batch: str,
    found: Sequence[tuple[Comparison, RowValues]],
    table: float | None,
    noise: Mapping[str, float],
    chance: float = CHANCE,
) -> Measure:
    measure = found[0][1]
    values = np.concatenate([m.values for _, m in found])
    places = np.concatenate([m.places for _, m in found])
    names = [name for comparison, m in found for name in m.names or comparison.names]
    weights = np.concatenate([np.ones(len(m.values)) if m.answers is None else m.answers for _, m in found])
    mean = float((values * weights).sum() / max(weights.sum(), 1))
    info = metric_info(measure.metric)
    sign = info.sign
    own = max(_own(m, noise) for _, m in found) if info.widened else None
    limit = None if table is None else widened(table, own or 0.0)
    held = np.ones(len(values), bool)
    if limit is not None:
        excused = [_excused(comparison, m, noise, batch.startswith(EVALUATION)) for comparison, m in found]
        held = (sign * values <= sign * limit) | np.concatenate(excused)
        if info.mean:
            held |= mean <= _allowed(limit, max(int(weights.sum()), 1), chance)
    pool = np.flatnonzero(~held) if not held.all() else np.arange(len(values))
    worst = int(pool[(sign * values[pool]).argmax()])  # argmax takes a NaN first
    return Measure(
        batch=batch,
        output=measure.output,
        metric=measure.metric,
        value=_finite(mean if info.mean else float(values[worst])),
        limit=limit,
        table=table,
        noise=own,
        passed=bool(held.all()),
        row=names[worst],
        index=int(places[worst]),
    )


def reason_of(measure: Measure) -> Fact:
    """The reason that a measure gives where it did not hold."""
    return Fact(code=Code.LIMIT_EXCEEDED, **measure.model_dump(include=SHARED))


def _allowed(limit: float, answers: int, chance: float) -> float:
    """The share of so many answers that may be wrong: what chance makes of the limit, and a single one in any case."""
    return max(limit + chance * float(np.sqrt(limit / answers)), 1.0 / answers) if limit else 0.0


def _pooled(t: Tolerance, comparisons: Sequence[Comparison], noise: Mapping[str, float]) -> Iterator[Measure]:
    """Shares of wrong answers over all real inputs together, held to the limit itself."""
    rules = t.on("real")
    for (role, metric), table in rules.items():
        outputs: dict[str, list[tuple[Comparison, RowValues]]] = {}
        for comparison in comparisons if metric_info(metric).mean else ():
            for measure in comparison.measures:
                if (measure.role, measure.metric) == (role, metric):
                    outputs.setdefault(measure.output, []).append((comparison, measure))
        yield from (_check(REAL_INPUTS, found, table, noise, 0.0) for found in outputs.values())


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _own(m: RowValues, noise: Mapping[str, float]) -> float:
    return NOISE_MULTIPLE * (noise.get(m.of, 0.0) if m.role in _OF_SCORES else noise.get(m.output, 0.0) / m.peak)


def _excused(comparison: Comparison, m: RowValues, noise: Mapping[str, float], real: bool) -> Array:
    excused = np.zeros(len(m.values), bool)
    if metric_info(m.metric).relative:
        off = comparison.get(m.of, "max abs") if m.role in _OF_SCORES else comparison.get(m.output, "relative")
        excused |= np.asarray(off) <= min(_own(m, noise), NOISE_LIMIT)
    if (
        m.role == "features" and not real and not m.names
    ):  # of a flat map each side may choose other patches: no row is left to compare
        excused |= np.asarray(comparison.get(m.output, "matched")) == 0
    return excused


def _task(t: Tolerance, evaluation: Sequence[Comparison], name: str) -> Iterator[Measure]:
    found = [(each.names, each.task[0] - each.task[1]) for each in evaluation if each.task is not None]
    if not found:
        return
    rows = [row for names, _ in found for row in names]
    drops = np.concatenate([drop for _, drop in found])
    worst, mean = int(drops.argmax()), float(drops.mean())
    judged = ((f"{name} drop", mean, TASK_DROP), (f"{name} drop, one row", float(drops[worst]), TASK_DROP_WORST))
    for metric, value, row in judged:
        limit = t.limit(row, "task")
        passed = limit is None or value <= limit
        yield Measure(
            batch=EVALUATION,
            output="",
            metric=metric,
            value=value,
            limit=limit,
            table=limit,
            passed=passed,
            row=rows[worst],
        )


def _notes(t: Tolerance, checks: Sequence[Measure], evaluation: Sequence[Comparison]) -> Iterator[Fact]:
    if not evaluation:
        yield fact(Code.NO_EVALUATION_SET)
    elif t.limit(TASK_DROP, "task") is not None and not any(comparison.task for comparison in evaluation):
        yield fact(Code.NO_TASK_METRIC)
    for check in (c for c in checks if c.batch == EVALUATION and c.limit is not None):
        code = _ROUNDING.get(check.metric)
        if code is not None and check.passed and check.value:
            yield reason_of(check).model_copy(update={"code": code})
        if check.table is not None and check.limit is not None and check.limit > check.table:
            details = {"table": metric_info(check.metric).format_limit(check.table), "multiple": NOISE_MULTIPLE}
            yield reason_of(check).model_copy(update={"code": Code.LIMIT_WIDENED, "details": details})


def score_tolerance(tolerance: Tolerance, noise: float) -> float:
    """The limit on scores that a verdict uses, in score units, given the noise of that output: for `compare`."""
    return widened(tolerance.limit("max abs", "scores") or 0.0, NOISE_MULTIPLE * noise)


def widened(table: float, own: float) -> float:
    """A limit: the table's, or the noise (times NOISE_MULTIPLE already) where that is larger, up to the cap."""
    return max(table, min(own, NOISE_CAP * table))


def too_noisy(
    tolerance: Tolerance, outputs: Sequence[Output], noise: Mapping[str, float], scales: Mapping[str, Array]
) -> Fact | None:
    """The first output whose noise would widen a limit past its cap, or excuse more than INT8 is allowed.

    Args:
        tolerance: The row of the table.
        outputs: Of the model.
        noise: Of the reference, by output.
        scales: The spread of each channel of each floating output, without its noise.
    """
    for output in (o for o in outputs if o.name in scales and np.isfinite(noise.get(o.name, 0.0))):
        scale = float(np.median(scales[output.name]))
        if output.role == "scores":
            most = tolerance.limit("max abs", "scores")
            allowed = NOISE_LIMIT if most is None else NOISE_CAP * most
        else:
            largest, error = (tolerance.limit(metric, "tensor") for metric in ("deviation", "error"))
            share = error if largest is None else NOISE_CAP * largest
            allowed = np.inf if share is None else share * scale
        if NOISE_MULTIPLE * noise.get(output.name, 0.0) > allowed:
            details: dict[str, str | int | float] = {"multiple": NOISE_MULTIPLE, "allowed": plain(allowed, 2)}
            return Fact(code=Code.REFERENCE_TOO_NOISY, output=output.name, value=noise[output.name], details=details)
    return None
