"""Which limits apply: to which role and metric, on real inputs and on others."""

from __future__ import annotations

from typing import Literal

from edgekit.artifact.fact import EVALUATION
from edgekit.judge.tolerance import Tolerance

OWN_TOLERANCE = 1e-3
"""Score units. Ranking and counts follow from the artifact's own scores; counts up to 400 in fp16 are off by 7.4e-4."""
GROSS_UNEXPLAINED = 0.3
"""Share of a map's spread, on real inputs where the table asks for ranks only: scores scaled by 0.7 rank the same and
are wrong (0.33). Dynamic and static INT8 of the trained arr-coc-tiny had 0.05 to 0.17 on their worst photograph."""
STRANGE_UNEXPLAINED = 0.5
"""The same on other inputs, which nobody calibrated for: up to 0.29 for those graphs, 0.57 to 1 where batches mix."""
CHANGED_ERROR = 0.7
"""The same of outputs of any scale, on changed inputs: a row's root mean square error, in units of the spread. Sound
INT8 graphs of the exam had up to 0.42; another row's answer has 1.4. On random and extreme inputs there is no such
limit: a sound ResNet whose ranges were calibrated had 2.1 where every pixel is at one of its ends."""
SCALED_COSINE = 0.955
"""Of an output of any scale, where the table asks for ranks only. The limit on errors leaves a row that is centred on
zero a cosine of 1 / sqrt(1 + 0.3^2) = 0.958; 0.99 would hold it to half of what a row with a mean is held to."""
GROSS_ROW_COSINE = 0.8
"""Of a row of features, where the table asks for ranks only: less is another direction, not a coarser one."""

STRESS, PHOTOGRAPHS, CHANGED, LEVELLED = "stress", "photographs", "changed", "levelled"
Kind = Literal["real", "changed", "random"]
"""Inputs such as users have, the same in strange conditions, and random or extreme ones."""
_SCALED = ("features", "tensor", "logits", "probabilities", "labels", "boxes", "mask", "embedding", "image", "state")


def kind_of(batch: str) -> Kind:
    """What a batch's inputs are."""
    name = batch.removesuffix(" again")
    if name in (EVALUATION, PHOTOGRAPHS):
        return "real"
    return "changed" if name in (CHANGED, LEVELLED) else "random"


def rules_of(t: Tolerance, kind: Kind) -> dict[tuple[str, str], float]:
    """The limit of each role's metric, on inputs of a kind: all of them on real ones, elsewhere what is absolute."""
    real = kind == "real"
    rules: dict[tuple[str, str], float | None] = {("scores", "max abs"): t.max_abs}
    rules |= {(role, "relative"): t.relative for role in _SCALED}
    rules |= {("scores", "deviation"): t.deviation}
    rules |= {(role, metric): limit for role in _SCALED for metric, limit in _scaled_rules(t, real).items()}
    rules |= {("counts", "own count excess"): OWN_TOLERANCE, ("ranking", "own gap"): OWN_TOLERANCE}
    if real:
        rules |= {(role, "cosine"): t.cosine for role in ("scores", *_SCALED)}
        rules |= {("scores", "snr"): t.snr_db, ("scores", "spearman"): t.spearman}
        rules |= {("ranking", "lost mass"): t.lost_mass}
    if t.exact_ranking:
        exact = (("counts", "count excess"), ("ranking", "swap gap"), ("ranking", "order gap"))
        rules |= dict.fromkeys(exact, t.max_abs or 0.0)
    elif real:
        rules |= {(role, "cosine"): SCALED_COSINE for role in _SCALED if role != "features"}
        rules |= {("scores", "unexplained"): GROSS_UNEXPLAINED, ("features", "row cosine"): GROSS_ROW_COSINE}
    else:
        rules |= {("scores", "astray"): STRANGE_UNEXPLAINED}
        rules |= {(role, "error"): CHANGED_ERROR for role in _SCALED if kind == "changed"}
    return {key: limit for key, limit in rules.items() if limit is not None}


def _scaled_rules(t: Tolerance, real: bool) -> dict[str, float | None]:
    """Limits on outputs of any scale: of the largest difference everywhere, of all else on real inputs."""
    anywhere = {"deviation": t.deviation, "unequal": 0.0, "wrong labels": t.flips or 0.0, "own label gap": t.gap}
    if not real:
        return anywhere
    lines = {"error": t.error, "gain": t.gain, "offset": t.offset, "correlation": t.correlation}
    purposes = {"argmax gap": t.gap, "label gap": t.gap, "flips": t.flips, "total variation": t.variation}
    purposes |= {"iou": t.iou, "lost boxes": t.lost_boxes, "lost classes": t.lost_boxes}
    purposes |= {"mask iou": t.mask_iou, "angle": t.angle, "unmoved": t.unmoved}
    return {**anywhere, **lines, **{f"channel {name}": limit for name, limit in lines.items()}, **purposes}
