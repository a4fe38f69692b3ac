"""Verdict from measures and a tolerance: verified, rejected or not verified here, with the reason.

Checks:

- evaluation, real inputs: every limit of the tolerance, row by row, and the task metric against the reference's.
- all real inputs together: shares of wrong outputs, which in one batch may exceed their limit by chance. For INT8 also
  the limit of 99 of 100 rows (every row has one about four times as wide), and the measures of channels.
- stress (random, constant, extreme inputs) and the grid of shapes: absolute limits apply here too: differences of
  scores and features, counts and swaps. Cosine, SNR, Spearman and lost mass do not: on a nearly flat map they measure
  rounding. INT8 has no absolute limits and is not calibrated for such inputs: outputs must be finite, in shape and
  range, consistent, and not grossly off.

A limit is the larger of the table's and NOISE_MULTIPLE times the reference's own noise, up to NOISE_CAP times the
table's. A difference beyond the table's limit but within the noise gives "not verified here": it is neither the
artifact's fault nor a proof. If scores differ by no more than the noise, cosine, SNR, ranks and lost mass are not
judged. A NaN fails every limit.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from edgekit.artifact.fact import EVALUATION, IN_BATCHES, Code, Fact, fact
from edgekit.artifact.metric import metric_info, plain
from edgekit.artifact.result import EvaluationResult, Measure, Status
from edgekit.judge.chance import BEYOND, BEYOND_RESIZED, BEYOND_WORST, is_unsure, may_pass
from edgekit.judge.deviation import FEW_VALUES, USUAL, channel_deviations
from edgekit.judge.limits import (
    BIAS,
    CATEGORIES,
    CHANGED,
    FP32,
    FP32_DELEGATED,
    IDS,
    LEVELLED,
    LONGER_EXPOSURE,
    LOSSY,
    NOISE_ERRORS,
    PHOTOGRAPHS,
    SHIFTED,
    STRESS,
    TASK_DROP,
    WORDS,
    Kind,
    Limit,
    Tolerance,
    kind_of,
)
from edgekit.judge.metrics import Comparison, RowValues, condition_of
from edgekit.judge.task_drop import ONE_ROW, beside_alone, task_measures, unmoved_rows
from edgekit.model.spec import ORDERED, Array, Output

# Times the reference's own noise: both sides have it, and a maximum over few images is a small estimate of it.
NOISE_MULTIPLE = 4.0
# Times the table's limit: a noisier reference proves nothing and must not excuse anything.
NOISE_CAP = 10.0
# Score units, or share of a peak. Larger differences are judged by every measure, whatever the noise.
NOISE_LIMIT = 0.01


PRESENCE = "clear presence"
# Prefix of the metrics of channels.
CHANNEL = "channel "
Found = tuple[Comparison, RowValues]
# Fields that a reason copies from its measure.
SHARED = {"batch", "output", "metric", "value", "limit", "row", "index"}
# Name of all real inputs together, of every size: shares of wrong outputs have their limit there.
REAL_INPUTS = "real inputs"
# Names of all inputs of a kind together.
POOLS: Mapping[Kind, str] = {"real": REAL_INPUTS, "changed": "changed inputs", "random": "random inputs"}
# All real inputs that are resized.
RESIZED_INPUTS = "resized inputs"
# Share of wrong decisions in one condition of changed inputs, and the least rows that it needs: what fails in grey bars
# is wrong, however many other conditions hold.
WRONG_IN_CONDITION, FEW_IN_CONDITION = 0.4, 4
# Times the error of the median channel, and least channels: in a longer exposure, which saturates all of them, one may
# err more.
APART, ENOUGH_CHANNELS = 1.6, 8
# Standard deviations by which the share of wrong outputs in one batch may exceed its limit: three of 128 outputs are
# allowed where the limit is 1 %, and two of 96.
CHANCE = 2.0
# Peaks of the model's answers by which two of them may differ: an artifact's answer that is no further off is not of
# another order of magnitude, however little the answers to real inputs differ.
SAME_ORDER = 2.0
# Codes of reasons that name a limit; any other fault is one on whatever inputs it shows.
_LIMIT_CODES = {Code.LIMIT_EXCEEDED, Code.ROWS_BEYOND, Code.TOO_FEW_ROWS, Code.TOO_FEW_TURNED, Code.TOO_FEW_FOR_MEAN}
# Inputs that edgekit makes or brings, by batch or pool; any other batch has its own sizes.
_MADE_INPUTS = {
    PHOTOGRAPHS: "photographs of edgekit",
    CHANGED: "changed",
    LEVELLED: "levelled",
    WORDS: "queries of the other words",
    IDS: "other ids",
    CATEGORIES: "each category in turn",
    STRESS: "drawn",
    SHIFTED: "moved towards their ends",
    POOLS["real"]: "yours at other sizes, photographs if it takes pictures",
    POOLS["changed"]: "changed",
    POOLS["random"]: "drawn",
}
# Codes of notes on differences within the limit on scores.
_ROUNDING = {
    "swap gap": Code.TIES_AT_K,
    "order gap": Code.TIES_WITHIN_K,
    "count excess": Code.COUNTS_ROUNDED,
}


def not_verified(reason: Fact) -> EvaluationResult:
    """Return the verdict if this host lacks a requirement, which the reason names."""
    return EvaluationResult(status="not verified here", reasons=(reason,))


def failed_verdict(reason: Fact) -> EvaluationResult:
    """Return the verdict if a runtime refuses an artifact or crashes on it."""
    return EvaluationResult(status="rejected", reasons=(reason,))


def judge(
    tolerance: Tolerance,
    noise: Mapping[str, float],
    *,
    evaluation: Sequence[Comparison] = (),
    stress: Sequence[Comparison] = (),
    grid: Sequence[tuple[Mapping[str, int], Comparison]] = (),
    more: Mapping[str, Sequence[Comparison]] | None = None,
    metric_name: str = "task metric",
) -> EvaluationResult:
    """Judge one artifact in one place.

    Args:
        tolerance: The row of the table.
        noise: Largest absolute difference of the reference from itself, by output; 0 by default.
        evaluation: Real inputs, in one or more comparisons; empty if the model has none.
        stress: Random, constant and extreme inputs.
        grid: Sizes of each tested shape and its comparison.
        more: Other inputs at default sizes by kind: the real inputs in batches, photographs, changed ones, second runs
            of any of these.
        metric_name: Name of the task metric.
    """
    bad = [name for name, value in noise.items() if not 0 <= value < np.inf]
    if bad:
        details: dict[str, str | int | float] = {"noise": str(noise[bad[0]])}
        return not_verified(Fact(code=Code.REFERENCE_NOISE, output=bad[0], details=details))
    shapes = {", ".join(f"{axis} {size}" for axis, size in sizes.items()): sizes for sizes, _ in grid}
    batches = [(EVALUATION, evaluation), (STRESS, stress), *(more or {}).items()]
    batches += [(shape, [comparison for each, comparison in grid if each == sizes]) for shape, sizes in shapes.items()]
    checks = [*task_measures(tolerance, evaluation, metric_name)]
    checks += task_measures(
        tolerance, beside_alone((more or {}).get(IN_BATCHES, ()), evaluation), metric_name, IN_BATCHES
    )
    every = [(batch, each) for batch, comparisons in batches for each in comparisons]
    if not tolerance.exact_ranking and any(each.task is not None for each in evaluation):
        every = [(batch, _beside_metric(tolerance, batch, each)) for batch, each in every]
    of_kind = {kind: [(b, each) for b, each in every if _kind(tolerance, b, each) == kind] for kind in get_args(Kind)}
    worst = {kind: _beyond_worst(tolerance, kind, alike, noise) for kind, alike in of_kind.items()}
    faults: list[Fact] = []
    for batch, comparisons in batches:
        for kind, alike in of_kind.items():
            some = [each for b, each in alike if b == batch]
            checks += _checks(batch, kind, some, tolerance, noise, worst[kind])
        faults += [fault.model_copy(update={"batch": batch}) for each in comparisons for fault in each.faults]
    for kind, alike in of_kind.items():
        # A row counts once: in batches its error is much the same.
        checks += _pooled_measures(tolerance, kind, [found for found in alike if found[0] != IN_BATCHES], noise)
    broken = [check for check in checks if not check.passed]
    beyond = [reason_of(check) for check in broken if not check.within_noise and not is_unsure(check)]
    unsure = [reason_of(check) for check in broken if check.within_noise or is_unsure(check)]
    unproved = {reason.batch for reason in (*faults, *beyond, *unsure)}
    reasons = (*faults, *beyond) or tuple(unsure)
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
    return EvaluationResult(status=status, reasons=reasons, notes=notes, measures=tuple(checks), proof=proved)


def weigh_own_inputs(
    result: EvaluationResult,
    own: EvaluationResult,
    tolerance: Tolerance,
    evaluation: Sequence[Comparison],
    metric_name: str,
    task_limits: bool,
) -> EvaluationResult:
    """Return a verdict that says if only made inputs fail, and that is "verified" if the user accepts that.

    Args:
        result: The verdict on all inputs, which is not "verified".
        own: The verdict on the user's own inputs alone.
        tolerance: The row of the table.
        evaluation: The user's own inputs.
        metric_name: Name of the task metric.
        task_limits: True if the user's own inputs and metric suffice.
    """
    tasks = [comparison.task for comparison in evaluation if comparison.task is not None]
    other_faults = any(reason.code not in _LIMIT_CODES for reason in result.reasons)
    if own.status != "verified" or not tasks or other_faults or tolerance.name not in LOSSY:
        return result
    inputs = list(dict.fromkeys(_made_inputs_of(reason.batch) for reason in result.reasons))
    pooled = _MADE_INPUTS[POOLS["real"]]
    before, after = (np.concatenate(side) for side in zip(*tasks, strict=True))
    made = fact(
        Code.MADE_INPUTS,
        outcome="fails" if result.status == "rejected" else "undecided",
        inputs=", ".join([text for text in inputs if text != pooled] or [pooled]),
        name=metric_name,
        before=float(before.mean()),
        after=float(after.mean()),
        rows=len(before),
        option="Accepted by `--limits task`" if task_limits else "`--limits task` accepts it",
    )
    if task_limits:
        return result.model_copy(update={"status": "verified", "reasons": (), "notes": (made, *result.notes)})
    return result.model_copy(update={"reasons": (made, *result.reasons)})


def _made_inputs_of(batch: str) -> str:
    """Return which inputs a batch or pool of made inputs holds, in a few words."""
    usual = "in batches" if batch.removeprefix("batch ").isdecimal() else "resized"
    return _MADE_INPUTS.get(batch, usual)


def _limits_of(t: Tolerance, batch: str, kind: Kind) -> dict[tuple[str, str], Limit]:
    """Return the limits on inputs of a kind in a batch.

    The reference of the inputs in batches ran each alone. Libraries add up in another order with rows beside, so fp32
    holds the limits of delegates there.
    """
    limits = t.on(kind)
    if batch != IN_BATCHES or t.name != FP32.name:
        return limits
    delegated = FP32_DELEGATED.on(kind)
    return {key: delegated.get(key, row) for key, row in limits.items()}


def _kind(t: Tolerance, batch: str, comparison: Comparison) -> Kind:
    """Return a batch's kind; fp16 and INT8 hold the limits of real inputs on resized ones too, and in each batch.

    They hold the limits of changed inputs on cut signals, which may lack what they are about.
    """
    return comparison.kind if comparison.kind is not None and t.name in LOSSY else kind_of(batch)


def _beside_metric(t: Tolerance, batch: str, comparison: Comparison) -> Comparison:
    """Return a comparison whose errors in noise have no limit, since the user's own metric decides in INT8.

    Inputs that are moved towards their ends keep theirs: a device may meet them.
    """
    if _kind(t, batch, comparison) != "random" or batch.startswith(SHIFTED):
        return comparison
    return replace(comparison, measures=tuple(m for m in comparison.measures if m.metric not in NOISE_ERRORS))


def _missing(t: Tolerance, checks: Sequence[Measure], evaluation: Sequence[Comparison]) -> list[Fact]:
    relevant = checks if t.exact_ranking else [check for check in checks if kind_of(check.batch) == "real"]
    if not relevant:
        needed = not t.exact_ranking and not evaluation
        return [fact(Code.REAL_INPUTS_NEEDED, tolerance_name=t.name) if needed else fact(Code.NOTHING_COMPARED)]
    limited = {check.output for check in checks if check.limit is not None}
    free = [check.output for check in checks if check.output and check.output not in limited]
    return [Fact(code=Code.NO_LIMIT_APPLIES, output=free[0], details={"tolerance_name": t.name})] if free else []


def _checks(
    batch: str,
    kind: Kind,
    comparisons: Sequence[Comparison],
    t: Tolerance,
    noise: Mapping[str, float],
    worst: Mapping[tuple[str, str, str], _Beyond],
) -> Iterator[Measure]:
    rules = _limits_of(t, batch, kind)
    for group in _group_measures((comparison, m) for comparison in comparisons for m in comparison.measures):
        row = rules.get((group[0][1].role, group[0][1].metric))
        if row is not None and _together(t, row):
            continue
        # Other batches only show limited measures.
        if row is None and batch != EVALUATION:
            continue
        check = _check(batch, group, row.of_each if row is not None else None, noise)
        if not check.passed and check.value is not None and row is not None and row.worst is not None:
            found = worst[_pool(kind, batch, group[0][0]), check.output, check.metric]
            told = {"rows": found.rows, "beyond": len(found.names), "share": BEYOND_WORST}
            check = check.model_copy(update=told)
            # Where a single row does not tell, the user's own metric on the user's own inputs does.
            check = check.model_copy(update={"passed": is_unsure(check) and not found.moved})
        yield check


@dataclass(frozen=True)
class _Beyond:
    """The inputs on which one metric of one output is beyond its `worst`.

    Attributes:
        names: Their names.
        rows: Number of all inputs.
        moved: True unless the user's metric, if it is graded, stays the same or improves on each of them.
    """

    names: frozenset[str]
    rows: int
    moved: bool


def _beyond_worst(
    t: Tolerance, kind: Kind, every: Sequence[tuple[str, Comparison]], noise: Mapping[str, float]
) -> dict[tuple[str, str, str], _Beyond]:
    """Return the inputs beyond each `worst`, by pool, output and metric; an input counts once in all its batches."""
    batches = {id(comparison): batch for batch, comparison in every}
    rules = t.on(kind)
    found = {}
    for group in _group_measures((comparison, m) for _, comparison in every for m in comparison.measures):
        row = rules.get((group[0][1].role, group[0][1].metric))
        if row is None or row.worst is None or _together(t, row):
            continue
        for pool, some in _by_pool(kind, group, batches).items():
            limit, moved = widen_limit(row.worst, _largest_noise(some, noise) or 0.0), False
            rows: list[str] = []
            beyond: list[str] = []
            for comparison, m in some:
                batch = batches[id(comparison)]
                off = ~_within(batch, comparison, m, limit, noise)
                names = [_input_of(batch, comparison, name) for name in m.names or comparison.names]
                rows += names
                beyond += [names[place] for place in np.flatnonzero(off)]
                moved |= bool((off & ~unmoved_rows(comparison, m)).any())
            found[pool, group[0][1].output, row.metric] = _Beyond(frozenset(beyond), len(set(rows)), moved)
    return found


def _input_of(batch: str, comparison: Comparison, name: str) -> str:
    """Return the name of a row's input: the same alone and in batches of its size, where a number stands before it."""
    if comparison.size == "usual":
        return name.partition(": ")[2] or name
    return name if batch in (EVALUATION, IN_BATCHES) else f"{batch.removesuffix(' again')} {name}"


