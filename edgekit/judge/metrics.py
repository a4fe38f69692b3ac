"""Arrays in, numbers out: how far an artifact's outputs are from the reference's, image by image.

What cannot be compared (missing, wrong shape or dtype, NaN or Inf on any side, an index twice or out of range, a count
out of range) is a fault and never averaged away; that output and what is derived from it get no measures.
A measure is one float64 an image, computed in float64, and named as reports print it. Those that need a word:
- spearman: correlation of average ranks, after each of the artifact's scores came nearer to the reference's by up to
  RESOLUTION: a smaller difference is no change of order (plain ranks weigh 0.0003 against 0.0004 like 0.3 against 0.4).
  A map that is constant, within the resolution, on both sides counts 1, on one side only 0. "spearman raw" is plain.
- cosine: 1 - s (1 - plain cosine), where s is 1 if the larger of the two maps has a root mean square of MASS_FLOOR, and
  its square over that of the floor below: where nothing is relevant the direction is rounding. Two zero maps count 1.
- task metric of the artifact: of its answers with ties at K, within RESOLUTION, undone (`ties.py`).
- unexplained: root mean square difference over the standard deviation of the reference's map (at least SPREAD_FLOOR).
- count excess: the smallest score tolerance t that explains every count c, that is, for which
  floor(low + span clip(r - t) + 0.5) <= c <= floor(low + span clip(r + t) + 0.5), r being the reference's score.
- swap gap: the largest gap between the reference's scores of a displaced patch and of the one chosen instead, paired
  best with best (no other pairing has a smaller largest gap); order gap: the most that r rises along the ranking.
- own count excess, own gap: the same against the artifact's own scores: do its outputs belong together?
- agreement: share of the K patches that are right, where a swap within the score tolerance counts as right.
- lost mass: share of the best possible sum of K reference scores that the chosen patches lack.
- relative: max abs over the reference's peak. Features are compared only where both sides chose the patch.
- deviation, error, gain, offset, correlation: `deviation.py`; what a role is for: `roles.py`.
Score units: of scores that spread less than those in 0 to 1 do (a softmax over many places), all floors shrink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.artifact.fact import Code, Fact, fact
from edgekit.artifact.metric import metric_info
from edgekit.errors import ModelError
from edgekit.judge.cosine import cosine, map_cosine
from edgekit.judge.deviation import peak_of
from edgekit.judge.faults import BASES, Answers, faults_of
from edgekit.judge.ranking import MASS_FLOOR, MASSED, ranking_measures
from edgekit.judge.roles import decisions
from edgekit.judge.scaled import scaled_measures
from edgekit.judge.spread import Spreads, largest_scale
from edgekit.judge.ties import ties_undone
from edgekit.model.spec import Array, Metric, Output

RESOLUTION = 0.0015
"""Score units: half of one step of ARR-COC's budgets, 1 / 336. A smaller difference of two scores is no order."""
SPREAD_FLOOR = 0.04
"""Score units. Of a map with a smaller standard deviation, this is taken: a flat map has a scale too."""
ROW_FLOOR = 0.1
"""Share of the longest row of features. The direction of a shorter one is mostly rounding and is not asked for."""
SNR_CAP_DB = 200.0
"""Decibels. Stands for "identical", and its negative for "all error", so that no report has to hold an infinity."""

RESOLVED, FLOORED = 0.01, 0.5
"""Shares of the scores' spread: the most that RESOLUTION and SPREAD_FLOOR may be."""
_DERIVED = ("labels", "counts", "ranking", "features")  # after what they are derived from
_Sides = tuple[Array, Array]  # reference, artifact
_Rows = Iterator[tuple[str, Array, Array]]  # metric, values [n], worst patches [n]


