"""What a model declares: inputs, outputs, axes, evaluation. Frozen records, and no reading or writing.

The protocol for a model of your own is these records and nothing else: a function without arguments that returns a
`ModelSpec`, named on the command line as `package.module:factory`::

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
"""How a picture gets the proportions of a model's input."""

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
"""What an output is for, which decides how it is judged (shapes without the batch, which may stand anywhere):

- "scores" [N]: values in [0, 1] whose order matters; "counts" [N]: integers that follow from scores by
  `floor(low + (high - low) * score + 0.5)`; "ranking" [K]: indices of the largest scores, largest first; "features"
  [K, D]: rows that belong to the ranking.
- "logits" and "probabilities" [..., C], or with the classes along the axis that is declared as "channels": the largest
  is the answer; "labels": integers, which are equal.
- "boxes" [n, 4 or more], or with "channels" declared elsewhere: left, top, right, bottom, and what else there is.
- "detections" [most, 6]: left, top, right, bottom, score in 0 to 1, class, the best first, zeros after the last, as
  `edgekit.Detector` gives them; "count": how many there are of the detections that it is `of`.
- "mask" [..., H, W]: inside where above the middle of low and high.
- "embedding" [D]: its direction matters; "image" [C, H, W]: depth, denoised ...; "state": goes in again with the next
  run; "tensor": the rest.
"""
ORDERED = ("scores", "counts", "ranking")
"""Roles whose order matters, and whose differences are in units of a score."""


SUM = "+"
"""Between the axes, or sizes, whose sum is a dimension's size: an attention mask is as long as the past and the new."""


def axes_in(dimension: int | str) -> tuple[str, ...]:
    """The axes that a dimension's size is, or is a sum of."""
    terms = dimension.split(SUM) if isinstance(dimension, str) else ()
    return tuple(term for term in terms if not term.isdecimal())


