"""Differences from the reference's values: per row and per channel, in units of the channel's spread.

Let z be the reference's values and y the artifact's, both divided by the spread of their channel (`spreads`).

- deviation: the largest |y - z| of a row; error: the root mean square of y - z.
- gain: |slope - 1| of the line through y over z; offset: |mean of y - z|. Both less CHANCE standard errors: few values
  with independent errors have a slope and a mean by chance.
- correlation: of y and z, each less its own mean, so that a constant part does not count as agreement.

A row is judged over all its values, a channel over all its rows and positions. A row or channel that hardly moves (less
than MOVING of its channels' spread) or has fewer than FEWEST values gets no slope and no correlation. A channel of so
few values gets no error either: the mean of one value is its deviation, and the row's error covers it.

The scale of an output is the spread of the reference's own values, channel by channel.

A difference of 0.05 is nothing in a box's corner and much in its confidence. So each channel is measured by the
standard deviation of the reference's values in it, over all real inputs.

Channels run along the axis that the output declares as "channels". By default that is the last axis of features, boxes,
logits, probabilities, embeddings and outputs with one axis. It is the first axis of pictures and masks, and the shorter
one of other outputs with two axes. Scores have a single scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from edgekit.model.spec import Array, Output

CHANNELS = "channels"
# Share of a channel's peak magnitude. A constant channel is measured by this, and one that moves much less than the
# others by at most this: fp16 keeps 11 bits, and through a network its errors add up to some thousandths of the peak
# (0.0012 in the logits of a seeded ViT that the Core ML interpreter runs). The floor lets fp16's limit, 0.05 of the
# spread, be 0.0015 of the peak at the least.
PEAK_FLOOR = 0.03
# Share of a channel's peak magnitude: two steps of fp16. A channel that spreads less is constant but for rounding.
CONSTANT = 1e-3
# Share of the spread of all channels. A channel that moves less is measured by this, up to PEAK_FLOOR: the errors of
# classes that are never likely come from what moves the others.
SHARED = 0.3
# Channels of a tensor, and values of one of its rows. So few are quantities of their own (a temperature, a pressure),
# in units that do not compare.
FEW_CHANNELS, FEW_VALUES = 16, 64
# As CONSTANT, of a quantity in fp32: 50 Hz that spreads by 0.027 is not constant.
CONSTANT_QUANTITY = 1e-5
# Times the reference's own noise. A smaller spread cannot be judged at 1e-3, the limit of fp32, without judging noise
# (four times the noise is the most that a difference may be due to it, as `verdict.NOISE_MULTIPLE` says).
NOISE_FLOOR = 4000.0
# Units of the output: keeps a division by the spread of zeros finite.
LEAST = 1e-30
_LAST = {"features", "boxes", "logits", "probabilities", "embedding"}
Spreads = Mapping[str, Array]
"""Output -> scale of each channel, float64 [channels]; `classes_of(output)` -> spread of its classes, float64 [1]."""


def classes_of(output: str) -> str:
    """Return the name of the spread of an output's classes in `Spreads`."""
    return f"classes of {output}"


def class_spread(values: Array) -> float:
    """Return the spread of classes along the last axis: the mean standard deviation over the classes."""
    return max(float(values.std(-1).mean()), LEAST)


def spreads(
    outputs: Sequence[Output],
    answers: Sequence[Mapping[str, Array]],
    noise: Mapping[str, float],
    rounding: float = 0.0,
    channel_noise: Mapping[str, Array] | None = None,
) -> Spreads:
    """Return the scales of all floating outputs.

    Args:
        outputs: Outputs of the model.
        answers: The reference's outputs for real inputs, rows first, one mapping per batch; sizes may differ between
            batches.
        noise: Noise of the reference, by output.
        rounding: The least scale as a share of a channel's peak (`Tolerance.rounding`).
        channel_noise: Measured noise of each channel of outputs whose channels are quantities, as `noise_by_channel`
            returns it.
    """
    by_output = {}
    for output in outputs:
        arrays = [a[output.name] for a in answers if output.name in a and a[output.name].dtype.kind == "f"]
        parts = [as_rows(output, array) for array in arrays if array.size]
        parts = [part for part in parts if part.shape[2] == parts[0].shape[2]]
        if parts:
            whole = np.concatenate([part.reshape(-1, part.shape[2]) for part in parts])
            own = are_quantities(output, parts[0])
            own_noise = np.full(whole.shape[1], noise.get(output.name, 0.0))
            if own:
                own_noise = _quantity_noise(whole, own_noise, (channel_noise or {}).get(output.name))
            by_output[output.name] = np.maximum(_scale(output, whole, rounding, own), NOISE_FLOOR * own_noise)
            by_output[middle_of(output.name)] = whole.mean(0)
            if output.role in ("logits", "probabilities"):
                by_output[classes_of(output.name)] = np.full(1, class_spread(whole))
    return by_output