@dataclass(frozen=True, eq=False)
class ImageValues:
    """One metric of one output.

    Attributes:
        output: The output.
        role: Its role.
        of: The scores that it is, or is derived from; empty for tensors.
        metric: The metric's name.
        values: One value an image, float64 [n].
        patches: Where each image is worst, int64 [n], row-major; -1 where that means nothing.
        names: What the values are of, where that is not the images: channels.
        peak: The reference's largest magnitude, over all images; 1 where that is 0.
        answers: Of how many answers each value is a share, int64 [n]; None where it is no share.
    """

    output: str
    role: str
    of: str
    metric: str
    values: Array
    patches: Array
    peak: float
    names: tuple[str, ...] = ()
    answers: Array | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """One batch of n images: their names, numbers, and what could not be compared.

    Attributes:
        task: The task metric [n] of the reference and of the artifact.
        real: Whether these are real inputs at another size.
    """

    names: tuple[str, ...]
    measures: tuple[ImageValues, ...] = ()
    faults: tuple[Fact, ...] = ()
    task: _Sides | None = None
    real: bool = False

    def get(self, output: str, metric: str) -> Array | None:
        """The values [n] of one metric of one output; None where it was not measured."""
        return next((m.values for m in self.measures if (m.output, m.metric) == (output, metric)), None)

    @property
    def worst(self) -> tuple[str, int, float] | None:
        """The largest difference of any score: image, patch, value; None where no scores could be compared."""
        found = [m for m in self.measures if m.role == "scores" and m.metric == "max abs"]
        tops = [(float(m.values[i]), self.names[i], int(m.patches[i])) for m in found for i in [m.values.argmax()]]
        value, image, patch = max(tops, default=(0.0, "", -1))
        return (image, patch, value) if tops else None


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
    """Compare the outputs, arrays [n, ...] by name, of n named images.

    The artifact's arrays have the declared dtypes; the reference's may be wider. Only "agreement" and "order faults"
    depend on `score_tolerance`. `scales` are those of real inputs (`spread.spreads`), which a batch's own may exceed.
    The metric's `truth` is [n, ...].

    Raises:
        ModelError: If the metric does not give one number an image.
    """
    if not names:
        return failed((), fact(Code.NOTHING_COMPARED))
    found: dict[str, list[ImageValues]] = {}
    faults: list[Fact] = []
    steps: dict[str, float] = {}  # of rankings: the resolution of the scores that they are of
    answers = (reference, candidate)
    for output in sorted(outputs, key=lambda o: _DERIVED.index(o.role) if o.role in _DERIVED else -1):
        base = next((o for o in outputs if o.name == output.of), None) if output.role in BASES else None
        if base is not None and base.name not in found:
            continue  # a fault of what it is derived from is one already
        wrong = faults_of(output, base, answers, names)
        if not wrong:
            scored = base if base is not None and output.role == "ranking" else output
            scale = largest_scale(scored, reference[scored.name], scales or {})
            scale = scale if scales or scored.role != "scores" else np.full(1, np.inf)
            steps[output.name] = min(RESOLUTION, RESOLVED * float(scale.max()))
            found[output.name] = list(_measures(output, base, answers, score_tolerance, scale))
            found[output.name] += _scaled(output, outputs, answers, scale)
        faults += wrong
    task = None
    if metric is not None and truth is not None and not faults:
        untied = {**candidate, **ties_undone(outputs, reference, candidate, steps)}
        task = (np.asarray(metric(reference, truth), np.float64), np.asarray(metric(untied, truth), np.float64))
        if any(values.shape != (len(names),) for values in task):
            raise ModelError(f"the task metric gave the shape '{task[0].shape}', not one number an image")
        faults += [] if np.isfinite(task).all() else [fact(Code.TASK_METRIC_NOT_FINITE)]
    measures = tuple(m for o in outputs for m in found.get(o.name, ()))
    return Comparison(tuple(names), measures, tuple(faults), None if faults else task)


def failed(names: Sequence[str], fault: Fact) -> Comparison:
    """The comparison of a run that gave no answer: one fault."""
    return Comparison(tuple(names), faults=(fault,))


