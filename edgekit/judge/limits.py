"""Limits on an artifact's differences: one table, one row per limit.

A row names a metric, the output roles and kinds of input that it limits, the limit for each kind of precision, and the
reason. INT8 has two limits: one for 99 of 100 rows, and one for every row, about four times as wide, since the worst of
hundreds of rows is chance. Metrics are `edgekit.artifact.metric`'s; a limit is the largest allowed value, or the
smallest where higher is better. `verdict.py` widens an absolute limit to a small multiple of the reference's own noise
where that is larger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from edgekit.artifact.fact import EVALUATION, IN_BATCHES
from edgekit.model.spec import ModelSpec

STRESS, PHOTOGRAPHS, CHANGED, LEVELLED = "stress", "photographs", "changed", "levelled"
SHIFTED, WORDS, IDS, CATEGORIES = "shifted", "words", "ids", "categories"
Kind = Literal["real", "changed", "random"]
"""Users' inputs; the same dark, bright, grey or saturated, or with other words; random or extreme inputs."""
Size = Literal["usual", "resized", ""]
"""Of real inputs in batches: the model's usual one, that of resized pictures or signals, or that of other texts."""
ALL: tuple[Kind, ...] = ("real", "changed", "random")
REAL: tuple[Kind, ...] = ("real",)
NOT_REAL: tuple[Kind, ...] = ("changed", "random")

SCORES, RANKING, COUNTS, FEATURES, TASK = ("scores",), ("ranking",), ("counts",), ("features",), ("task",)
CLASSES, DETECTIONS, STATE = ("logits", "probabilities"), ("detections",), ("state",)
_OTHERS = ("tensor", "labels", "boxes", "mask", "embedding", "image", "state")
# Roles whose values are judged in units of the reference's own spread.
SCALED = ("features", *CLASSES, *_OTHERS)
# Mean signed error of a channel in the rows of one category.
BIAS = "channel bias"
# How the name of a longer exposure begins.
LONGER_EXPOSURE = "exposed "
# Share of the other inputs of a run in an answer.
MIXED = "mixed rows"
TASK_DROP, TASK_DROP_WORST = "task drop", "task drop, worst row"
# Errors in random inputs, below those of another order of magnitude.
NOISE_ERRORS = ("nrmse in noise", "usual error")


@dataclass(frozen=True)
class Limit:
    """One row of the table.

    Attributes:
        metric: Name of the metric.
        roles: Roles of the outputs.
        kinds: Kinds of input.
        value: The limit of each row or, with a `worst`, of 99 of 100 rows.
        reason: Source of the value.
        worst: The limit of every row.
    """

    metric: str
    roles: tuple[str, ...]
    kinds: tuple[Kind, ...]
    value: float
    reason: str
    worst: float | None = None

    @property
    def of_each(self) -> float:
        """The limit of each single row."""
        return self.value if self.worst is None else self.worst


@dataclass(frozen=True)
class Tolerance:
    """The limits on artifacts of one kind of precision.

    Attributes:
        name: Its name in reports.
        limits: Its rows; a later one overrides an earlier one for the same metric, role and kind.
        rounding: The least unit of a difference, as a share of a channel's peak: lower precision rounds by as much.
        exact_ranking: True if a top-K swap beyond the score tolerance, or a count off by more than rounding, fails;
            otherwise ranks are judged on real inputs only.
    """

    name: str
    limits: tuple[Limit, ...] = ()
    rounding: float = 0.0
    exact_ranking: bool = True

    def on(self, kind: Kind) -> dict[tuple[str, str], Limit]:
        """Return the limit of each role's metric on inputs of a kind, by (role, metric)."""
        return {(role, row.metric): row for row in self.limits if kind in row.kinds for role in row.roles}

    def limit(self, metric: str, role: str) -> float | None:
        """Return the limit of one role's metric on real inputs, or None."""
        row = self.on("real").get((role, metric))
        return row.value if row is not None else None

    def without(self, *metrics: str) -> Tolerance:
        """Return a copy without the limits of some metrics."""
        return replace(self, limits=tuple(row for row in self.limits if row.metric not in metrics))

    def with_limit(self, metric: str, role: str, change: Callable[[float], float]) -> Tolerance:
        """Return a copy with changed limits on one metric of a role, on real inputs."""

        def is_replaced(row: Limit) -> bool:
            return row.metric == metric and role in row.roles and "real" in row.kinds

        def replace_limit(row: Limit) -> Limit:
            return replace(row, value=change(row.value), worst=None if row.worst is None else change(row.worst))

        return replace(self, limits=tuple(replace_limit(row) if is_replaced(row) else row for row in self.limits))