def _quantity_noise(values: Array, noise: Array, measured: Array | None) -> Array:
    """Return the noise of each quantity of values [m, channels]; `noise` is the output's, once for each channel."""
    if measured is not None and len(measured) == len(noise) and not np.isnan(measured).all():
        # A channel that was constant (dead behind a ReLU) may move on other inputs, with noise like its neighbors'. The
        # lower median: in other units a neighbor's noise may be much larger.
        return np.where(np.isnan(measured), np.nanquantile(measured, 0.5, method="lower"), measured)
    # A reference recorded before the noise of channels was. Rounding is a share of a value: the noise of a pressure is
    # not that of a temperature beside it.
    peaks = np.abs(values).max(0)
    return np.asarray(noise * peaks / max(float(peaks.max()), LEAST))


def noise_by_channel(output: Output, runs: Sequence[tuple[Array, Array]]) -> Array | None:
    """Return the largest difference of each channel between runs of the same model, float64 [channels].

    A channel whose values are all equal has NaN: its noise is unknown. None if the channels are no quantities.

    Args:
        output: The output.
        runs: Pairs of runs, each [n, ...].
    """
    pairs = [(as_rows(output, first), as_rows(output, second)) for first, second in runs]
    if not pairs or not pairs[0][0].size or not are_quantities(output, pairs[0][0]):
        return None
    off = np.max([np.abs(first - second).max((0, 1)) for first, second in pairs], axis=0)
    return np.where(np.ptp(pairs[0][0], axis=(0, 1)) > 0, off, np.nan)


def middle_of(output: str) -> str:
    """Return the name of the mean of each channel of an output for real inputs, among the scales."""
    return f"{output}.middle"


def distances(output: Output, rows: Array, scales: Spreads) -> Array | None:
    """Return how far rows lie from the mean of real inputs' rows, [n]: in spreads, root mean square.

    None if no real row has as many channels.
    """
    values, spread, middle = as_rows(output, rows), scales.get(output.name), scales.get(middle_of(output.name))
    if spread is None or middle is None or values.shape[2] != len(spread):
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        far: Array = np.sqrt((((values - middle) / spread) ** 2).mean((1, 2)))
    return far


def are_quantities(output: Output, rows: Array) -> bool:
    """Return whether the channels of rows [n, positions, channels] are quantities of their own."""
    return output.role == "tensor" and (rows.shape[2] <= FEW_CHANNELS or rows[0].size <= FEW_VALUES)


def _scale(output: Output, values: Array, rounding: float, own: bool) -> Array:
    """Return the scale of each channel of values [m, channels]: float64 [channels]. `own` is `are_quantities`.

    The channels of an embedding share one unit, since only its direction counts: a channel that is zero for every real
    input is measured by the peak of all channels.
    """
    with np.errstate(invalid="ignore"):
        peaks = np.abs(values).max(0)
        peaks = np.full_like(peaks, peaks.max(initial=0.0)) if output.role == "embedding" else peaks
        spread = values.std(0)
        shared = 0.0 if own else SHARED * np.sqrt((spread * spread).mean())
        constant = CONSTANT_QUANTITY if own and not rounding else CONSTANT
        # A reading of 290 +- 1.5 is measured by its own 1.5, not by a share of 290.
        moving = np.minimum(PEAK_FLOOR * peaks, np.maximum(shared, rounding * peaks))
        floor = np.where(spread > constant * peaks, moving, PEAK_FLOOR * peaks)
        return np.asarray(np.maximum(np.maximum(spread, floor), LEAST))


def largest_scale(output: Output, rows: Array, scales: Spreads) -> Array:
    """Return the scale of each channel, [channels]: of real inputs, or of these rows if that is larger.

    If the number of channels varies with the size (similarities of a picture with some texts), each gets the mean scale
    of real inputs. Similar rows, as of one text repeated, have no spread.
    """
    if rows.dtype.kind != "f":
        return np.ones(1)
    own = as_rows(output, rows)
    scale = _scale(output, own.reshape(-1, own.shape[2]), 0.0, are_quantities(output, own))
    previous = scales.get(output.name)
    if previous is None:
        return scale
    return np.maximum(scale, previous if previous.shape == scale.shape else previous.mean())