def _measures(
    output: Output, base: Output | None, answers: Answers, tolerance: float, scale: Array
) -> Iterator[ImageValues]:
    r, c = (arrays[output.name].astype(np.float64) for arrays in answers)
    under = (answers[0][base.name], answers[1][base.name]) if base else None
    peak = peak_of(r)
    of = output.of if output.role in ("counts", "ranking") else base.of if base else ""
    if output.role == "scores":
        rows, of = _scores(r, c, float(scale.max())), output.name
    elif under and output.role == "counts":
        rows = _counts(r, c, under, output)
    elif under and output.role == "ranking":
        rows = ranking_measures(r.astype(np.int64), c.astype(np.int64), under, tolerance, float(scale.max()))
    elif answers[0][output.name].dtype.kind != "f":
        return
    else:
        rows = _values(r, c, under, peak)
    for metric, values, patches in rows:
        yield ImageValues(
            output.name, output.role, of, metric, values.astype(np.float64), patches.astype(np.int64), peak
        )


def _scaled(output: Output, outputs: Sequence[Output], answers: Answers, scale: Array) -> Iterator[ImageValues]:
    of = output.name if output.role == "scores" else ""
    for metric, values, places in scaled_measures(output, outputs, answers, scale):
        named = tuple(f"channel {number}" for number in range(len(values))) if metric.startswith("channel ") else ()
        named = ("all rows",) if metric == "unmoved" else named
        weights = decisions(output, metric, answers[0][output.name]) if metric_info(metric).mean else None
        yield ImageValues(output.name, output.role, of, metric, values, places.astype(np.int64), 1.0, named, weights)


def _scores(r: Array, c: Array, scale: float) -> _Rows:
    resolution, floor = min(RESOLUTION, RESOLVED * scale), min(SPREAD_FLOOR, FLOORED * scale)
    patch = (off := np.abs(r - c)).argmax(1)
    yield "max abs", off.max(1), patch
    yield "mean abs", off.mean(1), patch
    error = (off * off).sum(1)
    rms, wide = np.sqrt(error / r.shape[1]), FLOORED * scale if np.isfinite(scale) else floor
    yield "unexplained", rms / np.maximum(r.std(1), floor), patch
    yield "astray", rms / np.maximum(r.std(1), wide), patch
    directed = map_cosine(r, c, min(MASS_FLOOR, MASSED * scale))
    yield "cosine", np.where(np.maximum(np.abs(r), np.abs(c)).max(1) <= resolution, 1.0, directed), patch
    yield "cosine whole", np.full(len(r), cosine(r.ravel(), c.ravel())), patch
    with np.errstate(divide="ignore", over="ignore"):
        ratio = np.divide((r * r).sum(1), error, out=np.full(len(r), np.inf), where=error > 0)
        yield "snr", np.clip(10 * np.log10(ratio), -SNR_CAP_DB, SNR_CAP_DB), patch
    for metric, ignored in (("spearman", resolution), ("spearman raw", 0.0)):
        yield metric, np.array([_spearman(a, b, ignored) for a, b in zip(r, c, strict=True)]), patch


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


def _values(r: Array, c: Array, chosen: _Sides | None, peak: float) -> _Rows:
    table = np.zeros((len(r), 5))
    whole = cosine(r.ravel(), c.ravel()) if r[0].size == 1 else None  # of one number it would be its sign alone
    for i, (a, b) in enumerate(zip(r, c, strict=True)):
        patches, a, b = np.array([-1]), a.reshape(1, -1), b.reshape(1, -1)
        if chosen is not None:
            patches, left, right = np.intersect1d(chosen[0][i], chosen[1][i], return_indices=True)
            a, b = r[i][left], c[i][right]
        off, length = np.abs(a - b).max(-1), np.sqrt((a * a).sum(-1))
        cosines = cosine(a, b)[length >= ROW_FLOOR * length.max(initial=0.0)]
        if len(patches):
            directed = cosine(a.ravel(), b.ravel()) if whole is None else whole
            table[i] = off.max(), directed, cosines.min(), len(a), patches[off.argmax()]
        else:
            table[i] = peak, 0.0, 0.0, 0, -1
    patch = table[:, 4]
    yield "max abs", table[:, 0], patch
    yield "relative", table[:, 0] / peak, patch
    yield "cosine", table[:, 1], patch
    yield "row cosine", table[:, 2], patch
    if chosen is not None:
        yield "matched", table[:, 3] / r.shape[1], patch