def _within(batch: str, comparison: Comparison, m: RowValues, limit: float, noise: Mapping[str, float]) -> Array:
    """Return which values are within a limit, or excused from it."""
    sign = metric_info(m.metric).sign
    held = sign * m.values <= sign * limit
    return np.asarray(held | _excused_rows(comparison, m, noise, batch.startswith(EVALUATION)))


def _together(t: Tolerance, row: Limit) -> bool:
    """Return whether a limit applies only to all inputs of a kind together: INT8's limits on channels."""
    return not t.exact_ranking and row.metric.startswith(CHANNEL)


def _group_measures(measures: Iterable[Found]) -> Iterator[list[Found]]:
    """Yield the measures of each metric of each output."""
    groups: dict[tuple[str, str], list[Found]] = {}
    for comparison, measure in measures:
        groups.setdefault((measure.output, measure.metric), []).append((comparison, measure))
    yield from groups.values()


def _check(
    batch: str,
    rows: Sequence[tuple[Comparison, RowValues]],
    table: float | None,
    noise: Mapping[str, float],
    chance: float = CHANCE,
) -> Measure:
    measure = rows[0][1]
    values = np.concatenate([m.values for _, m in rows])
    places = np.concatenate([m.places for _, m in rows])
    names = [name for comparison, m in rows for name in m.names or comparison.names]
    weights = np.concatenate([np.ones(len(m.values)) if m.answers is None else m.answers for _, m in rows])
    mean = float((values * weights).sum() / max(weights.sum(), 1))
    info = metric_info(measure.metric)
    sign = info.sign
    own = _largest_noise(rows, noise)
    limit = None if table is None else widen_limit(table, own or 0.0)
    within = np.ones(len(values), bool)
    if limit is not None:
        within = np.concatenate([_within(batch, comparison, m, limit, noise) for comparison, m in rows])
        if info.mean:
            within |= mean <= _allowed_share(limit, max(int(weights.sum()), 1), chance)
    pool = np.flatnonzero(~within) if not within.all() else np.arange(len(values))
    # Argmax returns a NaN first.
    worst = int(pool[(sign * values[pool]).argmax()])
    return Measure(
        batch=batch,
        output=measure.output,
        metric=measure.metric,
        value=_finite(mean if info.mean else float(values[worst])),
        limit=limit,
        table=table,
        noise=own,
        passed=bool(within.all()),
        row=names[worst],
        index=int(places[worst]),
    )