def as_rows(output: Output, rows: Array, axis: int | None = None) -> Array:
    """Return an output's rows [n, ...] as float64 [n, positions, channels]; `axis` overrides its channel axis."""
    values = rows.astype(np.float64)
    small = output.role == "tensor" and not output.axes and values.ndim > 2 and values[:1].size <= FEW_VALUES
    if axis is None and small:
        # The numbers of two days: nobody said which axis has the quantities, so each value is one.
        return values.reshape(len(values), 1, -1)
    axis = channel_axis(output, values) if axis is None else axis
    if axis is None:
        return values.reshape(len(values), -1, 1)
    return np.moveaxis(values, axis, -1).reshape(len(values), -1, values.shape[axis])


def channel_axis(output: Output, rows: Array) -> int | None:
    """Return the axis of the channels in an output's rows [n, ...]; None if it has a single scale."""
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


# Standard errors: one in 16,000 independent channels exceeds this by chance (normal distribution).
CHANCE = 4.0
# Share of the spread: with less, a row or channel has no meaningful slope.
MOVING = 0.3
# Least values for a slope, a correlation, or the error of a channel.
FEWEST = 8
ACROSS_ROWS, PLACE, ALL_ROWS = "error across inputs", "error of a place", "all inputs"
# Values of a row.
USUAL = 2.0
"""Spreads of real rows: within them the reference answers a made input as it answers real ones."""
FAR = 5.0
"""Spreads of real rows: beyond them a gross error is measured by the reference's own distance, a part in FAR of it."""
MOST_PLACES = 1024
# Rows of a batch that may repeat some.
MOST_REPEATED = 64
# Share of the spread: an output that the inputs move less is treated as constant.
STILL = 0.02
# Share of the channel's spread: the least unit of the error of a place.
LEAST_MOVED = 0.1
# Metric, values, worst positions.
_Rows = Iterator[tuple[str, Array, Array]]


def peak_of(reference: Array) -> float:
    """Return the largest magnitude of all values; 1 if that is 0."""
    return float(np.abs(reference).max()) or 1.0


def relative_errors(reference: Array, answer: Array) -> Array:
    """Return each row's largest error over the reference's peak, float64 [n]; both [n, ...]; NaN stays NaN."""
    off = np.abs(answer.astype(np.float64) - reference).reshape(len(reference), -1)
    return np.asarray(off.max(axis=1) / peak_of(reference))


def row_deviations(z: Array, y: Array, array: Array) -> _Rows:
    """Yield the measures of each row, values [n].

    Args:
        z: The reference's values, [n, positions, channels], in units of the spread.
        y: The artifact's values, likewise.
        array: Bool [n, positions]: the positions to compare; a row without any has no deviation.
    """
    mask = np.broadcast_to(array[:, :, None], z.shape).reshape(len(z), -1)
    off = np.where(array[:, :, None], np.abs(y - z), 0.0)
    place = off.max(2).argmax(1) if off.shape[1] else np.zeros(len(z), np.int64)
    yield "deviation", off.reshape(len(z), -1).max(1, initial=0.0), place
    for metric, values in Sums.of(z.reshape(len(z), -1), y.reshape(len(z), -1), mask).lines():
        yield metric, values, place


def error_across_rows(z: Array, y: Array, array: Array) -> _Rows:
    """Yield the error of all rows in units of what the inputs move: one value, named ACROSS_ROWS.

    It is the root mean square of y - z over that of z less its mean over the rows, position by position. An output that
    is the same for all inputs has 1, even if its positions differ much more than its rows. It is 0 for fewer than
    FEWEST rows, or if the inputs move less than STILL.

    Args:
        z: As in `row_deviations`.
        y: Likewise.
        array: Likewise.
    """
    value = 0.0
    if len(z) >= FEWEST and array.all():
        moved, off = (float(np.sqrt((a * a).mean())) for a in (z - z.mean(0), y - z))
        value = off / moved if moved >= STILL else 0.0
    yield ACROSS_ROWS, np.full(1, value), np.full(1, -1)


