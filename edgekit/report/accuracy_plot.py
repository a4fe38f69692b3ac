"""The plot of errors: where dots, limits and noise are, in percent of the width, on a logarithmic axis.

Drawn by the page as SVG without a view box: positions are relative, while dots, lines and letters keep their size at
every width, follow the page's light or dark colours, and stay sharp on paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgekit.model.spec import Array
from edgekit.reference.info import Noise, ReferenceInfo
from edgekit.report import formats
from edgekit.report.study import ReportRow, Study

MOST_DOTS = 160  # a row; more images are thinned out, the worst always stays
SMALLEST = 1e-12  # a difference of zero is drawn at the left end
STRIP = 44  # pixels: height of a row of dots
SPREAD = 24  # pixels over which dots of one row are spread, so that they do not hide each other
GOLDEN = 0.618034  # keeps neighbours apart
MOST_LABELS = 9  # decades; beyond, every second one is labelled


@dataclass(frozen=True)
class Tick:
    """A grid line."""

    x: float
    label: str


@dataclass(frozen=True)
class Dot:
    """One image of the evaluation set."""

    x: float
    y: float
    title: str


@dataclass(frozen=True)
class Strip:
    """One row of the plot: the largest error in each image, its quartiles, its limit and the reference's noise."""

    row: ReportRow
    dots: tuple[Dot, ...] = ()
    box: tuple[float, float, float] | None = None
    worst: Dot | None = None
    limit: float | None = None
    noise: float | None = None
    said: str = ""


@dataclass(frozen=True)
class Accuracy:
    """The plot."""

    strips: tuple[Strip, ...]
    ticks: tuple[Tick, ...]


def errors(scores: Mapping[str, Array], recorded: Mapping[str, Array]) -> Array | None:
    """The largest absolute error of all scores in each image, float64 [n]; NaN where a map is not finite."""
    found = [
        np.abs(np.asarray(maps, np.float64) - recorded[name]).max(1, initial=0)
        for name, maps in scores.items()
        if name in recorded and recorded[name].shape == maps.shape and maps.ndim == 2
    ]
    return np.asarray(np.max(found, axis=0)) if found else None


def _largest(row: ReportRow, recorded: Mapping[str, Array]) -> Array | None:
    """The largest error in each image: of scores absolute, of other outputs over their peak."""
    shown = [np.asarray(values, np.float64) for values in row.errors.values() if values.ndim == 1]
    if row.scores or not shown:
        return errors(row.scores, recorded)
    known = min(map(len, shown))  # of a large output the reference holds the first images only
    return np.asarray(np.max([values[:known] for values in shown], axis=0))


def plot_accuracy(study: Study, recorded: Mapping[str, Array]) -> Accuracy:
    """Lay out one strip for each row that has anything to show."""
    rows = [row for row in study.rows if row.scores or row.error]
    found = {id(row): _largest(row, recorded) for row in rows}
    low, high = _decades(_marks(rows, found.values(), study.reference.noise))

    def x(value: float) -> float:
        return round(100 * min(1.0, max(0.0, (math.log10(max(value, SMALLEST)) - low) / (high - low))), 2)

    step = 1 if high - low < MOST_LABELS else 2
    ticks = (Tick(x(10.0**tick), f"1e{tick}" if tick else "1") for tick in range(low, high + 1, step))
    return Accuracy(tuple(_strip(row, found[id(row)], x, study.reference) for row in rows), tuple(ticks))


def _marks(rows: Sequence[ReportRow], found: Iterable[Array | None], noise: Sequence[Noise]) -> list[float]:
    marks = [value for array in found if array is not None for value in array[np.isfinite(array)].tolist()]
    for measure in [row.error for row in rows]:
        marks += [value for value in (measure.value, measure.limit) if value] if measure else []
    return [mark for mark in marks + [n.value for n in noise] if mark > SMALLEST]


def _decades(marks: Sequence[float]) -> tuple[int, int]:
    low, high = min(marks, default=1e-7), max(marks, default=1.0)
    first = math.floor(math.log10(low) - 0.1)
    return first, max(first + 2, math.ceil(math.log10(high) + 0.1))


def _strip(row: ReportRow, values: Array | None, x: Callable[[float], float], reference: ReferenceInfo) -> Strip:
    measure = row.error
    limit = x(measure.limit) if measure and measure.limit is not None else None
    outputs = row.scores or ([measure.output] if measure else [])
    noise = max((found.value for found in reference.noise if found.output in outputs), default=None)
    strip = Strip(row, limit=limit, noise=x(noise) if noise else None)
    if values is None:
        value = measure.value if measure else None
        dot = Dot(x(value), STRIP / 2, f"worst: {formats.plain(value)}") if value is not None else None
        return replace(strip, worst=dot, said="only the worst image is known" if dot else "no finite value")
    finite = np.flatnonzero(np.isfinite(values))
    lost = len(values) - len(finite)
    strip = replace(strip, said=f"{lost} of {len(values)} images are not finite" if lost else "")
    if not len(finite):
        return strip
    order = finite[np.argsort(values[finite], kind="stable")].tolist()
    shown = [order[i] for i in np.unique(np.linspace(0, len(order) - 1, MOST_DOTS).astype(int))]
    dots = tuple(_dot(i, image, float(values[image]), x, reference) for i, image in enumerate(shown))
    low, middle, high = (x(float(q)) for q in np.quantile(values[finite], (0.25, 0.5, 0.75)))
    worst = Dot(x(float(values[order[-1]])), STRIP / 2, f"worst: {_titled(order[-1], values[order[-1]], reference)}")
    return replace(strip, dots=dots, box=(low, middle, high), worst=worst)


def _dot(i: int, image: int, value: float, x: Callable[[float], float], reference: ReferenceInfo) -> Dot:
    y = STRIP / 2 + SPREAD * ((i * GOLDEN) % 1 - 0.5)
    return Dot(x(value), round(y, 1), _titled(image, value, reference))


def _titled(image: int, value: float, reference: ReferenceInfo) -> str:
    return f"{reference.name(image)}: {formats.plain(value)}"