def reason_of(measure: Measure) -> Fact:
    """Return the reason that a failed measure gives."""
    shared = measure.model_dump(include=SHARED)
    if not measure.output and measure.within_noise:
        chance = plain(measure.noise or 0.0, 2)
        return Fact(code=Code.TOO_FEW_FOR_MEAN, details={"chance": chance}, **shared)
    if not measure.rows or (measure.share == BEYOND_WORST and not measure.passed and not is_unsure(measure)):
        return Fact(code=Code.LIMIT_EXCEEDED, **shared)
    details: dict[str, str | int | float] = {
        "beyond": measure.beyond,
        "rows": measure.rows,
        "allowed": may_pass(measure.rows, measure.share),
        "share": measure.share,
    }
    if _is_share(measure):
        details = {name: details[name] for name in ("beyond", "rows", "share")}
        return Fact(code=Code.TOO_FEW_TURNED if is_unsure(measure) else Code.LIMIT_EXCEEDED, details=details, **shared)
    return Fact(code=Code.TOO_FEW_ROWS if is_unsure(measure) else Code.ROWS_BEYOND, details=details, **shared)


def _allowed_share(limit: float, answers: int, chance: float) -> float:
    """Return the share of wrong outputs that is allowed: the limit plus chance, and always a single one."""
    return max(limit + chance * float(np.sqrt(limit / answers)), 1.0 / answers) if limit else 0.0


