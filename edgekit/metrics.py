"""Task metrics for `EvaluationSet.metric`: each returns a number in 0 to 1 per image, larger is better.

    EvaluationSet(inputs, names, truth=labels, metric=edgekit.metrics.top_k("logits"), metric_name="top-1")

Your own metric is any function of the outputs by name and the truth that returns [n] numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import UsageError, suggestion

if TYPE_CHECKING:
    from edgekit.model.spec import Array, Metric

# Class of pixels and boxes that are not counted.
IGNORED = -1
# dB that give 1: a difference of a thousandth of the peak, a quarter of a step of 8 bits.
HIGHEST_PSNR = 60.0


def top_k(output: str, k: int = 1) -> Metric:
    """Return a metric that is 1 if the right class is among the k largest, else 0.

    Args:
        output: Logits or probabilities [n, classes]. The truth is [n], integers.
        k: Number of classes that count.
    """

    def metric(outputs: Mapping[str, Array], truth: Array) -> Array:
        # Stable: equal scores keep the order of classes, as argmax does.
        best = np.argsort(-outputs[output], axis=1, kind="stable")[:, :k]
        return np.asarray((best == truth.reshape(-1, 1)).any(1), np.float64)

    return metric


def mean_iou(output: str) -> Metric:
    """Return a metric of the mean intersection over union of an image's classes (Jaccard index).

    Args:
        output: Logits or probabilities [n, classes, H, W]. The truth is [n, H, W], integers; `IGNORED` is left out.
    """

    def image(answer: Array, truth: Array) -> float:
        labelled = truth != IGNORED
        answer, truth = answer[labelled], truth[labelled]
        shares = [
            float(((answer == c) & (truth == c)).sum() / ((answer == c) | (truth == c)).sum())
            for c in np.union1d(answer, truth)
        ]
        return float(np.mean(shares)) if shares else 1.0

    def metric(outputs: Mapping[str, Array], truth: Array) -> Array:
        classes = outputs[output].argmax(1)
        return np.array([image(*pair) for pair in zip(classes, truth, strict=True)], np.float64)

    return metric


def cosine(output: str) -> Metric:
    """Return a metric of the cosine similarity of embeddings; 0 if it is negative.

    Args:
        output: Embeddings [n, ...]. The truth has the same shape.
    """

    def metric(outputs: Mapping[str, Array], truth: Array) -> Array:
        a, b = (x.reshape(len(x), -1).astype(np.float64) for x in (outputs[output], truth))
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        return np.asarray(np.maximum((a * b).sum(1) / np.maximum(lengths, np.finfo(np.float64).tiny), 0.0))

    return metric


def mean_absolute_error(output: str, unit: float = 1.0) -> Metric:
    """Return a metric of the mean absolute error of numbers: 1 less it in units, and 0 if it is a unit or more.

    Args:
        output: Numbers [n, ...]. The truth has the same shape, or [n] for [n, 1].
        unit: The error that is useless, in the output's own unit.
    """

    def metric(outputs: Mapping[str, Array], truth: Array) -> Array:
        off = np.abs(outputs[output].reshape(truth.shape).astype(np.float64) - truth)
        return np.asarray(1.0 - np.minimum(off.reshape(len(off), -1).mean(1) / unit, 1.0))

    return metric


def psnr(output: str, peak: float = 1.0) -> Metric:
    """Return a metric of the peak signal-to-noise ratio, as a share of `HIGHEST_PSNR`.

    Args:
        output: Images [n, ...]. The truth has the same shape.
        peak: The range of their values.
    """

    def metric(outputs: Mapping[str, Array], truth: Array) -> Array:
        off = outputs[output].astype(np.float64) - truth
        mean = (off * off).reshape(len(off), -1).mean(1)
        least = peak**2 / 10.0 ** (HIGHEST_PSNR / 10.0)
        return np.asarray((10.0 * np.log10(peak**2 / np.maximum(mean, least)) / HIGHEST_PSNR).clip(0.0, 1.0))

    return metric


def average_precision(boxes: str, scores: str = "", iou: float = 0.5) -> Metric:
    """Return a metric of an image's average precision, mean over its classes, as in COCO.

    Boxes are matched in the order of their scores, each with the free truth that it overlaps most. Precision at a
    recall is the largest at that or any higher recall. An image without truth gets 1 if no score is above a half.

    Args:
        boxes: Output [n, boxes, 4]: left, top, right, bottom. The truth is [n, m, 5], with the class first; rows of the
            class `IGNORED` are padding.
        scores: Output [n, boxes, classes], in 0 to 1. Without it, `boxes` is the output of `edgekit.Detector`
            [n, most, 6]: the box, its score, its class.
        iou: Least overlap of a correct box.
    """
    return _detection_metric(boxes, scores, (iou,))


def mean_average_precision(boxes: str, scores: str = "") -> Metric:
    """Return a metric of an image's average precision, mean over the overlaps 0.5, 0.55 to 0.95, as in COCO.

    Args:
        boxes: As of `average_precision`, and so is the truth.
        scores: As of `average_precision`.
    """
    return _detection_metric(boxes, scores, COCO_OVERLAPS)


COCO_OVERLAPS = tuple(0.5 + 0.05 * step for step in range(10))
READY: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (top_k, mean_iou, cosine, mean_absolute_error, psnr, average_precision, mean_average_precision)
}
EXAMPLE = "--metric top_k:logits, or --metric average_precision:boxes,scores,iou=0.7"


@dataclass(frozen=True)
class ParsedMetric:
    """A metric that was named in text.

    Attributes:
        words: The text, which `parse_metric` parses again.
        outputs: The outputs that it reads.
        compute: The function.
    """

    words: str
    outputs: tuple[str, ...]
    compute: Metric

    def __call__(self, outputs: Mapping[str, Array], truth: Array) -> Array:
        """Return the metric of each row."""
        return self.compute(outputs, truth)


def parse_metric(text: str) -> ParsedMetric:
    """Return the metric that a text names: `NAME:OUTPUT`, with further arguments after commas.

    Raises:
        UsageError: If the name is unknown, or the arguments do not fit.
    """
    name, _, rest = text.partition(":")
    if name not in READY:
        meant = suggestion(name, READY)
        raise UsageError(f"unknown metric '{name}'. {meant}Metrics: {', '.join(READY)}, for example {EXAMPLE}")
    parts = [part.strip() for part in rest.split(",") if part.strip()]
    by_place = [part for part in parts if "=" not in part]
    by_name = dict(part.split("=", 1) for part in parts if "=" in part)
    signature = inspect.signature(READY[name])
    try:
        bound = signature.bind(*by_place, **by_name)
        metrics = {
            n: value if (usual := signature.parameters[n].default) is inspect.Parameter.empty else type(usual)(value)
            for n, value in bound.arguments.items()
        }
    except (TypeError, ValueError) as error:
        takes = ", ".join(signature.parameters)
        raise UsageError(f"the metric '{text}' does not fit {name}({takes}). Write {EXAMPLE}") from error
    return ParsedMetric(
        text, tuple(value for value in metrics.values() if isinstance(value, str)), READY[name](**metrics)
    )


def _detection_metric(boxes: str, scores: str, ious: tuple[float, ...]) -> Metric:
    def metric(outputs: Mapping[str, Array], truth: Array) -> Array:
        pair = (outputs[boxes], outputs[scores]) if scores else _split_detections(outputs[boxes], truth)
        rows = zip(*pair, truth, strict=True)
        return np.array([_image_precision(*row, ious) for row in rows], np.float64)

    return metric


def _split_detections(detections: Array, truth: Array) -> tuple[Array, Array]:
    """Return boxes and scores [n, most, classes] of detections [n, most, 6] and truth [n, m, 5]."""
    kinds = detections[..., 5].round()
    classes = np.arange(max(kinds.max(initial=0), truth[..., 0].max(initial=0)) + 1)
    return detections[..., :4], detections[..., 4:5] * (kinds[..., None] == classes)


def _image_precision(boxes: Array, scores: Array, truth: Array, ious: tuple[float, ...]) -> float:
    classes = np.unique(truth[truth[:, 0] != IGNORED, 0]).astype(int)
    if not len(classes):
        return float(scores.max(initial=0.0) <= 0.5)
    return float(np.mean([_precision(boxes, scores[:, c], truth[truth[:, 0] == c, 1:], ious) for c in classes]))


def _precision(boxes: Array, scores: Array, truth: Array, ious: tuple[float, ...]) -> float:
    """Return the area under precision over recall of one class, mean over the overlaps `ious`.

    Boxes are [b, 4], scores [b], truth [m, 4].
    """
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > 0]
    # Intersection over union of boxes [p, 4] and [q, 4]: [p, q].
    a = boxes[order]
    low, high = np.maximum(a[:, None, :2], truth[None, :, :2]), np.minimum(a[:, None, 2:], truth[None, :, 2:])
    shared = np.maximum(high - low, 0.0).prod(2)
    areas = [np.maximum(x[:, 2:] - x[:, :2], 0.0).prod(1) for x in (a, truth)]
    overlaps = np.asarray(shared / np.maximum(areas[0][:, None] + areas[1][None] - shared, np.finfo(np.float64).tiny))
    return float(np.mean([_area(overlaps, iou) for iou in ious]))


def _area(overlaps: Array, iou: float) -> float:
    """Return the area under precision over recall of overlaps [boxes, objects], the best box first."""
    free, right = np.ones(overlaps.shape[1], bool), np.zeros(len(overlaps), bool)
    for row in np.flatnonzero(overlaps.max(1) >= iou):
        best = int(np.where(free, overlaps[row], -1.0).argmax())
        if free[best] and overlaps[row, best] >= iou:
            free[best], right[row] = False, True
    precision = right.cumsum() / np.arange(1, len(right) + 1)
    highest = np.maximum.accumulate(precision[::-1])[::-1]
    return float(highest[right].sum() / overlaps.shape[1])
