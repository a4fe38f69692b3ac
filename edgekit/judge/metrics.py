"""Metrics: numeric differences between an artifact's outputs and the reference's, row by row.

An output that cannot be compared (missing, wrong shape or dtype, NaN or Inf on any side, a repeated or invalid index, a
count out of range) is a fault. Neither that output nor the outputs derived from it get measures. A measure is one
float64 per row, computed in float64, with its name in reports:
- spearman: correlation of average ranks, after each of the artifact's scores is moved towards the reference's by up to
  RESOLUTION, or TIED of the spread of real scores if they are few: of 16 items one exchange of equals costs as much as
  a limit. So a smaller difference does not change the order; plain ranks weigh 0.0003 against 0.0004 like 0.3 against
  0.4. A map that is constant within the resolution counts 1 if both sides are, 0 if one is. "spearman raw" is
  plain.
- cosine: 1 - s (1 - plain cosine). s is 1 if the larger map's root mean square is at least the floor, else the square
  of their quotient: if nothing is relevant, the direction is rounding. The floor is MASS_FLOOR, for other outputs
  QUIET of their real outputs' spread, for classes UNDECIDED and for embeddings RESOLVED of it. Two zero maps count 1,
  and so do a few numbers.
- task metric of the artifact: computed after ties at K, within RESOLUTION, are undone (`ties_undone`).
- nrmse: root mean square difference over the standard deviation of the reference's map (at least SPREAD_FLOOR); "nrmse
  of spread": over half the spread of real scores if that is larger. Of a few scores both are over the whole spread if
  that is larger, and they have no "spearman".
- count excess: the smallest score tolerance t that explains every count c, that is, for which
  floor(low + span clip(r - t) + 0.5) <= c <= floor(low + span clip(r + t) + 0.5), r being the reference's score.
- swap gap: the largest gap between the reference's scores of a displaced place and of the one chosen instead, paired
  best with best (no other pairing has a smaller largest gap); order gap: the most that r rises along the ranking.
- own count excess, own gap: the same against the artifact's own scores, as a test of self-consistency.
- agreement: share of the K places that are right; a swap within the score tolerance counts as right.
- presence: share of rows in which only one side has a score of at least the output's threshold, if the reference's
  largest score is further from it than RESOLUTION.
- clear presence: the same, if it is also further from it than scores of a row of few that have no order.
- lost mass: share of the best possible sum of K reference scores that the chosen places lack.
- relative: max abs over the reference's peak, or over the spread of real outputs if that is larger: for a picture
  without the queried object the output is rounding only. Features count only at places that both sides chose.
- deviation, error, gain, offset, correlation: `deviation.py`; measures of roles: `roles.py`, `detections.py`.
Score units: if scores spread less than those in 0 to 1 (a softmax over many places), all floors shrink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgekit.artifact.fact import Code, Fact, fact
from edgekit.artifact.metric import metric_info
from edgekit.errors import ModelError
from edgekit.judge.deviation import (
    ACROSS_ROWS,
    ALL_ROWS,
    FAR,
    LEAST,
    PLACE,
    USUAL,
    Spreads,
    Sums,
    as_rows,
    channel_deviations,
    channel_sums,
    distances,
    error_across_rows,
    largest_scale,
    peak_of,
    place_errors,
    row_deviations,
)
from edgekit.judge.limits import CLASSES, Kind, Size
from edgekit.judge.roles import decisions, role_measures
from edgekit.model.spec import Array, Metric, Output

# Score units: half a step of 1 / 336, the finest that a consumer of scores tells apart. Closer scores have no order.
RESOLUTION = 0.0015
# Score units: the least standard deviation of a map, so that a flat map has a scale too.
SPREAD_FLOOR = 0.04
# Share of the longest row of features. The direction of a shorter one is mostly rounding.
ROW_FLOOR = 0.1
# Decibels: stand-in for "identical", and its negative for "all error", so that no report holds an infinity.
SNR_CAP_DB = 200.0

# Least rows of a condition whose channels are measured apart from those of other conditions.
FEW_IN_CHANNELS = 8
# Shares of the scores' spread: the most that RESOLUTION and SPREAD_FLOOR may be.
RESOLVED, FLOORED = 0.01, 0.5
# Of the spread of real logits, as INT8's limit of the error: below it, an error that is allowed turns the few logits of
# a row.
UNDECIDED = 0.3
# Of the spread of other real outputs: a row below it, as of a picture without objects, is mostly the steps of INT8.
QUIET = 0.1
# Fewer scores in a row are no map, and fewer numbers have no direction.
FEW_SCORES = 8
# Share of the scores' spread within which scores of a row of FEW_RANKS or fewer have no order: half of INT8's limit on
# errors.
TIED, FEW_RANKS = 0.15, 64
# Score units: the least divisor. If the best K have a smaller mean, there is hardly any relevance to lose.
MASS_FLOOR = 0.01
# Share of the scores' spread: the most that MASS_FLOOR may be.
MASSED = 0.1
# Derived roles are compared after their bases, in this order.
_DERIVED = ("labels", "counts", "ranking", "features", "count")
# Reference, artifact.
_Sides = tuple[Array, Array]
# Metric, values [n] or [channels], worst places.
_Rows = Iterator[tuple[str, Array, Array]]


@dataclass(frozen=True, eq=False)
class RowValues:
    """One metric of one output.

    Attributes:
        output: The output.
        role: Its role.
        of: The scores output itself, or the one that it is derived from; empty for tensors.
        metric: The metric's name.
        values: One value per row, float64 [n].
        places: The worst position of each row, int64 [n], row-major; -1 if that has no meaning.
        names: Names of the values if they are not rows but channels.
        peak: The reference's largest magnitude over all rows (1 if that is 0), or the spread of real outputs if that is
            larger.
        answers: The number of decisions of which each value is a share, int64 [n]; None for other metrics.
    """

    output: str
    role: str
    of: str
    metric: str
    values: Array
    places: Array
    peak: float
    names: tuple[str, ...] = ()
    answers: Array | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """One batch of n rows: names, measures, and faults that prevent a comparison.

    Attributes:
        task: The task metric [n] of the reference and of the artifact.
        sums: Sums of each channel, by floating output and condition of at least FEW_IN_CHANNELS rows ("": all); they
            add up over batches.
        kind: Kind of the inputs where the batch's name does not say it: real ones at another size, whole or cut.
        size: Size of real inputs in a batch of a shape.
    """

    names: tuple[str, ...]
    measures: tuple[RowValues, ...] = ()
    faults: tuple[Fact, ...] = ()
    task: _Sides | None = None
    sums: Mapping[tuple[str, str], Sums] = field(default_factory=dict)
    kind: Kind | None = None
    size: Size = ""

    def get(self, output: str, metric: str) -> Array | None:
        """Return the values [n] of one metric of one output; None if it was not measured."""
        return next((m.values for m in self.measures if (m.output, m.metric) == (output, metric)), None)

    @property
    def worst(self) -> tuple[str, int, float] | None:
        """The largest difference of any score: row, place, value; None if no scores were compared."""
        errors = [m for m in self.measures if m.role == "scores" and m.metric == "max abs"]
        tops = [(float(m.values[i]), self.names[i], int(m.places[i])) for m in errors for i in [m.values.argmax()]]
        value, row, place = max(tops, default=(0.0, "", -1))
        return (row, place, value) if tops else None


def compare(
    outputs: Sequence[Output],
    reference: Mapping[str, Array],
    candidate: Mapping[str, Array],
    names: Sequence[str],
    *,
    score_tolerance: float = 0.0,
    scales: Spreads | None = None,
    metric: Metric | None = None,
    truth: Array | None = None,
) -> Comparison:
    """Compare the outputs, arrays [n, ...] by name, of n named rows.

    The artifact's arrays have the declared dtypes; the reference's may be wider. Only "agreement" and "order faults"
    depend on `score_tolerance`. `scales` are those of real inputs (`deviation.spreads`); a batch's own may be larger.
    The metric's `truth` is [n, ...].

    Raises:
        ModelError: If the metric does not return one number per row.
    """
    if not names:
        return failed_comparison((), fact(Code.NOTHING_COMPARED))
    values: dict[str, list[RowValues]] = {}
    sums: dict[tuple[str, str], Sums] = {}
    conditions = rows_by_condition(names)
    faults: list[Fact] = []
    # Resolution of the scores behind each ranking.
    steps: dict[str, float] = {}
    answers = (reference, candidate)
    for output in sorted(outputs, key=lambda o: _DERIVED.index(o.role) if o.role in _DERIVED else -1):
        base = next((o for o in outputs if o.name == output.of), None) if output.role in BASES else None
        if base is not None and base.name not in values:
            # The fault of its base is already recorded.
            continue
        wrong = faults_of(output, base, answers, names)
        if not wrong and reference[output.name].size:
            scored = base if base is not None and output.role == "ranking" else output
            scale = largest_scale(scored, reference[scored.name], scales or {})
            scale = scale if scales or scored.role != "scores" else np.full(1, np.inf)
            steps[output.name] = min(RESOLUTION, RESOLVED * float(scale.max()))
            real = float(scale.max()) if output.name in (scales or {}) else 0.0
            values[output.name] = list(_measures(output, base, answers, score_tolerance, scale, real))
            values[output.name] += _scaled_values(output, outputs, answers, scale, scales or {}, conditions, sums)
        faults += wrong
    task = None
    if metric is not None and truth is not None and not faults:
        untied = {**candidate, **ties_undone(outputs, reference, candidate, steps)}
        task = (np.asarray(metric(reference, truth), np.float64), np.asarray(metric(untied, truth), np.float64))
        if any(side.shape != (len(names),) for side in task):
            raise ModelError(f"the task metric returned the shape '{task[0].shape}'. Return one number per row")
        faults += [] if np.isfinite(task).all() else [fact(Code.TASK_METRIC_NOT_FINITE)]
    measures = tuple(m for o in outputs for m in values.get(o.name, ()))
    return Comparison(tuple(names), measures, tuple(faults), None if faults else task, sums)


def failed_comparison(names: Sequence[str], fault: Fact) -> Comparison:
    """Return the comparison of a run without outputs: one fault."""
    return Comparison(tuple(names), faults=(fault,))


def _measures(
    output: Output, base: Output | None, answers: Answers, tolerance: float, scale: Array, real: float
) -> Iterator[RowValues]:
    r, c = (arrays[output.name].astype(np.float64) for arrays in answers)
    under = (answers[0][base.name], answers[1][base.name]) if base else None
    peak = max(peak_of(r), real)
    of = output.of if output.role in ("counts", "ranking") else base.of if base else ""
    if output.role == "scores":
        rows, of = _scores(r, c, float(scale.max()), output.threshold), output.name
    elif under and output.role == "counts":
        rows = _counts(r, c, under, output)
    elif under and output.role == "ranking":
        rows = ranking_measures(r.astype(np.int64), c.astype(np.int64), under, tolerance, float(scale.max()))
    elif answers[0][output.name].dtype.kind != "f" or output.role == "detections":
        return
    else:
        floor = real * (UNDECIDED if output.role in CLASSES else RESOLVED if output.role == "embedding" else QUIET)
        # The deviations in units of the spread tell more.
        few = output.role == "tensor" and r[0].size < FEW_SCORES and real > 0
        rows = _values(r, c, under, peak, np.inf if few else floor)
    for metric, values, places in rows:
        yield RowValues(output.name, output.role, of, metric, values.astype(np.float64), places.astype(np.int64), peak)


def _scaled_values(
    output: Output,
    outputs: Sequence[Output],
    answers: Answers,
    scale: Array,
    scales: Spreads,
    conditions: Mapping[str, Sequence[int]],
    sums: dict[tuple[str, str], Sums],
) -> Iterator[RowValues]:
    of = output.name if output.role == "scores" else ""
    rows = answers[0][output.name]
    has_positions = rows.size > 0 and as_rows(output, rows).shape[1] > 1
    far = distances(output, rows, scales) if rows.dtype.kind == "f" else None
    for metric, values, places in scaled_measures(output, outputs, answers, scale, scales, conditions, sums):
        labels: tuple[str, ...] = (ALL_ROWS,) if metric in (ACROSS_ROWS, PLACE) else ()
        if metric.startswith("channel "):
            classes = output.classes if len(output.classes) == len(values) else ()
            labels = tuple(f"class '{name}'" for name in classes) or tuple(f"channel {n}" for n in range(len(values)))
        weights = decisions(output, metric, rows) if metric_info(metric).mean else None
        # A row of one position, such as logits, has no worst one.
        places = places.astype(np.int64) if has_positions else np.full(len(places), -1)
        if metric != "error":
            yield RowValues(output.name, output.role, of, metric, values, places, 1.0, labels, weights)
            continue
        # An answer far from real ones is off in parts of its distance: a dear car by so much of its price. INT8
        # saturates further away, where an error of that size is no alarm.
        for name, distance in ((metric, USUAL), ("gross error", FAR)):
            parts = values if far is None else values / np.maximum(1.0, far / distance)
            yield RowValues(output.name, output.role, of, name, parts, places, 1.0, labels, weights)
        if far is not None:
            # The reference answers these as it answers real inputs, so no kind of rounding is an excuse.
            near = np.where(far <= USUAL, values, 0.0)
            yield RowValues(output.name, output.role, of, "usual error", near, places, 1.0, labels, weights)


def _scores(r: Array, c: Array, scale: float, threshold: float | None) -> _Rows:
    resolution, floor = min(RESOLUTION, RESOLVED * scale), min(SPREAD_FLOOR, FLOORED * scale)
    place = (off := np.abs(r - c)).argmax(1)
    yield "max abs", off.max(1), place
    yield "mean abs", off.mean(1), place
    error, few = (off * off).sum(1), r.shape[1] < FEW_SCORES
    rms, wide = np.sqrt(error / r.shape[1]), FLOORED * scale if np.isfinite(scale) else floor
    # One score, or a few, have no spread of their own: they are measured by that of all rows.
    yield "nrmse", rms / np.maximum(r.std(1), 2 * wide if few else floor), place
    of_spread = rms / np.maximum(r.std(1), 2 * wide if few else wide)
    yield "nrmse of spread", of_spread, place
    if not few:
        # Of a few bounded scores sound INT8 may answer noise by any.
        yield "nrmse in noise", of_spread, place
    directed = map_cosine(r, c, min(MASS_FLOOR, MASSED * scale))
    yield "cosine", np.where(np.maximum(np.abs(r), np.abs(c)).max(1) <= resolution, 1.0, directed), place
    yield "cosine whole", np.full(len(r), cosine(r.ravel(), c.ravel())), place
    with np.errstate(divide="ignore", over="ignore"):
        ratio = np.divide((r * r).sum(1), error, out=np.full(len(r), np.inf), where=error > 0)
        yield "snr", np.clip(10 * np.log10(ratio), -SNR_CAP_DB, SNR_CAP_DB), place
    tied = max(resolution, TIED * scale) if np.isfinite(scale) and r.shape[1] <= FEW_RANKS else resolution
    # Of five scores, one exchange of neighbours costs 0.1: those have no ranks but their errors.
    for metric, ignored in () if few else (("spearman", tied), ("spearman raw", 0.0)):
        yield metric, np.array([_spearman(a, b, ignored) for a, b in zip(r, c, strict=True)]), place
    if threshold is not None:
        tops = r.max(1)
        flipped = (tops >= threshold) != (c.max(1) >= threshold)
        for metric, ignored in (("presence", resolution), ("clear presence", tied)):
            yield metric, flipped & (np.abs(tops - threshold) > ignored), r.argmax(1)


def _spearman(r: Array, c: Array, resolution: float) -> float:
    if np.ptp(c) == 0 and np.ptp(r) > 2 * resolution:
        return 0.0
    near = np.clip(r, c - resolution, c + resolution)
    a, b = (_ranks(values) - (len(values) + 1) / 2 for values in (r, near))
    return float(cosine(a, b))


def _ranks(values: Array) -> Array:
    _, inverse, repeats = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(repeats) - (repeats - 1) / 2)[inverse])


def _counts(r: Array, c: Array, scores: _Sides, output: Output) -> _Rows:
    excess, own = np.where(r == c, 0.0, _excess(c, scores[0], output)), _excess(c, scores[1], output)
    off, total = np.abs(r - c), np.maximum(np.abs(r.sum(1)), 1.0)
    yield "count excess", excess.max(1), excess.argmax(1)
    yield "own count excess", own.max(1), own.argmax(1)
    yield "count l1", off.mean(1), off.argmax(1)
    yield "equal", (off == 0).mean(1), off.argmax(1)
    yield "count total", np.abs((c - r).sum(1)) / total, off.argmax(1)


def _excess(counts: Array, scores: Array, output: Output) -> Array:
    # A count is right for scores in [(count - 0.5 - low) / span, (count + 0.5 - low) / span), without end at the clip.
    span = (output.high - output.low) or 1.0
    short = np.where(counts > output.low, (counts - 0.5 - output.low) / span - scores, 0.0)
    over = np.where(counts < output.high, scores - (counts + 0.5 - output.low) / span, 0.0)
    return np.asarray(np.maximum(np.maximum(short, over), 0.0))


def _values(r: Array, c: Array, sides: _Sides | None, peak: float, floor: float) -> _Rows:
    table = np.zeros((len(r), 5))
    # The cosine of single numbers is only their sign, so it is taken over all rows.
    whole = cosine(r.ravel(), c.ravel()) if r[0].size == 1 else None
    for i, (a, b) in enumerate(zip(r, c, strict=True)):
        places, a, b = np.array([-1]), a.reshape(1, -1), b.reshape(1, -1)
        if sides is not None:
            places, left_rows, right = np.intersect1d(sides[0][i], sides[1][i], return_indices=True)
            a, b = r[i][left_rows], c[i][right]
        off, length = np.abs(a - b).max(-1), np.sqrt((a * a).sum(-1))
        cosines = cosine(a, b)[length >= ROW_FLOOR * length.max(initial=0.0)]
        if len(places):
            directed = map_cosine(a.reshape(1, -1), b.reshape(1, -1), floor)[0] if whole is None else whole
            table[i] = off.max(), directed, cosines.min(), len(a), places[off.argmax()]
        else:
            table[i] = peak, 0.0, 0.0, 0, -1
    place = table[:, 4]
    yield "max abs", table[:, 0], place
    yield "relative", table[:, 0] / peak, place
    yield "cosine", table[:, 1], place
    yield "row cosine", table[:, 2], place
    if sides is not None:
        yield "matched", table[:, 3] / r.shape[1], place


def scaled_measures(
    output: Output,
    outputs: Sequence[Output],
    answers: Answers,
    scale: Array,
    scales: Spreads,
    conditions: Mapping[str, Sequence[int]],
    sums: dict[tuple[str, str], Sums],
) -> _Rows:
    """Yield the deviations of a floating output, and the measures of its role.

    Args:
        output: The output.
        outputs: All outputs of the model.
        answers: Outputs of both sides, without faults.
        scale: The spread of each channel.
        scales: Spreads of real inputs.
        conditions: The rows of each condition.
        sums: Receives the sums of the output's channels, of all rows and of the rows of each condition.
    """
    if output.role in ("counts", "ranking"):
        return
    r, c = (arrays[output.name] for arrays in answers)
    if r.dtype.kind == "f" and output.role != "detections":
        yield from _deviations(output, answers, scale, conditions, sums)
    if output.role not in ("scores", "features"):
        base = next((o for o in outputs if o.name == output.of and o.name in answers[0]), None)
        values = (r.astype(np.float64), c.astype(np.float64))
        yield from role_measures(output, *values, _classes(base, answers), scales)


def _classes(base: Output | None, answers: Answers) -> tuple[Output, Array, Array] | None:
    """Return the classes behind labels, of both sides; the reference's twice if the artifact's are unusable."""
    if base is None:
        return None
    r, c = answers[0][base.name], answers[1].get(base.name)
    return base, r.astype(np.float64), (r if c is None or c.shape != r.shape else c).astype(np.float64)


def condition_of(name: str) -> str:
    """Return the condition of a row, such as "grey bars": what follows the last comma of its name, or nothing."""
    return name.rpartition(", ")[2] if ", " in name else ""


def rows_by_condition(names: Sequence[str]) -> dict[str, list[int]]:
    """Return the rows of each condition."""
    rows: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        rows.setdefault(condition_of(name), []).append(number)
    return rows


def _deviations(
    output: Output,
    answers: Answers,
    scale: Array,
    conditions: Mapping[str, Sequence[int]],
    sums: dict[tuple[str, str], Sums],
) -> _Rows:
    z, y = (as_rows(output, arrays[output.name]) / scale for arrays in answers)
    is_shared = np.ones(z.shape[:2], bool)
    if output.role == "features":
        places, is_shared = match_indices(*(arrays[output.of].astype(np.int64) for arrays in answers))
        y = reorder_rows(y, places)
    if output.role == "scores":
        yield next(row_deviations(z, y, is_shared))
        return
    yield from row_deviations(z, y, is_shared)
    sums[output.name, ""] = channel_sums(z, y, is_shared)
    for condition, rows in conditions.items():
        if condition and len(rows) >= FEW_IN_CHANNELS and len(z) == sum(map(len, conditions.values())):
            sums[output.name, condition] = channel_sums(z[rows], y[rows], is_shared[rows])
    yield from channel_deviations(sums[output.name, ""])
    yield from error_across_rows(z, y, is_shared)
    if is_shared.all():
        yield from place_errors(z, y, output.role in ("logits", "probabilities"))


def ranking_measures(r: Array, c: Array, scores: tuple[Array, Array], tolerance: float, scale: float) -> _Rows:
    """Yield the measures of a ranking, one value per row, as the module docstring defines them.

    Args:
        r: The reference's ranking, int64 [n, K].
        c: The artifact's ranking.
        scores: Scores of both sides, [n, N].
        tolerance: A swap of scores no further apart than this counts as right in "agreement" and "order faults".
        scale: Spread of real scores.
    """
    floor = min(MASS_FLOOR, MASSED * scale)
    rankings = [_rank_measures(*row, tolerance, floor) for row in zip(r, c, *scores, strict=True)]
    for metric in rankings[0]:
        values, places = zip(*(row[metric] for row in rankings), strict=True)
        yield metric, np.array(values), np.array(places)


def _rank_measures(
    right: Array, array: Array, s: Array, own: Array, tolerance: float, floor: float
) -> dict[str, tuple[float, int]]:
    s, own, k = s.astype(np.float64), own.astype(np.float64), len(right)
    displaced, instead = np.setdiff1d(right, array), np.setdiff1d(array, right)
    instead = instead[np.argsort(-s[instead])]
    gaps = np.append(np.maximum(np.sort(s[displaced])[::-1] - s[instead], 0.0), 0.0)
    rises, own_rises = (v[array] - np.minimum.accumulate(v[array]) for v in (s, own))
    own_gap = np.delete(own, array).max(initial=-np.inf) - own[array].min()
    # A share needs masses that are not negative.
    mass = s - min(0.0, s.min())
    best = np.sort(mass)[-k:].sum()
    swapped, risen = int(np.append(instead, -1)[gaps.argmax()]), int(array[rises.argmax()])
    return {
        "jaccard": ((k - len(instead)) / (k + len(instead)), swapped),
        "agreement": (1 - float((gaps > tolerance).sum()) / k, swapped),
        "order faults": (float((rises > tolerance).sum()), risen),
        "swap gap": (float(gaps.max()), swapped),
        "order gap": (float(rises.max()), risen),
        "own gap": (max(0.0, float(own_gap), float(own_rises.max())), -1),
        "lost mass": (
            max(0.0, float(best - np.sort(mass[array]).sum())) / max(float(best), max(k * floor, LEAST)),
            swapped,
        ),
    }


def ties_undone(
    outputs: Sequence[Output],
    reference: Mapping[str, Array],
    candidate: Mapping[str, Array],
    resolutions: Mapping[str, float],
) -> dict[str, Array]:
    """Return rankings in which places that were swapped by a tie are swapped back.

    If two places have equal scores within the resolution, the reference's own noise can swap them, so a swap does not
    count against the artifact.

    Args:
        outputs: Outputs of the model.
        reference: Its arrays by name, [n, ...].
        candidate: The artifact's arrays.
        resolutions: The largest difference that counts as equal, in score units, by ranking.
    """
    undone: dict[str, Array] = {}
    for output in (o for o in outputs if o.role == "ranking" and o.of in reference):
        scores, ranking = reference[output.of], np.array(candidate[output.name])
        for row, right in enumerate(reference[output.name]):
            displaced, instead = np.setdiff1d(right, ranking[row]), np.setdiff1d(ranking[row], right)
            lost, replacement = (some[np.argsort(-scores[row][some])] for some in (displaced, instead))
            for place, other in zip(lost, replacement, strict=True):
                if scores[row][place] - scores[row][other] <= resolutions[output.name]:
                    ranking[row][ranking[row] == other] = place
        undone[output.name] = ranking
    return undone


def map_cosine(r: Array, c: Array, floor: float) -> Array:
    """Return the cosine of maps [n, places]; below the floor (0: none) the smaller their size, the nearer to 1."""
    share = np.minimum(np.maximum((r * r).mean(1), (c * c).mean(1)) / floor**2, 1.0) if floor else 1.0
    return np.asarray(1.0 - share * (1.0 - cosine(r, c)))


def cosine(a: Array, b: Array) -> Array:
    """Return the cosine along the last axis; 1 if both are zero, 0 if one is."""
    # Divided by the largest magnitude first, since squares may leave float64's range.
    a, b = (v / np.maximum(np.abs(v).max(-1, keepdims=True), np.finfo(np.float64).tiny) for v in (a, b))
    lengths = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return np.asarray(np.where(a.any(-1) | b.any(-1), (a * b).sum(-1) / np.where(lengths > 0, lengths, 1.0), 1.0))


def match_indices(array: Array, indices: Array) -> tuple[Array, Array]:
    """Return the places [n, K] of one ranking's indices in another, and whether each is in it at all."""
    places = (array[:, :, None] == indices[:, None, :]).argmax(2)
    return places, np.take_along_axis(indices, places, 1) == array