def _pooled_measures(
    t: Tolerance, kind: Kind, every: Sequence[tuple[str, Comparison]], noise: Mapping[str, float]
) -> Iterator[Measure]:
    """Yield the measures on all inputs of a kind together: shares of wrong outputs, 99 of 100 rows, channels."""
    rules = t.on(kind)
    batches = {id(comparison): batch for batch, comparison in every}
    for group in _group_measures((comparison, m) for _, comparison in every for m in comparison.measures):
        row = rules.get((group[0][1].role, group[0][1].metric))
        if row is None:
            continue
        # Of INT8 each row that appears or disappears counts as one beyond the limit.
        is_counted = row.worst is not None or (row.metric == PRESENCE and kind == "real")
        if metric_info(row.metric).mean and kind == "real" and not is_counted:
            yield _check(POOLS[kind], group, row.value, noise, 0.0)
        elif metric_info(row.metric).mean and kind == "changed":
            yield from _worst_condition(group)
        elif _together(t, row) and kind == "changed":
            yield from _worst_channel(group, row)
            if bias := rules.get((group[0][1].role, BIAS)):
                yield from _worst_channel([(each, m) for each, m in group if batches[id(each)] == CATEGORIES], bias)
        elif _together(t, row):
            yield from _channels(POOLS[kind], group, rules, noise) if row.metric == f"{CHANNEL}error" else ()
        elif is_counted:
            for pool, found in _by_pool(kind, group, batches).items():
                yield _share_check(pool, found, row, noise, batches)