def kind_of(batch: str) -> Kind:
    """Return the kind of a batch's inputs."""
    name = batch.removesuffix(" again")
    if name in (EVALUATION, IN_BATCHES, PHOTOGRAPHS):
        return "real"
    return "changed" if name in (CHANGED, LEVELLED, WORDS, IDS, CATEGORIES) else "random"


def kind_at_sizes(spec: ModelSpec, sizes: Mapping[str, int]) -> Kind:
    """Return the kind of real inputs at other sizes: a cut signal is a changed one, and pictures are resized whole.

    Texts are cut too, but their models take texts of any length: those have ids, or a mask.
    """
    usual = {axis: spec.axes[axis].default for axis in _stretched_axes(spec, "tensor")}
    return "changed" if any(sizes.get(axis, size) < size for axis, size in usual.items()) else "real"


def size_of(spec: ModelSpec, sizes: Mapping[str, int]) -> Size:
    """Return whether real inputs of these sizes have the model's usual one, or are resized; texts are not, as above."""
    others = {name for name, axis in spec.axes.items() if sizes.get(name, axis.default) != axis.default} - {"batch"}
    if not others:
        return "usual"
    return "resized" if others & _stretched_axes(spec, "image", "tensor") else ""


def _stretched_axes(spec: ModelSpec, *kinds: str) -> set[str]:
    of_texts = {axis for i in spec.inputs if i.kind == "tensor" and np.dtype(i.dtype).kind in "iub" for axis in i.shape}
    inputs = [i for i in spec.inputs if i.kind in kinds and (i.kind == "image" or np.dtype(i.dtype).kind == "f")]
    axes = {str(axis) for i in inputs for axis in i.shape if axis in spec.axes}
    return axes - of_texts - {"batch"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A limit for every kind of precision; None if it has none. Fields as in `Limit`; `worst` is INT8's."""

    metric: str
    roles: tuple[str, ...]
    kinds: tuple[Kind, ...]
    fp32: float | None = None
    delegated: float | None = None
    fp16: float | None = None
    int8: float | None = None
    worst: float | None = None
    reason: str


_FLIPS = "INT8: MLPerf Inference requires 99 % of the fp32 model's accuracy; fp16: its limit on a task metric"
_OWN = "what follows from the artifact's own scores; counts up to 400 in fp16 are off by 7.4e-4"
_CHANGED_GAP = "twice that of real inputs; sound INT8 has up to 0.03, two exchanged classes of twenty 2 to 4"
_GAP = "a class as likely within twice the limit on differences; INT8: within half of the spread of the classes"
_LINES = "INT8: half of the error, since these move every decision the same way and do not average out"
_EIGHT_RUNS = "adds up over runs: eight of 2 % are the limit of one answer; sound INT8 of a GRU has up to 0.002"
# Every limit of every precision. If ranks need not be exact (INT8), no absolute limit applies: INT8 is not calibrated
# for inputs that are not real.
TABLE = (
    Row(
        metric="max abs", roles=SCORES, kinds=ALL, fp32=1e-4, delegated=1e-3, fp16=1e-2,
        reason="ONNX Runtime's own tests of exported transformers; ExecuTorch's of XNNPACK; NVIDIA Polygraphy's",
    ),
    Row(
        metric="count excess", roles=COUNTS, kinds=ALL, fp32=1e-4, delegated=1e-3, fp16=1e-2,
        reason="counts follow from scores, which may differ by as much",
    ),
    Row(
        metric="swap gap", roles=RANKING, kinds=ALL, fp32=1e-4, delegated=1e-3, fp16=1e-2,
        reason="which places are chosen follows from scores, which may differ by as much",
    ),
    Row(
        metric="order gap", roles=RANKING, kinds=ALL, fp32=1e-4, delegated=1e-3, fp16=1e-2,
        reason="the order follows from scores, which may differ by as much",
    ),
    Row(
        metric="own count excess", roles=COUNTS, kinds=ALL, fp32=1e-3, delegated=1e-3, fp16=1e-3, int8=1e-3, reason=_OWN
    ),
    Row(
        metric="own gap", roles=(*RANKING, *DETECTIONS), kinds=ALL, fp32=1e-3, delegated=1e-3, fp16=1e-3, int8=1e-3,
        reason=_OWN,
    ),
    Row(
        metric="relative", roles=SCALED, kinds=ALL, fp32=1e-4, delegated=1e-3, fp16=2e-2,
        reason="as of scores, over the peak; fp16 keeps 11 bits",
    ),
    Row(
        metric="deviation", roles=("scores", *SCALED), kinds=ALL, fp32=1e-3, delegated=1e-2, fp16=0.2,
        reason="ten times the limits on scores, which spread by 0.1 to 0.3 of their range; fp16: 2e-2 of the peak",
    ),
    Row(
        metric="cosine", roles=("scores", *SCALED), kinds=REAL, fp16=0.997, int8=0.99, worst=0.9,
        reason="NVIDIA Polygraphy's quality defaults; sound INT8 of arr-coc-tiny is at 0.928 in one of 9,500 rows",
    ),
    Row(
        metric="cosine", roles=CLASSES, kinds=REAL, int8=0.9, worst=0.7,
        reason="of classes the choice counts, which has its own limits; another row's output has less",
    ),
    Row(
        metric="cosine", roles=_OTHERS, kinds=REAL, int8=0.955, worst=0.82,
        reason="the rest after the error, of a row centred on zero: 1 / sqrt(1 + 0.3^2) = 0.958",
    ),
    Row(
        metric="cosine", roles=SCORES, kinds=("changed",), int8=0.9, worst=0.7,
        reason="sound INT8 of arr-coc-tiny has at least 0.965; a map in reverse 0.56",
    ),
    Row(metric="snr", roles=SCORES, kinds=REAL, fp16=20.0, reason="NVIDIA Polygraphy's quality defaults"),
    Row(
        metric="spearman", roles=SCORES, kinds=REAL, int8=0.99, worst=0.96,
        reason="INT8 is judged by its purpose: ranks",
    ),
    Row(
        metric="lost mass", roles=RANKING, kinds=REAL, int8=0.01, worst=0.04,
        reason="INT8 is judged by its purpose: the relevance of the chosen places",
    ),
    Row(
        metric="presence", roles=SCORES, kinds=REAL, fp32=0, delegated=0, fp16=0.002, reason="of rows",
    ),
    Row(metric="presence", roles=SCORES, kinds=("changed",), fp16=0.01, reason="looser than on real inputs"),
    Row(
        metric="clear presence", roles=SCORES, kinds=REAL, int8=0.01,
        reason="of rows; sound INT8 of arr-coc-tiny flips none of 144 pictures, and up to two of 397 at all sizes",
    ),
    Row(
        metric="clear presence", roles=SCORES, kinds=("changed",), int8=0.05, reason="looser than on real inputs",
    ),
    Row(
        metric="nrmse", roles=SCORES, kinds=REAL, int8=0.3, worst=0.6,
        reason="scores scaled by 0.7 rank the same and are wrong (0.33); sound INT8 of arr-coc-tiny has 0.05 to 0.17",
    ),
    Row(
        metric="nrmse of spread", roles=SCORES, kinds=("changed",), int8=0.5, worst=0.75,
        reason="these inputs are not calibrated for: up to 0.29 of sound INT8 graphs, 0.57 to 1 where batches mix",
    ),
    Row(
        metric="nrmse in noise", roles=SCORES, kinds=("random",), int8=1.1, worst=1.5,
        reason="in noise, sound INT8 of speech has up to 1.16",
    ),
    Row(
        metric="row cosine", roles=FEATURES, kinds=REAL, int8=0.8, worst=0.5,
        reason="less is another direction, not a coarser one",
    ),
    Row(
        metric="error", roles=SCALED, kinds=REAL, fp32=1e-3, delegated=1e-2, fp16=0.05, int8=0.3, worst=0.9,
        reason="INT8: a signal-to-noise ratio of 10.5 dB (Nagel et al., A White Paper on Quantization, 2021); one row "
        "of 200 of a sound rain forecast has 0.8",
    ),
    Row(
        metric="error", roles=SCALED, kinds=("changed",), fp16=0.1, int8=0.7, worst=1.1,
        reason="twice that of real inputs; sound INT8 graphs of the exam had up to 0.42, another row's answer has 1.4",
    ),
    Row(
        metric="gross error", roles=SCALED, kinds=("random",), int8=10, worst=20,
        reason="not calibrated for, so only what is grossly off counts: an answer of another order of magnitude",
    ),
    Row(
        metric="usual error", roles=SCALED, kinds=("random",), fp16=0.05, int8=1.5, worst=2.5,
        reason="where the model itself answers in its usual range, fp16 holds its limit of real inputs; sound INT8 "
        "has up to 1.6 in noise, and an answer in reverse up to 4",
    ),
    Row(
        metric="gain", roles=SCALED, kinds=REAL, fp32=1e-3, delegated=1e-2, fp16=0.05, int8=0.15, worst=0.4,
        reason=_LINES,
    ),
    Row(
        metric="offset", roles=SCALED, kinds=REAL, fp32=1e-3, delegated=1e-2, fp16=0.05, int8=0.15, worst=0.4,
        reason=_LINES,
    ),
    Row(
        metric="correlation", roles=SCALED, kinds=REAL, fp32=0.99999, delegated=0.9999, fp16=0.997, int8=0.95,
        worst=0.8, reason="independent errors of the size of the limit on errors leave 1 / sqrt(1 + error^2)",
    ),
    Row(
        metric="channel error", roles=SCALED, kinds=REAL, fp32=1e-3, delegated=1e-2, fp16=0.05, int8=0.3, worst=0.7,
        reason="as of a row; of a hundred channels one may be beyond it",
    ),
    Row(
        metric="channel error", roles=SCALED, kinds=("changed",), fp16=0.05, int8=0.5,
        reason="INT8: of all rows of a condition; sound ones have up to 0.32, exchanged classes 0.6 to 1.2",
    ),
    Row(
        metric=BIAS, roles=SCALED, kinds=("changed",), int8=0.1,
        reason="of the rows of one category; sound INT8 has up to 0.06, two exchanged similar categories 0.13 to 0.5",
    ),
    Row(
        metric="channel gain", roles=SCALED, kinds=REAL, fp32=1e-3, delegated=1e-2, fp16=0.05, int8=0.15, worst=0.4,
        reason="as of a row; of a hundred channels one may be beyond it",
    ),
    Row(
        metric="channel offset", roles=SCALED, kinds=REAL, fp32=1e-3, delegated=1e-2, fp16=0.05, int8=0.15, worst=0.4,
        reason="as of a row; of a hundred channels one may be beyond it",
    ),
    Row(
        metric="channel correlation", roles=SCALED, kinds=REAL, fp32=0.99999, delegated=0.9999, fp16=0.997, int8=0.95,
        worst=0.8, reason="as of a row; of a hundred channels one may be beyond it",
    ),
    Row(
        metric="gain", roles=STATE, kinds=REAL, int8=0.02, worst=0.1, reason=_EIGHT_RUNS,
    ),
    Row(
        metric="offset", roles=STATE, kinds=REAL, int8=0.02, worst=0.1, reason=_EIGHT_RUNS,
    ),
    Row(
        metric="channel gain", roles=STATE, kinds=REAL, int8=0.075, worst=0.2, reason="half of those of others",
    ),
    Row(
        metric="channel offset", roles=STATE, kinds=REAL, int8=0.075, worst=0.2, reason="half of those of others",
    ),
    Row(
        metric="error across inputs", roles=SCALED, kinds=REAL, fp16=0.5, int8=0.75,
        reason="an answer that is the same for all inputs has 1",
    ),
    Row(
        metric="error of a place", roles=SCALED, kinds=REAL, fp32=0.05, delegated=0.1, fp16=0.5, int8=0.75,
        reason="one of 68 points that stands still has 1",
    ),
    Row(
        metric=MIXED, roles=("scores", *CLASSES, *_OTHERS), kinds=REAL, fp16=0.02, int8=0.03,
        reason="another input's answer has no share in this one; sound dynamic INT8 of the exam has none either",
    ),
    Row(metric="unequal", roles=SCALED, kinds=ALL, fp32=0, delegated=0, fp16=0, int8=0, reason="integers are equal"),
    Row(
        metric="wrong labels", roles=SCALED, kinds=ALL, fp32=0, delegated=0, fp16=0.002, int8=0.01, reason=_FLIPS
    ),
    Row(metric="flips", roles=SCALED, kinds=REAL, fp16=0.002, reason=_FLIPS),
    Row(metric="flips", roles=("boxes",), kinds=REAL, int8=0.01, reason=_FLIPS),
    Row(
        metric="lost accuracy", roles=(*CLASSES, "labels"), kinds=REAL, int8=0.01,
        reason="the same, by the model's own probabilities: another class that was as likely costs nothing",
    ),
    Row(
        metric="lost accuracy", roles=(*CLASSES, "labels"), kinds=("changed",), fp32=0.002, delegated=0.005, fp16=0.01,
        int8=0.05, reason="as of real inputs; where the model itself is unsure another class costs little",
    ),
    Row(
        metric="argmax gap", roles=SCALED, kinds=REAL, fp32=2e-3, delegated=2e-2, fp16=0.1, int8=0.5, worst=1.0,
        reason=_GAP,
    ),
    Row(
        metric="argmax gap", roles=SCALED, kinds=("changed",), int8=1.0, worst=2.0,
        reason=_CHANGED_GAP,
    ),
    Row(
        metric="label gap", roles=SCALED, kinds=REAL, fp32=2e-3, delegated=2e-2, fp16=0.1, int8=0.5, worst=1.0,
        reason=_GAP,
    ),
    Row(
        metric="label gap", roles=SCALED, kinds=("changed",), int8=1.0, worst=2.0,
        reason=_CHANGED_GAP,
    ),
    Row(metric="own label gap", roles=SCALED, kinds=ALL, fp32=2e-3, delegated=2e-2, fp16=0.1, int8=0.5, reason=_GAP),
    Row(
        metric="total variation", roles=SCALED, kinds=REAL, fp32=1e-4, delegated=1e-3, fp16=1e-2, int8=0.1, worst=0.3,
        reason="of probabilities, the limit on scores; INT8: a tenth of the mass",
    ),
    Row(
        metric="iou", roles=SCALED, kinds=REAL, fp32=0.999, delegated=0.99, fp16=0.97, int8=0.85, worst=0.6,
        reason="COCO's strictest threshold is 0.95; INT8: between COCO's 0.75 and 0.95",
    ),
    Row(
        metric="lost boxes", roles=SCALED, kinds=REAL, fp16=0.01, int8=0.05,
        reason="of a hundred boxes that count one may come or go, five in INT8: few are near the middle",
    ),
    Row(
        metric="iou", roles=("boxes",), kinds=("changed",), int8=0.7, worst=0.4, reason="looser than on real inputs",
    ),
    Row(
        metric="moved box", roles=("boxes", *DETECTIONS), kinds=REAL, fp32=0.01, delegated=0.02, fp16=0.06, int8=0.3,
        worst=0.5, reason="one box of many: an overlap of 0.94 at a score of 1, in INT8 of 0.7",
    ),
    Row(
        metric="moved box", roles=("boxes", *DETECTIONS), kinds=("changed",), fp16=0.1, int8=0.4, worst=0.6,
        reason="looser than on real inputs; a box that the model is unsure of counts by its score",
    ),
    Row(metric="lost classes", roles=SCALED, kinds=REAL, fp16=0.01, int8=0.05, reason="as of boxes"),
    Row(
        metric="detection gap", roles=DETECTIONS, kinds=ALL, fp32=1e-4, delegated=1e-3, fp16=1e-2,
        reason="as of scores",
    ),
    Row(
        metric="detection gap", roles=DETECTIONS, kinds=REAL, fp32=1e-4, delegated=1e-3, fp16=1e-2, int8=0.15,
        worst=0.4, reason="as of scores; INT8: as of gains",
    ),
    Row(
        metric="detection gap", roles=DETECTIONS, kinds=("changed",), int8=0.3, worst=0.6,
        reason="twice that of real inputs",
    ),
    Row(
        metric="iou", roles=DETECTIONS, kinds=REAL, fp32=0.999, delegated=0.99,
        reason="as of boxes; less precise scores choose among boxes that overlap",
    ),
    Row(
        metric="untied iou", roles=DETECTIONS, kinds=NOT_REAL, fp32=0.999, delegated=0.99, reason="as of boxes",
    ),
    Row(
        metric="misplaced", roles=DETECTIONS, kinds=REAL, fp16=0.03, int8=0.15,
        reason="an overlap of 0.97, in INT8 of 0.85, as of boxes",
    ),
    Row(
        metric="lost detections", roles=DETECTIONS, kinds=REAL, fp32=0.001, delegated=0.002, fp16=0.02, int8=0.08,
        reason="rounding decides where scores are equal or overlaps at the threshold; of a crowded list, full in "
        "every picture, sound fp16 loses 0.6 %, sound INT8 3.8 %: two to three times that",
    ),
    Row(
        metric="lost untied detections", roles=DETECTIONS, kinds=NOT_REAL, fp32=0.001, delegated=0.002,
        reason="as of real inputs",
    ),
    Row(
        metric="own count", roles=("count",), kinds=ALL, fp32=0, delegated=0, fp16=0, int8=0,
        reason="a count is that of the artifact's own detections",
    ),
    Row(
        metric="mask iou", roles=SCALED, kinds=REAL, fp32=0.999, delegated=0.99, fp16=0.97, int8=0.8, worst=0.5,
        reason="COCO's strictest threshold is 0.95; INT8: an edge of which the model is unsure moves",
    ),
    Row(
        metric="lost mask", roles=SCALED, kinds=("real", "changed"), fp32=1e-3, delegated=1e-2, fp16=0.03, int8=0.15,
        worst=0.35, reason="as of overlaps, but a place near the middle counts by its distance from it",
    ),
    Row(
        metric="angle", roles=SCALED, kinds=REAL, fp32=0.1, delegated=1.0, fp16=4.4, int8=18.0, worst=40.0,
        reason="of an embedding: a cosine of 0.997 in fp16, of 0.95 in INT8",
    ),
    Row(
        metric="angle", roles=SCALED, kinds=("changed",), int8=30.0, worst=60.0, reason="looser than on real inputs",
    ),
    Row(
        metric="angle", roles=SCALED, kinds=("random",), int8=45.0, worst=75.0,
        reason="not calibrated for: sound INT8 has up to 14; one that has nothing to do with the model's has 90",
    ),
    Row(
        metric=TASK_DROP, roles=TASK, kinds=REAL, fp32=0.002, delegated=0.002, fp16=0.002, int8=0.005,
        reason="of the task metric's mean, absolute",
    ),
    Row(
        metric=TASK_DROP_WORST, roles=TASK, kinds=REAL, int8=0.05,
        reason="of the task metric on any one row, absolute",
    ),
)  # fmt: skip


def _tolerance(name: str, column: str, rounding: float = 0.0, exact_ranking: bool = True) -> Tolerance:
    rows = [(row, getattr(row, column)) for row in TABLE]
    lossy = column == "int8"
    limits = tuple(
        Limit(row.metric, row.roles, row.kinds, float(value), row.reason, row.worst if lossy else None)
        for row, value in rows
        if value is not None
    )
    return Tolerance(name, limits, rounding, exact_ranking)


FP32 = _tolerance("fp32", "fp32")
# fp16 rounds to 0.0005 of the peak, which is its limit on errors, 0.05, of this unit.
ROUNDED = 0.01
FP32_DELEGATED = _tolerance("fp32, delegated", "delegated", ROUNDED)
FP16 = _tolerance("fp16", "fp16", ROUNDED)
INT8 = _tolerance("int8", "int8", exact_ranking=False)
TOLERANCES = (FP32, FP32_DELEGATED, FP16, INT8)
# Precisions that may lose something on inputs unlike the user's; in fp32 that is a fault.
LOSSY = (FP16.name, INT8.name)
