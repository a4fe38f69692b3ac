"""The declaration of a model: inputs, outputs, axes, evaluation. Frozen records without any I/O.

To declare your own model, write a function without arguments that returns a `ModelSpec`, and name it on the command
line as `package.module:factory`::

    from edgekit.model import Axis, Input, ModelSpec, Output

    def factory() -> ModelSpec:
        return ModelSpec(
            name="resnet",
            module=net.eval(),
            inputs=(Input("images", ("batch", 3, "height", "width"), kind="image"),),
            outputs=(Output("logits"),),
            axes={"batch": Axis(1, 1, 8), "height": Axis(224, 64, 512, 32), "width": Axis(224, 64, 512, 32)},
            evaluation=my_images,        # optional: a function that returns an Evaluation
        )
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

    from edgekit.model.overrides import SpecOverrides

Array = npt.NDArray[Any]
"""A NumPy array of any dtype; shapes are given in docstrings."""

Metric = Callable[[Mapping[str, Array], Array], Array]
"""(outputs of n images, truth of n images) -> float64 [n], each in [0, 1], larger is better."""


Fit = Literal["stretch", "crop", "letterbox"]
"""Ways to fit an image to the proportions of a model's input."""

Role = Literal[
    "scores",
    "counts",
    "ranking",
    "features",
    "logits",
    "probabilities",
    "labels",
    "boxes",
    "detections",
    "count",
    "mask",
    "embedding",
    "image",
    "state",
    "tensor",
]
"""Purpose of an output, which decides how it is judged (shapes without the batch, which may be at any position):

- "scores" [N]: values in [0, 1], each with a meaning of its own (relevance, a probability of yes); "counts" [N]:
  integers that follow from scores by `floor(low + (high - low) * score + 0.5)`; "ranking" [K]: indices of the largest
  scores, largest first; "features" [K, D]: rows that belong to the ranking.
- "logits" and "probabilities" [..., C], or with the classes along the axis declared as "channels": the largest is the
  answer; "labels": integers, compared for equality.
- "boxes" [n, 4 or more], or with "channels" declared elsewhere: left, top, right, bottom, and further values.
- "detections" [most, 6]: left, top, right, bottom, score in 0 to 1, class, best first, zero-padded, as returned by
  `edgekit.Detector`; "count": the number of detections in the output that it is `of`.
- "mask" [..., H, W]: inside if above the middle of low and high.
- "embedding" [D]: its direction matters; "image" [C, H, W]: depth, denoised ...; "state": an input of the next run;
  "tensor": everything else.
"""
ORDERED = ("scores", "counts", "ranking")
"""Roles in which order matters, and whose differences are in units of a score."""


MOST_SIZES = 1 << 20
"""Largest number of sizes of an axis."""
MOST_VALUES = 1 << 30
"""Largest number of values of an input at default sizes: 4 GiB of float32."""
SUM = "+"
"""Separator of the axes, or sizes, whose sum is a dimension: an attention mask spans past and new tokens."""


def axes_in(dimension: int | str) -> tuple[str, ...]:
    """Return the axis of a dimension, or the axes of its sum."""
    terms = dimension.split(SUM) if isinstance(dimension, str) else ()
    return tuple(term for term in terms if not term.isdecimal())


def size_of(dimension: int | str, sizes: Mapping[str, int]) -> int:
    """Return a dimension's size at the given sizes of the axes."""
    if isinstance(dimension, int):
        return dimension
    return sum(int(term) if term.isdecimal() else sizes[term] for term in dimension.split(SUM))


