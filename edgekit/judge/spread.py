"""The scale of an output: how far the reference's own values spread, channel by channel.

A difference means something in units of what the values do anyway: 0.05 is nothing in a box's corner and much in its
confidence. So each channel is measured by the standard deviation of the reference's values in it, over all real inputs.

What is a channel: along the axis that the output declares as "channels"; where none is declared the last axis of
features, boxes, logits, probabilities, embeddings and of what has one axis, the first axis of pictures and masks, of
other outputs with two axes the shorter one. Scores have a single scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.model.spec import Array, Output

CHANNELS = "channels"
PEAK_FLOOR = 0.03
"""Share of a channel's peak magnitude. A channel that hardly moves (a constant one) is measured by this: fp16 keeps 11
bits, and through a network its errors add up to some thousandths of the peak (0.0012 in the logits of a seeded ViT that
the Core ML interpreter runs). The floor lets fp16's limit, 0.05 of the spread, be 0.0015 of the peak at the least."""
NOISE_FLOOR = 4000.0
"""Times the reference's own noise: a smaller spread cannot be judged at 1e-3, the limit of fp32, without judging noise
(four times the noise is the most that a difference may be due to it, as `noise.NOISE_MULTIPLE` says)."""
LEAST = 1e-30
"""Units of the output: keeps a division by the spread of zeros finite."""
_LAST = {"features", "boxes", "logits", "probabilities", "embedding"}
Spreads = Mapping[str, Array]
"""Output -> the scale of each channel, float64 [channels]."""


def spreads(outputs: Sequence[Output], answers: Sequence[Mapping[str, Array]], noise: Mapping[str, float]) -> Spreads:
    """The scales of all floating outputs.

    Args:
        outputs: Of the model.
        answers: Of the reference to real inputs, rows first, one mapping a batch; sizes may differ between batches.
        noise: Of the reference, by output.
    """
    found = {}
    for output in outputs:
        arrays = [a[output.name] for a in answers if output.name in a and a[output.name].dtype.kind == "f"]
        parts = [arranged(output, array) for array in arrays if array.size]
        parts = [part for part in parts if part.shape[2] == parts[0].shape[2]]
        if parts:
            whole = np.concatenate([part.reshape(-1, part.shape[2]) for part in parts])
            found[output.name] = np.maximum(_scale(output, whole), NOISE_FLOOR * noise.get(output.name, 0.0))
    return found


def _scale(output: Output, values: Array) -> Array:
    """The scale of each channel of values [m, channels]: float64 [channels].

    The channels of an embedding share their unit, since its direction is what it says: one that is zero for every real
    input is measured by the peak of all.
    """
    with np.errstate(invalid="ignore"):
        peaks = np.abs(values).max(0)
        peaks = np.full_like(peaks, peaks.max(initial=0.0)) if output.role == "embedding" else peaks
        return np.asarray(np.maximum(np.maximum(values.std(0), PEAK_FLOOR * peaks), LEAST))


def largest_scale(output: Output, rows: Array, scales: Spreads) -> Array:
    """The scale of each channel, [channels]: that of real inputs, or that of these rows where it is larger."""
    if rows.dtype.kind != "f":
        return np.ones(1)
    own = arranged(output, rows)
    found, known = _scale(output, own.reshape(-1, own.shape[2])), scales.get(output.name)
    return found if known is None or known.shape != found.shape else np.maximum(found, known)


def arranged(output: Output, rows: Array, axis: int | None = None) -> Array:
    """An output's rows [n, ...] as float64 [n, positions, channels]; `axis` is another channel axis than its own."""
    values = rows.astype(np.float64)
    axis = channel_axis(output, values) if axis is None else axis
    if axis is None:
        return values.reshape(len(values), -1, 1)
    return np.moveaxis(values, axis, -1).reshape(len(values), -1, values.shape[axis])


def channel_axis(output: Output, rows: Array) -> int | None:
    """The axis of the channels in an output's rows [n, ...]; None where it has a single scale."""
    if output.axes:
        within = [name for name in output.axes if name != "batch"]
        if CHANNELS in within and within.index(CHANNELS) + 1 < rows.ndim:
            return within.index(CHANNELS) + 1
    if output.role == "scores" or rows.ndim < 2:
        return None
    if output.role in _LAST or rows.ndim == 2:
        return rows.ndim - 1
    if rows.ndim == 3 and output.role not in ("image", "mask"):
        return 1 if rows.shape[1] < rows.shape[2] else 2
    return 1 if rows.ndim > 3 else None