def _by_pool(kind: Kind, group: Sequence[Found], batches: Mapping[int, str]) -> dict[str, list[Found]]:
    pools: dict[str, list[Found]] = {}
    for comparison, m in group:
        pools.setdefault(_pool(kind, batches[id(comparison)], comparison), []).append((comparison, m))
    return pools


def _pool(kind: Kind, batch: str, comparison: Comparison) -> str:
    """Return the name of the inputs among which a row counts."""
    if batch == CATEGORIES:
        # Of a table with many ids they would outnumber all others.
        return CATEGORIES
    return RESIZED_INPUTS if kind == "real" and comparison.size == "resized" else POOLS[kind]


def _worst_condition(group: Sequence[Found]) -> Iterator[Measure]:
    """Yield the share of wrong decisions in the worst condition, such as "grey bars", if it has enough rows."""
    by_condition: dict[str, list[tuple[float, float]]] = {}
    for comparison, m in group:
        weights = np.ones(len(m.values)) if m.answers is None else m.answers
        for name, value, weight in zip(m.names or comparison.names, m.values, weights, strict=True):
            by_condition.setdefault(condition_of(name), []).append((float(value * weight), float(weight)))
    shares = {
        condition: sum(wrong for wrong, _ in rows) / max(sum(weight for _, weight in rows), 1)
        for condition, rows in by_condition.items()
        if condition and len(rows) >= FEW_IN_CONDITION
    }
    if not shares:
        return
    worst = max(shares, key=lambda condition: shares[condition])
    yield Measure(
        batch=POOLS["changed"],
        output=group[0][1].output,
        metric=group[0][1].metric,
        value=_finite(shares[worst]),
        limit=WRONG_IN_CONDITION,
        table=WRONG_IN_CONDITION,
        passed=shares[worst] <= WRONG_IN_CONDITION,
        row=worst,
    )