@dataclass(frozen=True)
class Axis:
    """A dimension that may vary.

    Attributes:
        default: Size used for examples, for static artifacts and for the default latency.
        minimum: Smallest size that the model accepts.
        maximum: Largest size that is proved and advertised.
        multiple_of: Sizes must be a multiple of this.
    """

    default: int
    minimum: int = 1
    maximum: int = 8
    multiple_of: int = 1

    @property
    def sizes(self) -> range:
        """All possible sizes."""
        first = -(-self.minimum // self.multiple_of) * self.multiple_of
        return range(first, self.maximum + 1, self.multiple_of)


@dataclass(frozen=True)
class Input:
    """One input of the module, in the order of `forward`.

    Attributes:
        name: Name in every artifact.
        shape: Sizes; a string names an entry of `ModelSpec.axes`, or a sum of them ("past+tokens").
        dtype: NumPy name.
        low: Smallest value a real input has; with `high` it bounds the stress inputs.
        high: Largest value a real input has.
        kind: "image" is RGB, NCHW, scaled from bytes to [low, high]; "query" is the mean of word embeddings
            (`vocabulary.json`, `embeddings.bin` next to the weights); "tensor" is anything else.
        fit: How an image of other proportions gets the model's size, the same in every library: "stretch" each side
            separately, "crop" the largest centred part with the proportions, "letterbox" it with grey borders.
        mean: Subtracted from an image, one number per channel in units of [low, high]. This and the following
            fields become part of every artifact: all artifacts take RGB, channels first, in [low, high], and so do
                    the
            evaluation and calibration sets.
        std: Divisor of the difference, one number per channel.
        channels: The order of channels in the module; `mean` and `std` have that order.
        layout: The layout of the module's input; `shape` is given in that order.
        takes: What artifacts take in place of float32 NCHW: "uint8" for bytes, "nhwc" for [batch, height, width, 3].
            Evaluation and calibration sets may have either form.
        float_range: For an image of bytes, the [low, high] that the module takes; edgekit sets it.
        sorted: "ascending": each run's values rise along the last axis, from `low` on (offsets of an EmbeddingBag).
            "descending": they fall from `high` on (a mask of ones, then zeros). Empty: any order.
        at_most: An axis, a sum of axes or a number, which no value exceeds: lengths are at most the size of "time".
        below: Likewise for values that stay below it: positions in another input.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"
    low: float = 0.0
    high: float = 1.0
    kind: Literal["image", "query", "tensor"] = "tensor"
    fit: Fit = "stretch"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    channels: Literal["RGB", "BGR"] = "RGB"
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    takes: tuple[Literal["uint8", "nhwc"], ...] = ()
    float_range: tuple[float, ...] = ()
    sorted: Literal["", "ascending", "descending"] = ""
    at_most: str = ""
    below: str = ""

    def largest(self, sizes: Mapping[str, int]) -> float:
        """Return the largest value at some sizes of the axes."""
        return max(self.low, min(self.high, self.bound(sizes)))

    def bound(self, sizes: Mapping[str, int]) -> float:
        """Return the bound that the sizes of the axes set; infinite without one."""
        at_most = size_of(self.at_most, sizes) if self.at_most else math.inf
        return min(at_most, size_of(self.below, sizes) - 1 if self.below else math.inf)

    def conform(self, values: Array, sizes: Mapping[str, int]) -> Array:
        """Return values of one run that hold what the input is said to hold, at its sizes of the axes."""
        if self.at_most or self.below:
            values = np.minimum(values, np.asarray(self.largest(sizes)).astype(self.dtype))
        if self.sorted and values.ndim and values.shape[-1]:
            rising = self.sorted == "ascending"
            values = np.sort(values, axis=-1)[..., :: 1 if rising else -1].copy()
            values[..., 0] = self.low if rising else self.largest(sizes)
        return values

    @property
    def is_constrained(self) -> bool:
        """True if not all values in its range make an input."""
        return bool(self.sorted or self.at_most or self.below)

    @property
    def preprocessing(self) -> str:
        """Preparation of a real input, as a line of an artifact's metadata."""
        span = f"[{self.low:g}, {self.high:g}]"
        if self.kind == "image":
            fitted = {"stretch": "", "crop": ", cropped to its proportions", "letterbox": ", with grey borders"}
            scaled = "bytes" if self.float_range else f"bytes scaled to {span}"
            order = "last" if self.layout == "NHWC" else "first"
            return f"{self.name}: RGB, {scaled}, channels {order}{fitted[self.fit]}"
        if self.kind == "query":
            return f"{self.name}: the mean of the query's word embeddings"
        return f"{self.name}: values in {span}"


@dataclass(frozen=True)
class Output:
    """One output of the module, in the order of the tuple that `forward` returns.

    Attributes:
        name: Name in every artifact.
        role: How it is judged: one of `Role`.
        of: The output that a "counts", "ranking", "features" or "count" output is derived from.
        dtype: NumPy name.
        low: Smallest count; of a mask the value that is surely outside.
        high: Largest count; of a mask the value that is surely inside.
        axes: A name for each of its axes, in order: "batch" marks the axis of its rows; without it the
            output is shared by all rows of a run. "channels" marks the axis with a scale per entry. Empty: the
            batch is the one axis whose size always equals the batch (`edgekit.judge.rows`).
        classes: Readable names of the classes of logits, probabilities and labels; may be empty.
        threshold: Of scores: no answer if the largest is below it; of detections: lower limit of each
            score. None if the model has none.
    """

    name: str
    role: Role = "tensor"
    of: str = ""
    dtype: str = "float32"
    low: float = 0.0
    high: float = 1.0
    axes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    threshold: float | None = None


@dataclass(frozen=True)
class EvaluationSet:
    """Real inputs on which artifacts are judged.

    Attributes:
        inputs: For each input name an array [n, ...].
        names: One name per image, for "worst image" in reports.
        captions: One line per image to show next to it (the query's words), or none.
        truth: Ground truth [n, ...] for the metric, or None.
        metric: The task metric, or None.
        metric_name: Name of the metric in reports.
        others: Real inputs at other sizes than the defaults, each a row as one run takes it; used if a shape of the
            grid has these sizes. They are not stored with a model.
    """

    inputs: Mapping[str, Array]
    names: tuple[str, ...]
    captions: tuple[str, ...] = ()
    truth: Array | None = None
    metric: Metric | None = None
    metric_name: str = "task metric"
    others: tuple[Mapping[str, Array], ...] = ()


CalibrationSet = EvaluationSet | Callable[[int], EvaluationSet] | Callable[[], EvaluationSet]
"""Samples, or a function that makes all of them or a given number (`edgekit.model.evaluation_set.calibration_of`)."""


@dataclass(frozen=True)
class ModelSpec:
    """A model and all data needed to export and judge it.

    Attributes:
        name: Name of the build folder and of the artifacts; lower case, digits, dots and dashes.
        module: The module in eval mode with its weights; takes the inputs in order, returns a tensor or a tuple.
        inputs: Its inputs, in order.
        outputs: Its outputs, in order.
        axes: The dimensions that may vary, by name.
        factory: `package.module:function` that makes this spec again without arguments.
        evaluation: Makes the evaluation set; None means random inputs only.
        calibration: Calibration samples for quantization, as an `EvaluationSet` without truth, or a function that
            makes them and may take their number.
        reference: Folder of a recorded reference that ships with the model.
        translations: Replacements of custom operators in ONNX, by "library::name": functions of onnxscript's
            operators with the same arguments, without branches or loops on values.
        decompositions: Replacements of custom operators everywhere else, by "library::name": functions of PyTorch's
            own operators. Also used in ONNX for operators without a translation.
        files: Further files that belong to the model and go into its folder, by name.
        licence: SPDX name of the weights' licence.
        author: Who made the weights.
        description: One sentence for artifact metadata.
        trained_on: Training data, as a noun phrase for people ("drawn shapes on photographs"); a bundle's page
            shows it if the model finds nothing.
        notes: Notes for users of the artifacts; stored in their manifests.
        words: User-written facts about a factory's model (`edgekit.model.overrides.SpecOverrides`); edgekit sets
            it.
        brought: Which of "evaluation" and "calibration" the user gave in addition to a factory; edgekit sets it.
    """

    name: str
    module: torch.nn.Module
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    axes: Mapping[str, Axis] = field(default_factory=dict)
    factory: str = ""
    evaluation: Callable[[], EvaluationSet] | None = None
    calibration: CalibrationSet | None = None
    reference: Path | None = None
    translations: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    decompositions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    licence: str = ""
    author: str = ""
    description: str = ""
    trained_on: str = ""
    notes: tuple[str, ...] = ()
    words: SpecOverrides | None = None
    brought: frozenset[str] = frozenset()

    @property
    def results(self) -> tuple[Path, ...]:
        """Results of packs that ship with the model, in the folder `results` next to its reference.

        They are judged if the build has exactly their artifacts.
        """
        return tuple(sorted(self.reference.with_name("results").glob("*.zip"))) if self.reference is not None else ()

    @property
    def facts(self) -> dict[str, str]:
        """Metadata for artifacts: the model's name, licence, author and description, if set."""
        facts = {"author": self.author, "description": self.description, "licence": self.licence, "name": self.name}
        return {key: value for key, value in facts.items() if value}

    def shape(self, name: str, sizes: Mapping[str, int] | None = None) -> tuple[int, ...]:
        """Return the shape of an input at the given sizes of the named axes, and the defaults of the others."""
        axis_sizes = self._sizes(sizes)
        declared = next(i for i in self.inputs if i.name == name).shape
        return tuple(size_of(d, axis_sizes) for d in declared)

    def random(self, seed: int, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
        """Return uniform random inputs from each input's low to its high, the same on every platform for a seed."""
        generator = np.random.Generator(np.random.PCG64(seed))
        arrays: dict[str, Array] = {}
        for i in self.inputs:
            unit, high = generator.random(self.shape(i.name, sizes)), i.largest(self._sizes(sizes))
            values = unit >= 0.5 if i.dtype == "bool" else i.low + (high - i.low) * unit
            # Both ends of a range of integers are drawn.
            if np.dtype(i.dtype).kind in "iu":
                values = np.floor(i.low + (high - i.low + 1) * unit)
            arrays[i.name] = np.asarray(values).astype(i.dtype)
        return self.conform(arrays)

    def constant_inputs(self, share: float) -> dict[str, Array]:
        """Return constant inputs at default sizes: each at this share of the way from its low to its high."""
        return self.conform(
            {i.name: np.full(self.shape(i.name), i.low + share * (i.high - i.low), dtype=i.dtype) for i in self.inputs}
        )

    def conform(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the inputs of one run, in which each input is sorted and bounded as it is declared to be."""
        sizes = self._sizes_in(arrays)
        return {i.name: i.conform(arrays[i.name], sizes) if i.is_constrained else arrays[i.name] for i in self.inputs}

    def find_violation(self, arrays: Mapping[str, Array]) -> str:
        """Return the first input of a run that is not as it is declared to be; empty if all are."""
        sizes = self._sizes_in(arrays)
        for i in self.inputs:
            values, sign = arrays[i.name], -1 if i.sorted == "descending" else 1
            unsorted = i.sorted and values.ndim and (sign * np.diff(values.astype(np.float64)) < 0).any()
            if unsorted or (values > i.bound(sizes)).any():
                return i.name
        return ""

    def _sizes_in(self, arrays: Mapping[str, Array]) -> dict[str, int]:
        """Return the size of each axis in one run."""
        shapes = [zip(i.shape, arrays[i.name].shape, strict=False) for i in self.inputs]
        return self._sizes({str(d): size for shape in shapes for d, size in shape if d in self.axes})

    def _sizes(self, sizes: Mapping[str, int] | None) -> dict[str, int]:
        """Return the size of each axis: the given ones, and the defaults of the others."""
        return {axis: spec.default for axis, spec in self.axes.items()} | dict(sizes or {})