@dataclass(frozen=True, eq=False)
class Sums:
    """Count and sums of each line of values (a row or a channel), float64 [lines]; batches add up.

    Attributes:
        count: Number of compared values.
        z: Sum of the reference's values, in units of the spread.
        y: Sum of the artifact's values.
        zz: Sum of squares of z.
        yy: Sum of squares of y.
        zy: Sum of products.
        off: Sum of squares of y - z.
    """

    count: Array
    z: Array
    y: Array
    zz: Array
    yy: Array
    zy: Array
    off: Array

    @classmethod
    def of(cls, z: Array, y: Array, mask: Array) -> Self:
        """Return the sums over the values [lines, m] in a mask."""
        z, y = np.where(mask, z, 0.0), np.where(mask, y, 0.0)
        return cls(mask.sum(1).astype(float), *(a.sum(1) for a in (z, y, z * z, y * y, z * y, (y - z) ** 2)))

    def __add__(self, other: Self) -> Self:
        """Return the sums over the values of both."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return type(self)(*(mine + two for mine, two in pairs))

    def bias(self, whole: Self) -> Array:
        """Return the magnitude of the mean signed error of each line, less what is chance by the errors of all rows."""
        count, error = np.maximum(self.count, 1), np.sqrt(whole.off / np.maximum(whole.count, 1))
        return np.asarray(np.maximum(np.abs(self.y - self.z) / count - CHANCE * error / np.sqrt(count), 0.0))

    def lines(self) -> Iterator[tuple[str, Array]]:
        """Yield error, gain, offset and correlation of each line."""
        count = np.maximum(self.count, 1)
        means = self.z / count, self.y / count
        yield "error", np.sqrt(self.off / count)
        zz, yy = (np.maximum(a - count * m * m, 0.0) for a, m in zip((self.zz, self.yy), means, strict=True))
        zy = self.zy - count * means[0] * means[1]
        moving = (zz / count >= MOVING**2) & (count >= FEWEST)
        slope = zy / np.where(moving, zz, 1.0)
        residual = np.maximum(yy - slope * zy, 0.0) / np.maximum(
            count - 2, 1
        )  # variance that the line does not explain
        by_chance = np.sqrt(residual / np.where(moving, zz, 1.0))
        yield "gain", np.where(moving, np.maximum(np.abs(slope - 1.0) - CHANCE * by_chance, 0.0), 0.0)
        spread = np.sqrt(np.maximum(self.off / count - (means[1] - means[0]) ** 2, 0.0) / count)
        offset = np.maximum(np.abs(means[1] - means[0]) - CHANCE * spread, 0.0)
        yield "offset", np.where(count >= FEWEST, offset, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation = np.where(yy > 0, zy / np.sqrt(zz * yy), 0.0)
        yield "correlation", np.where(moving, np.clip(np.nan_to_num(correlation), -1.0, 1.0), 1.0)


def place_errors(z: Array, y: Array, is_class: bool) -> _Rows:
    """Yield the error of the worst place over all rows, in units of what the inputs move it: one value.

    A place is one value of a row: a coordinate of a point, a confidence of a box. It is compared if the inputs move it
    by at least MOVING of what they move the median place; a place that stands still in the artifact has 1. One that
    moves by less than LEAST_MOVED is measured by that: a box of a fixed anchor moves little. It is 0 for fewer than
    FEWEST rows, for one position, and for more than MOST_PLACES, where the largest of so many is chance.

    Args:
        z: As in `row_deviations`.
        y: Likewise.
        is_class: True for classes, whose decisions have limits of their own: only different rows count, since in a
            batch that repeats four, the largest of hundreds of places is chance.
    """
    value, place = 0.0, -1
    count = len(np.unique(z.reshape(len(z), -1), axis=0)) if is_class and len(z) < MOST_REPEATED else len(z)
    if count >= FEWEST and z.shape[1] > 1 and z[0].size <= MOST_PLACES:
        moved, off = (np.sqrt((a * a).mean(0)).ravel() for a in (z - z.mean(0), y - z))
        compared = moved >= max(MOVING * float(np.median(moved)), STILL)
        shares = np.where(compared, off / np.maximum(moved, LEAST_MOVED), 0.0)
        value, place = float(shares.max()), int(shares.argmax())
    yield PLACE, np.full(1, value), np.full(1, place)


def channel_sums(z: Array, y: Array, array: Array) -> Sums:
    """Return the sums of each channel; arguments as in `row_deviations`."""
    mask = np.broadcast_to(array[:, :, None], z.shape)
    return Sums.of(*(np.moveaxis(a, 2, 0).reshape(a.shape[2], -1) for a in (z, y, mask)))


def channel_deviations(sums: Sums) -> _Rows:
    """Yield the measures of each channel, values [channels], named "channel ..."."""
    for metric, values in sums.lines():
        usable = np.where(sums.count >= FEWEST, values, 0.0) if metric == "error" else values
        yield f"channel {metric}", usable, np.full(len(values), -1)