def reorder_rows(rows: Array, places: Array) -> Array:
    """Return rows [n, K, ...] in another order, places [n, K]."""
    return np.take_along_axis(rows, places.reshape(*places.shape, *[1] * (rows.ndim - 2)), 1)


# Role -> role of the output that it is derived from.
BASES = {"counts": "scores", "ranking": "scores", "features": "ranking", "count": "detections"}
Answers = tuple[Mapping[str, Array], Mapping[str, Array]]
"""Arrays by output name, of the reference and of the artifact."""
AXES_OF_ROLES = {"scores": 2, "counts": 2, "ranking": 2, "features": 3, "detections": 3, "count": 1}


def faults_of(output: Output, base: Output | None, answers: Answers, names: Sequence[str]) -> list[Fact]:
    """Return the faults that make an output of n named rows incomparable, on either side."""

    def fault(code: Code, **details: str | int | float) -> Fact:
        return Fact(code=code, output=output.name, details=details)

    role = BASES.get(output.role)
    if role and (base is None or base.role != role):
        return [fault(Code.BASE_MISSING, base=output.of, role=role)]
    sides = tuple(zip(("reference", "artifact"), answers, strict=True))
    missing = [side for side, arrays in sides if output.name not in arrays]
    if missing:
        return [fault(Code.OUTPUT_MISSING, side=side) for side in missing]
    expected, candidate = (arrays[output.name] for arrays in answers)
    # Where all outputs are empty there is nothing to compare. One of them may be the placeholder of an unused cache.
    nothing = not candidate.size and all(not array.size for array in answers[0].values())
    shape = (len(names), *expected.shape[1:])
    width = answers[0][base.name].shape[1] if base else 0
    # One count for each score, one row of features for each place of the ranking.
    if output.role in ("counts", "features"):
        shape = (len(names), width, *shape[2:])
    faults = []
    for side, arrays in sides:
        array, declared = arrays[output.name], np.dtype(output.dtype)
        if array.dtype != declared if side == "artifact" else array.dtype.kind != declared.kind:
            faults.append(fault(Code.WRONG_DTYPE, side=side, dtype=str(array.dtype), expected=str(declared)))
        elif array.ndim != (axes := AXES_OF_ROLES.get(output.role, array.ndim)):
            text = str(list(array.shape))
            faults.append(fault(Code.WRONG_AXES, side=side, shape=text, role=output.role, expected=axes))
        elif array.shape != shape or nothing:
            shapes = {"shape": str(list(array.shape)), "expected": str(list(shape))}
            faults.append(fault(Code.WRONG_SHAPE, side=side, **shapes))
        else:
            faults += _impossible(output, array, names, width, side)
    return faults


def _impossible(output: Output, array: Array, names: Sequence[str], width: int, side: str) -> Iterator[Fact]:
    code, bad = Code.NOT_FINITE, ~np.isfinite(array)
    if output.role == "counts":
        good = (array >= output.low) & (array <= output.high) & (array == np.floor(array))
        code, bad = Code.BAD_COUNTS, ~good
    elif output.role == "ranking":
        array = np.sort(array, axis=1)
        good = (array >= 0) & (array < width) & (np.diff(array, axis=1, prepend=-1) >= 1)
        code, bad = Code.BAD_RANKING, ~good
    if not bad.any():
        return
    row, *place = np.argwhere(bad)[0].tolist()
    index = int(place[0]) if output.role in ("scores", "counts") else -1
    details: dict[str, str | int | float] = {"side": side, "wrong": int(bad.sum()), "all": bad.size}
    details |= {"low": output.low, "high": output.high} if code is Code.BAD_COUNTS else {}
    details |= {"places": width} if code is Code.BAD_RANKING else {}
    yield Fact(code=code, output=output.name, row=names[row], index=index, details=details)
