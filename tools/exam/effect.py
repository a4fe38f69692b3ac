"""What a fault does to the task, on inputs that the judge has not seen, and how much of it the gate allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from edgekit.judge.limits import FP16, FP32, INT8, TASK_DROP, Tolerance
from edgekit.model.spec import Array, ModelSpec
from tools.exam.families import FAMILIES
from tools.exam.faults import When
from tools.exam.models import ROWS, WAVES
from tools.exam.pictures import TRUTH, pictures, queries, sequences

FRESH, SEED = 96, TRUTH + 2
"""Fresh inputs of each measurement, and their seed: neither the evaluation nor the calibration set has them."""
DRAWN = 20
"""Times FRESH inputs are drawn to find FRESH whose output has a certain value."""
INSIDE = 0.5
"""Confidence above which a box counts."""
Answers = list[dict[str, Array] | None]
"""One mapping of outputs a run; None where the graph could not answer."""


def _limit(tolerance: Tolerance, metric: str, role: str = "tensor") -> float:
    return tolerance.limit(metric, role) or 0.0


LIMITS: dict[str, dict[str, float]] = {
    # The gate's limit on the task metric; INT8's on the mass that the chosen patches lose.
    "lost mass": {
        "fp32": _limit(FP32, TASK_DROP, "task"),
        "fp16": _limit(FP16, TASK_DROP, "task"),
        "int8": _limit(INT8, "lost mass", "ranking"),
    },
    # 1 minus the smallest allowed Spearman correlation; fp32 and fp16 have none, so their own correlation.
    "rank order": {
        "fp32": 1 - _limit(FP32, "correlation"),
        "fp16": 1 - _limit(FP16, "correlation"),
        "int8": 1 - _limit(INT8, "spearman", "scores"),
    },
    # 1 minus the smallest allowed cosine of an output; fp32 has no cosine, so its centred correlation.
    "token cosine": {
        "fp32": 1 - _limit(FP32, "correlation"),
        "fp16": 1 - _limit(FP16, "cosine", "scores"),
        "int8": 1 - _limit(INT8, "cosine", "scores"),
    },
    # Flips; fp32 has no share of its own: it may not flip more often than fp16.
    "labels": {
        "fp32": _limit(FP16, "flips"),
        "fp16": _limit(FP16, "flips"),
        "int8": _limit(INT8, "lost accuracy", "logits"),
    },
    "confidence": {
        "fp32": _limit(FP16, "flips"),
        "fp16": _limit(FP16, "flips"),
        "int8": _limit(INT8, "flips", "boxes"),
    },
    "boxes": {"fp32": 1 - _limit(FP32, "iou"), "fp16": 1 - _limit(FP16, "iou"), "int8": 1 - _limit(INT8, "iou")},
    "masks": {
        "fp32": 1 - _limit(FP32, "mask iou"),
        "fp16": 1 - _limit(FP16, "mask iou"),
        "int8": 1 - _limit(INT8, "mask iou"),
    },
    # By the model's own probabilities; every other label counts in fp32 and fp16.
    "lost accuracy": {"fp32": np.inf, "fp16": np.inf, "int8": _limit(INT8, "lost accuracy", "logits")},
    "sure labels": {"fp32": _limit(FP16, "flips"), "fp16": _limit(FP16, "flips"), "int8": np.inf},
    # The root of the mean square error, in units of the spread over the fresh inputs.
    "signal": {"fp32": _limit(FP32, "error"), "fp16": _limit(FP16, "error"), "int8": _limit(INT8, "error")},
    "angle": {
        name: 1 - float(np.cos(np.radians(_limit(limit, "angle"))))
        for name, limit in (("fp32", FP32), ("fp16", FP16), ("int8", INT8))
    },
}
"""Measure -> precision -> the limit of `edgekit/judge/limits.py` on the output's role."""


CENTRED = {"angle", "signal"}
"""Measures that need the mean and the spread of an output."""
ANSWERS = {"labels": 1, "sure labels": 1, "confidence": 16}
"""Shares of wrong answers -> answers in a row."""


@dataclass(frozen=True)
class Effect:
    """The measure of the task that a fault moves most, in units of its limit.

    Attributes:
        measure: One of LIMITS.
        value: Mean over the fresh inputs, 0 to 1 (1 minus a cosine or correlation: to 2).
        limit: What the gate allows.
        chance: By how much the share may be over the limit in the gate's own evaluation set by chance: two standard
            deviations of a share of so many answers; 0 of what is no share.
    """

    measure: str
    value: float
    limit: float
    chance: float = 0.0

    @property
    def times(self) -> float:
        """Value in units of the limit."""
        return self.value / self.limit