def _worst_channel(group: Sequence[Found], limit: Limit) -> Iterator[Measure]:
    """Yield the error or bias of the worst channel in the worst condition, as of exchanged classes out of focus.

    Of a hundred channels one may be worse. In a longer exposure the limit of the error is APART times that of the
    median channel, if that is more. Where the model itself answers further than USUAL from its real answers, the limit
    grows in proportion: an object moved to a corner where none is in the user's data.
    """
    worst: tuple[float, float, str, str] = (-np.inf, 0.0, "", "")
    for comparison, m in group:
        conditions = {condition: sums for (name, condition), sums in comparison.sums.items() if name == m.output}
        for condition, sums in conditions.items():
            if condition:
                values = sums.bias(conditions[""]) if limit.metric == BIAS else next(channel_deviations(sums))[1]
                place = int(np.argsort(-values, kind="stable")[len(values) // 100])
                saturated = condition.startswith(LONGER_EXPOSURE) and len(values) >= ENOUGH_CHANNELS
                far = float(np.sqrt(sums.zz / np.maximum(sums.count, 1)).max()) / USUAL if limit.metric != BIAS else 0.0
                allowed = max(limit.value * max(far, 1.0), APART * float(np.median(values)) if saturated else 0.0)
                worst = max(worst, (float(values[place]) - allowed, allowed, condition, m.names[place]))
    excess, allowed, condition, channel = worst
    if condition:
        yield Measure(
            batch=CATEGORIES if limit.metric == BIAS else POOLS["changed"],
            output=group[0][1].output,
            metric=limit.metric,
            value=_finite(excess + allowed),
            limit=allowed,
            table=limit.value,
            passed=excess <= 0,
            row=f"{condition}, {channel}",
        )


def _share_check(
    pool: str, group: Sequence[Found], rule: Limit, noise: Mapping[str, float], batches: Mapping[int, str]
) -> Measure:
    """Check the limit of 99 of 100 rows, of 90 if resized: its value is that of the first row after them."""
    info = metric_info(group[0][1].metric)
    values = np.concatenate([m.values for _, m in group])
    own = _largest_noise(group, noise)
    limit = widen_limit(rule.value, own or 0.0)
    real = (batches[id(comparison)].startswith(EVALUATION) for comparison, _ in group)
    excused = np.concatenate([_excused_rows(*found, noise, each) for found, each in zip(group, real, strict=True)])
    names = [name for comparison, m in group for name in m.names or comparison.names]
    badness = np.where(excused, -np.inf, np.nan_to_num(info.sign * values, nan=np.inf))
    # An input that is beyond the limit alone does not count again in a batch.
    inputs = [
        _input_of(batches[id(comparison)], comparison, name)
        for comparison, m in group
        for name in m.names or comparison.names
    ]
    again = np.concatenate([np.full(len(m.values), comparison.size == "usual") for comparison, m in group])
    alone = {inputs[row] for row in np.flatnonzero((badness > info.sign * limit) & ~again)}
    repeats = [row for row in np.flatnonzero(again) if inputs[row] in alone]
    badness[repeats] = -np.inf
    order = np.argsort(-badness, kind="stable")
    beyond, rows = int((badness > info.sign * limit).sum()), len(values)
    share = BEYOND_RESIZED if pool == RESIZED_INPUTS else BEYOND
    allowed = may_pass(rows, share)
    place = int(order[min(allowed, rows - 1)])
    measure = Measure(
        batch=pool,
        output=group[0][1].output,
        metric=info.name,
        value=_finite(float(values[place])),
        limit=limit,
        table=rule.value,
        noise=own,
        passed=beyond <= allowed,
        row=names[place],
        index=int(np.concatenate([m.places for _, m in group])[place]),
        rows=rows,
        beyond=beyond,
        share=share,
    )
    if is_unsure(measure):
        # Where so few rows do not tell, the user's own metric on the user's own inputs does.
        unmoved = np.concatenate([unmoved_rows(comparison, m) for comparison, m in group])
        moved = int((badness[~unmoved] > info.sign * limit).sum())
        return measure.model_copy(update={"passed": moved <= allowed})
    return measure


def _is_share(check: Measure) -> bool:
    """Return whether a check is one of a metric of right or wrong, whose rows count as turned wrong."""
    return not check.output and not check.metric.endswith(ONE_ROW)


def _channels(
    pool: str, rows: Sequence[Found], rules: Mapping[tuple[str, str], Limit], noise: Mapping[str, float]
) -> Iterator[Measure]:
    """Yield the checks of channels over all rows of a kind: 99 of 100 within a limit, all within its worst."""
    role, output = rows[0][1].role, rows[0][1].output
    every = [each.sums[output, ""] for each, _ in rows if (output, "") in each.sums]
    alike = [channels for channels in every if len(channels.count) == len(every[0].count)]
    for metric, values, places in channel_deviations(functools.reduce(operator.add, alike)):
        row = rules.get((role, metric))
        if row is None:
            continue
        order = np.argsort(-metric_info(metric).sign * values, kind="stable")
        names = tuple(rows[0][1].names[number] for number in order)
        own = RowValues(output, role, "", metric, values[order], places[order], 1.0, names)
        first = int(BEYOND * len(order))
        others = replace(own, values=own.values[first:], places=own.places[first:], names=names[first:])
        worst = _check(pool, [(rows[0][0], own)], row.of_each, noise)
        yield _check(pool, [(rows[0][0], others)], row.value, noise) if worst.passed else worst


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _largest_noise(found: Sequence[Found], noise: Mapping[str, float]) -> float | None:
    return max(_own(m, noise) for _, m in found) if metric_info(found[0][1].metric).widened else None


def _own(m: RowValues, noise: Mapping[str, float]) -> float:
    return NOISE_MULTIPLE * (noise.get(m.of, 0.0) if m.role in ORDERED else noise.get(m.output, 0.0) / m.peak)


def _excused_rows(comparison: Comparison, m: RowValues, noise: Mapping[str, float], real: bool) -> Array:
    excused = np.zeros(len(m.values), bool)
    if metric_info(m.metric).relative:
        off = comparison.get(m.of, "max abs") if m.role in ORDERED else comparison.get(m.output, "relative")
        excused |= np.asarray(off) <= min(_own(m, noise), NOISE_LIMIT)
    if m.metric == "gross error":
        excused |= np.asarray(comparison.get(m.output, "relative")) <= SAME_ORDER
    if (
        m.role == "features" and not real and not m.names
    ):  # of a flat map each side may choose other patches: no row is left to compare
        excused |= np.asarray(comparison.get(m.output, "matched")) == 0
    return excused


def _notes(t: Tolerance, checks: Sequence[Measure], evaluation: Sequence[Comparison]) -> Iterator[Fact]:
    if not evaluation:
        yield fact(Code.NO_EVALUATION_SET)
    elif t.limit(TASK_DROP, "task") is not None and not any(comparison.task for comparison in evaluation):
        yield fact(Code.NO_TASK_METRIC)
    yield from (
        reason_of(check).model_copy(update={"code": Code.ROWS_UNMOVED})
        for check in checks
        if check.passed and check.beyond > may_pass(check.rows, check.share)
    )
    for check in (c for c in checks if c.batch == EVALUATION and c.limit is not None):
        code = _ROUNDING.get(check.metric)
        if code is not None and check.passed and check.value:
            yield reason_of(check).model_copy(update={"code": code})
        if check.table is not None and check.limit is not None and check.limit > check.table:
            details = {"table": metric_info(check.metric).format_limit(check.table), "multiple": NOISE_MULTIPLE}
            yield reason_of(check).model_copy(update={"code": Code.LIMIT_WIDENED, "details": details})


def score_tolerance(tolerance: Tolerance, noise: float) -> float:
    """Return the limit on scores that a verdict uses, in score units, given the noise of that output."""
    return widen_limit(tolerance.limit("max abs", "scores") or 0.0, NOISE_MULTIPLE * noise)


def widen_limit(table: float, own: float) -> float:
    """Return the table's limit, or the noise (already times NOISE_MULTIPLE) if larger, up to the cap."""
    return max(table, min(own, NOISE_CAP * table))


def too_noisy(
    tolerance: Tolerance, outputs: Sequence[Output], noise: Mapping[str, float], scales: Mapping[str, Array]
) -> Fact | None:
    """Return a fact on the first output whose noise exceeds a limit's cap or INT8's allowance; None if none does.

    Args:
        tolerance: The row of the table.
        outputs: Outputs of the model.
        noise: Noise of the reference, by output.
        scales: The spread of each channel of each floating output, without its noise.
    """
    for output in (o for o in outputs if o.name in scales and np.isfinite(noise.get(o.name, 0.0))):
        # Of quantities of their own the noise is that of the largest.
        middle = np.max if output.role == "tensor" and len(scales[output.name]) <= FEW_VALUES else np.median
        scale = float(middle(scales[output.name]))
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