def size_of(dimension: int | str, sizes: Mapping[str, int]) -> int:
    """A dimension's size where the axes have the given ones."""
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
        """All sizes."""
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
            (`vocabulary.json`, `embeddings.bin` beside the weights); "tensor" is anything else.
        fit: How a picture of other proportions gets the model's size, by every library alike: "stretch" each side on
            its own, "crop" the largest part in its middle that has them, "letterbox" it with grey borders.
        mean: Of a picture, what the module wants subtracted, one number a channel in units of [low, high]. This and
            the following are computed inside every artifact: all of them take RGB, channels first, in [low, high], and
            so do the evaluation and calibration sets.
        std: Likewise what the module wants the difference divided by, one number a channel.
        channels: The order of channels that it wants; `mean` and `std` have that order.
        layout: Where it wants its channels; `shape` is given in that order.
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

    @property
    def preprocessing(self) -> str:
        """How a real input is made, in a line for an artifact's metadata."""
        span = f"[{self.low:g}, {self.high:g}]"
        if self.kind == "image":
            fitted = {"stretch": "", "crop": ", cropped to its proportions", "letterbox": ", with grey borders"}
            return f"{self.name}: RGB, bytes scaled to {span}, channels first{fitted[self.fit]}"
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
        axes: A name for each of its axes, in order: "batch" is where its rows are, wherever it stands; without it the
            output is one thing for all rows of a run. "channels" names what has a scale of its own. Empty: the batch is
            the one axis whose size is always that of the batch (`edgekit.judge.rows`).
        classes: Names of the classes of logits, probabilities and labels, for people; empty where they have none.
        threshold: Of scores: nothing answers the question where the largest is below it; of detections: what each score
            exceeds. None where the model has none.
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
        names: One name an image, for "worst image" in reports.
        captions: One line an image to show beside it (the query's words), or none.
        truth: Ground truth [n, ...] for the metric, or None.
        metric: The task metric, or None.
        metric_name: What the metric is called in reports.
        others: Real inputs at other sizes than the defaults, each a row as one run takes it; asked where a shape of the
            grid has these sizes. They do not travel with a model.
    """

    inputs: Mapping[str, Array]
    names: tuple[str, ...]
    captions: tuple[str, ...] = ()
    truth: Array | None = None
    metric: Metric | None = None
    metric_name: str = "task metric"
    others: tuple[Mapping[str, Array], ...] = ()


CalibrationSet = EvaluationSet | Callable[[int], EvaluationSet] | Callable[[], EvaluationSet]
"""Samples, or what makes them: all, or as many as are asked for (`edgekit.model.evaluation_set.calibration_of`)."""


@dataclass(frozen=True)
class ModelSpec:
    """A model and everything that exporting and judging it needs.

    Attributes:
        name: Name of the build folder and of the artifacts; lower case, digits, dots and dashes.
        module: The module in eval mode with its weights; takes the inputs in order, returns a tensor or a tuple.
        inputs: Its inputs, in order.
        outputs: Its outputs, in order.
        axes: The dimensions that may vary, by name.
        factory: `package.module:function` that makes this spec again without arguments.
        evaluation: Makes the evaluation set; None means random inputs only.
        calibration: Calibration samples for quantization, as an `EvaluationSet` without truth, or a function that makes
            them and may take their number.
        reference: Folder of a recorded reference that ships with the model.
        translations: For operators of one's own, by "library::name": the function of onnxscript's operators that takes
            the same arguments and stands for it in ONNX; without branches or loops on values.
        decompositions: Likewise the function of PyTorch's own operators that stands for it everywhere else, and in ONNX
            where it has no translation.
        files: Further files that belong to the model and go into its folder, by name.
        licence: SPDX name of the weights' licence.
        author: Who made the weights.
        description: One sentence for artifact metadata.
        trained_on: What the weights were trained on, as a noun phrase for people ("drawn shapes on photographs"); the
            page of a bundle says it where the model finds nothing.
        notes: What a user of its artifacts should know; it stands in their manifests.
        words: What a user said of a factory's model on top (`edgekit.model.overrides.SpecOverrides`); edgekit sets it.
        brought: Which of "evaluation" and "calibration" were given beside a factory, which does not know them;
            edgekit sets it.
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
        """Results of packs that ship with the model, in the folder `results` beside its reference.

        They are judged where the build has the very artifacts that they are of.
        """
        return tuple(sorted(self.reference.with_name("results").glob("*.zip"))) if self.reference is not None else ()

    @property
    def facts(self) -> dict[str, str]:
        """What artifacts that have room for it say of the model: its name, licence, author and description, as set."""
        facts = {"author": self.author, "description": self.description, "licence": self.licence, "name": self.name}
        return {key: value for key, value in facts.items() if value}

    def shape(self, name: str, sizes: Mapping[str, int] | None = None) -> tuple[int, ...]:
        """Shape of an input where the named axes have the given sizes, and the others their defaults."""
        axis_sizes = {axis: spec.default for axis, spec in self.axes.items()} | dict(sizes or {})
        declared = next(i for i in self.inputs if i.name == name).shape
        return tuple(size_of(d, axis_sizes) for d in declared)

    def random(self, seed: int, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
        """Uniform random inputs from each input's low to its high, the same on every platform for a seed."""
        generator = np.random.Generator(np.random.PCG64(seed))
        arrays: dict[str, Array] = {}
        for i in self.inputs:
            unit = generator.random(self.shape(i.name, sizes))
            values = unit >= 0.5 if i.dtype == "bool" else i.low + (i.high - i.low) * unit
            if np.dtype(i.dtype).kind in "iu":  # both ends are drawn
                values = np.floor(i.low + (i.high - i.low + 1) * unit)
            arrays[i.name] = np.asarray(values).astype(i.dtype)
        return arrays

    def constant_inputs(self, share: float) -> dict[str, Array]:
        """Constant inputs at default sizes: each at this share of the way from its low to its high."""
        return {
            i.name: np.full(self.shape(i.name), i.low + share * (i.high - i.low), dtype=i.dtype) for i in self.inputs
        }