def fresh(spec: ModelSpec, when: When, count: int = FRESH) -> list[dict[str, Array]]:
    """Inputs of whole runs, `count` rows in all, that meet the condition but for a value of the output."""
    count = -(-count // when.rows) * when.rows
    sides = {name: when.sizes.get(name, axis.default) for name, axis in spec.axes.items()}
    family = FAMILIES.get(spec.name)
    made = family.draw(count, SEED, sides.get("length", 0)) if family is not None else {}
    for given in spec.inputs if family is None else ():
        if given.kind == "image":
            height, width = (sides.get(str(s), s) for s in given.shape[2:])
            waves = WAVES if spec.name == "arrcoc" else 0.0
            made[given.name] = pictures(count, SEED, int(height), int(width), waves)
        else:
            made[given.name] = queries(count, SEED) if given.kind == "query" else sequences(count, SEED)
    if when.brightness is not None:
        first = spec.inputs[0]
        made[first.name] = _of_brightness(made[first.name], first.low, first.high, when.brightness)
    return [{n: a[row : row + when.rows] for n, a in made.items()} for row in range(0, count, when.rows)]


def _of_brightness(x: Array, low: float, high: float, wanted: tuple[float, float]) -> Array:
    """Every row moved towards its darkest or brightest, so that its mean is in the middle of a range."""
    share = (x.astype(np.float64) - low) / (high - low)
    mean = share.mean(tuple(range(1, x.ndim)), keepdims=True)
    middle = sum(wanted) / 2
    moved = np.where(mean > middle, share * middle / mean, 1 - (1 - share) * (1 - middle) / (1 - mean))
    return np.asarray(low + (high - low) * moved, np.float32)


def asked(graph: bytes, runs: Sequence[Mapping[str, Array]]) -> Answers:
    """What a graph answers in ONNX Runtime on one thread.

    Raises:
        Exception: ONNX Runtime's own, where it refuses the graph.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found: Answers = []
    for inputs in runs:
        try:
            found.append(dict(zip(names, session.run(None, dict(inputs)), strict=True)))
        except Exception:  # whatever ONNX Runtime says, there is no answer
            found.append(None)
    return found


def effect_of(spec: ModelSpec, precision: str, sound: Answers, broken: Answers, above: float | None = None) -> Effect:
    """The largest effect, in units of its limit, on the rows where the condition holds."""
    rows: dict[str, list[float]] = {}
    middle = _middle(spec, precision, sound)
    for right, wrong in zip(sound, broken, strict=True):
        if right is None:
            raise ValueError("the unbroken graph does not answer")
        first = right[spec.outputs[0].name]
        kept = first.reshape(len(first), -1).max(1) > (-np.inf if above is None else above)
        for measure, values in _measured(spec, right, wrong, middle):
            rows.setdefault(measure, []).extend(float(v) for v in np.nan_to_num(values, nan=1.0)[kept])
    found = [
        Effect(m, float(np.mean(values)), LIMITS[m][precision], _chance(m, LIMITS[m][precision]))
        for m, values in rows.items()
        if values
    ]
    if not found:
        raise ValueError("no fresh input meets the condition")
    return max(found, key=lambda effect: effect.times)


def _chance(measure: str, limit: float) -> float:
    return 2 * float(np.sqrt(limit / (ROWS * ANSWERS[measure]))) if measure in ANSWERS else 0.0


def _measured(
    spec: ModelSpec, right: Mapping[str, Array], wrong: Mapping[str, Array] | None, middle: Array
) -> Iterator[tuple[str, Array]]:
    measures = TASKS[spec.name]
    count = len(next(iter(right.values())))
    if wrong is None or any(right[n].shape != wrong[n].shape for n in right):
        yield from ((measure, np.ones(count)) for measure in measures)
        return
    for measure, how in measures.items():
        values = how(right, wrong, middle)
        odd = [n for n, a in wrong.items() if a.dtype.kind == "f" and not np.isfinite(a).all()]
        yield measure, np.ones(count) if odd else values


def _middle(spec: ModelSpec, precision: str, sound: Answers) -> Array:
    """Mean and spread of the first output, [2, ...], where rows have one shape; two zeros elsewhere.

    In fp16 the spread is at least a share of the peak, as for the judge: 290 K are rounded to 0.25.
    """
    if not CENTRED.intersection(TASKS[spec.name]):
        return np.zeros(2)
    rows = np.concatenate([a[spec.outputs[0].name] for a in sound if a is not None])
    rounding = FP16.rounding * np.abs(rows).max() if precision == "fp16" else 0.0
    return np.stack([rows.mean(0), np.maximum(rows.std(0), rounding)])


def lost_mass(r: Mapping[str, Array], w: Mapping[str, Array], middle: Array) -> Array:
    scores, places = r["relevance"].astype(np.float64), w["indices"]
    inside = (places >= 0) & (places < scores.shape[1])
    inside &= np.array([[i not in row[:k] for k, i in enumerate(row)] for row in places])  # twice is once
    got = np.where(inside, np.take_along_axis(scores, np.where(inside, places, 0), 1), 0).sum(1)
    return np.asarray(1 - got / np.take_along_axis(scores, r["indices"], 1).sum(1))


def rank_order(r: Mapping[str, Array], w: Mapping[str, Array], middle: Array) -> Array:
    """1 minus Spearman's correlation of the relevance of the patches; equal scores are ranked in their order."""
    a, b = (x["relevance"].argsort(1, kind="stable").argsort(1).astype(np.float64) for x in (r, w))
    return np.asarray(6 * ((a - b) ** 2).sum(1) / (a.shape[1] * (a.shape[1] ** 2 - 1)))


def token_cosine(r: Mapping[str, Array], w: Mapping[str, Array], middle: Array) -> Array:
    """1 minus the cosine of the tokens of the patches that both chose."""
    lost = []
    for one, other, a, b in zip(r["indices"], w["indices"], r["tokens"], w["tokens"], strict=True):
        _, i, j = np.intersect1d(one, other, return_indices=True)
        lost.append(1 - _cosine(a[i].ravel(), b[j].ravel()) if len(i) else 0.0)  # then the mass is lost
    return np.array(lost)


def labels(r: Mapping[str, Array], w: Mapping[str, Array], middle: Array) -> Array:
    label = r["label"] != w["label"]
    return np.asarray(label | (r["logits"].argmax(1) != w["logits"].argmax(1)), float)


def lost_accuracy(r: Mapping[str, Array], w: Mapping[str, Array], middle: Array) -> Array:
    """By how much the chosen class is less probable than the largest; of the label and of the largest logit."""
    raised = np.exp(r["logits"].astype(np.float64) - r["logits"].max(1, keepdims=True))
    shares = raised / raised.sum(1, keepdims=True)
    chosen = np.stack([w["label"], w["logits"].argmax(1)], 1)
    known = (chosen >= 0) & (chosen < shares.shape[1])
    cost = shares.max(1, keepdims=True) - np.take_along_axis(shares, np.where(known, chosen, 0), 1)
    return np.asarray(np.where(known, cost, 1.0).max(1))


def boxes(r: Mapping[str, Array], w: Mapping[str, Array], middle: Array) -> Array:
    a, b = (x["boxes"].astype(np.float64)[..., :4] for x in (r, w))
    shared = np.maximum(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0).prod(-1)
    areas = [np.maximum(x[..., 2:] - x[..., :2], 0).prod(-1) for x in (a, b)]
    return np.asarray(1 - (shared / np.maximum(areas[0] + areas[1] - shared, 1e-30)).mean(1))


def confidence(r: Mapping[str, Array], w: Mapping[str, Array], middle: Array) -> Array:
    return np.asarray(((r["boxes"][..., 4] > INSIDE) != (w["boxes"][..., 4] > INSIDE)).mean(1))


def masks(r: Mapping[str, Array], w: Mapping[str, Array], middle: Array) -> Array:
    """1 minus the overlap, the mean of the masks."""
    lost = []
    for name in r:
        a, b = ((x[name] > INSIDE).reshape(len(x[name]), -1) for x in (r, w))
        either = (a | b).sum(1)
        lost.append(1 - np.where(either > 0, (a & b).sum(1) / np.maximum(either, 1), 1))
    return np.asarray(np.mean(lost, axis=0))


def angle(r: Mapping[str, Array], w: Mapping[str, Array], middle: Array) -> Array:
    return np.array(
        [1 - _cosine(a - middle[0], b - middle[0]) for a, b in zip(r["embedding"], w["embedding"], strict=True)]
    )


def signal(r: Mapping[str, Array], w: Mapping[str, Array], middle: Array) -> Array:
    """The root of the mean square error over the places of a row, in units of each place's spread over the rows."""
    (name,) = r
    error = (w[name].astype(np.float64) - r[name]) / np.maximum(middle[1], 1e-30)
    return np.asarray(np.sqrt((error.reshape(len(error), -1) ** 2).mean(1)))


def _cosine(a: Array, b: Array) -> float:
    """By the chord between unit vectors, which keeps its digits near one; equal vectors give exactly 1."""
    a, b = (x.astype(np.float64) / max(float(np.linalg.norm(x.astype(np.float64))), 1e-30) for x in (a, b))
    return 1 - float(np.sum((a - b) ** 2)) / 2


_Measure = Callable[[Mapping[str, Array], Mapping[str, Array], Array], Array]
TASKS: dict[str, dict[str, _Measure]] = {
    "arrcoc": {"lost mass": lost_mass, "rank order": rank_order, "token cosine": token_cosine},
    "classifier": {"labels": labels},
    "detector": {"boxes": boxes, "confidence": confidence},
    "segmentation": {"masks": masks},
    "embedding": {"angle": angle},
    "classes": {"sure labels": labels, "lost accuracy": lost_accuracy},
    "points": {"signal": signal},
    "kelvin": {"signal": signal},
    "text": {"angle": angle},
    "pair": {"signal": signal},
    "table": {"sure labels": labels, "lost accuracy": lost_accuracy},
    "audio": {"sure labels": labels, "lost accuracy": lost_accuracy},
}
"""Model -> measure of its task -> one value a row of (unbroken answers, broken answers, mean embedding)."""
