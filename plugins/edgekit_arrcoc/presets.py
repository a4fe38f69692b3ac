"""Presets: the models of the family by name, and the recognition of checkpoints.

Each function takes no argument and returns a `ModelSpec`, so `edgekit_arrcoc.presets:arr_coc_tiny` is a model like
any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from edgekit.errors import CheckpointError
from edgekit.model.overrides import SpecOverrides
from edgekit.model.sources import checkpoint, factory
from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit_arrcoc import datasets
from edgekit_arrcoc.arr_coc_01 import ArrCoc01
from edgekit_arrcoc.attending import LEAST, MOST
from edgekit_arrcoc.knowing import QUERY_WIDTH
from edgekit_arrcoc.model import BASE, TINY, ArrCoc, Size, initialize
from edgekit_arrcoc.texture import PATCH, RANGE_FLOOR

HOME = Path(__file__).parent / "checkpoints" / "arr-coc-tiny"
"""The trained model that ships with edgekit."""

TRAINED_ON = "drawn shapes and emoji of things with names, on plain and drawn grounds and on photographs"
"""Training data of arr-coc-tiny (`training/scenes.py`, `training/flat.py`, `training/sprites.py`)."""

PRESENCE = "presence.json"
"""File with the threshold: if the highest relevance is below it, nothing in the image answers the query."""

QUERY_WIDTHS = (1536, 2048)
"""Hidden sizes of the language models behind ARR-COC 0.1 checkpoints."""

SEED = 20260
"""Seed of presets without trained weights."""

NAMED = 4
"""Number of an unknown checkpoint's names that an error lists."""

_BATCH = Axis(default=1, minimum=1, maximum=8)
# At least 6 x 6 = 36 patches, more than the 32 that are realized.
_EDGE = Axis(default=224, minimum=96, maximum=512, multiple_of=PATCH)
_OUTPUTS = (
    Output("relevance", role="scores"),
    Output("budgets", role="counts", of="relevance", dtype="int64", low=LEAST, high=MOST),
    Output("indices", role="ranking", of="relevance", dtype="int64"),
    Output("tokens", role="features", of="indices"),
)


def arr_coc_tiny() -> ModelSpec:
    """Return the trained model: width 192, 3 heads, 6 layers, 3.3 million parameters.

    Raises:
        CheckpointError: If its weights are missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = HOME / "model.safetensors"
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"the embedded weights '{path}' cannot be read ({error}). Reinstall edgekit") from error
    reference = HOME / "reference"
    spec = replace(from_checkpoint(tensors), trained_on=TRAINED_ON)
    return replace(spec, reference=reference if reference.is_dir() else None)


def arr_coc_base() -> ModelSpec:
    """Return the full-size architecture, 86 million parameters in the encoder, with seeded random weights."""
    module = ArrCoc(BASE)
    initialize(module, SEED)
    return _vision("arr-coc-base", module, "arr_coc_base", "seeded random weights")


OWN_NUMBERS = (
    "relevance is not the research code's: minima and maxima are taken in each picture, not over the batch, and a "
    f"range is divided by {RANGE_FLOOR:g} at the least, not by 1e-8, so that a flat map stays zero",
    "budgets are edgekit's: from 64 to 400 tokens a cell, in proportion to relevance",
)
"""Differences between the outputs of edgekit's ARR-COC 0.1 and of the public code."""


def arr_coc_0_1() -> ModelSpec:
    """Return ARR-COC 0.1 for a language model of hidden size 1536, with seeded random weights."""
    return _random_arr_coc_01(1536)


def arr_coc_0_1_wide() -> ModelSpec:
    """Return ARR-COC 0.1 for a language model of hidden size 2048, with seeded random weights."""
    return _random_arr_coc_01(2048)


def open_checkpoint(path: str, words: SpecOverrides, task: str) -> ModelSpec:
    """Return the model of this family that a file of weights fits.

    Raises:
        CheckpointError: If the file cannot be read, or fits no model of the family.
    """
    tensors = checkpoint.read_checkpoint(Path(path))
    spec = factory.call_factory(from_checkpoint, f"{__name__}:from_checkpoint", tensors)
    return checkpoint.as_their_own(spec, Path(path), factory.load_shipped(spec.factory))


def from_checkpoint(tensors: Mapping[str, Tensor]) -> ModelSpec:
    """Return the model of a checkpoint's tensors, recognised by their names and shapes.

    Args:
        tensors: State dict of arr-coc-tiny, arr-coc-base or ARR-COC 0.1. `base_model.*` is the language model of a full
            0.1 checkpoint, which the front-end does not have: it is ignored.

    Raises:
        CheckpointError: If the family is unknown, or names, shapes or values are wrong.
    """
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith("base_model.")}
    if any(name.startswith(("participatory_scorer.", "balancer.")) for name in own):
        width = _query_width(own)
        module: nn.Module = ArrCoc01(width)
        _fill(module, own, f"arr-coc-0.1 with queries of width {width}")
        return _declare_arr_coc_01(module, width, "weights from a checkpoint")
    if "texture.patch.weight" in own:
        name, factory, size = _size(own["texture.patch.weight"])
        module = ArrCoc(size)
        _fill(module, own, name)
        return _vision(name, module, factory, "weights from a checkpoint")
    first = ", ".join(f"'{name}'" for name in sorted(own)[:NAMED]) or "none"
    raise CheckpointError(
        "the checkpoint is of no known family: it has neither 'texture.patch.weight' (arr-coc-tiny, arr-coc-base) nor "
        f"'participatory_scorer.*' (ARR-COC 0.1); its first names are {first}. To load your own model, name a function "
        "that returns its ModelSpec: package.module:factory --weights FILE"
    )


def _size(patch: Tensor) -> tuple[str, str, Size]:
    """Return name, factory and size of the model with this patch embedding."""
    sizes = {TINY.width: ("arr-coc-tiny", "arr_coc_tiny", TINY), BASE.width: ("arr-coc-base", "arr_coc_base", BASE)}
    width = patch.shape[0] if patch.dim() else 0
    if width not in sizes:
        raise CheckpointError(
            f"the checkpoint's width, '{width}' in 'texture.patch.weight', is neither {TINY.width} (arr-coc-tiny) nor "
            f"{BASE.width} (arr-coc-base). Name a checkpoint of one of them"
        )
    return sizes[width]


def _query_width(tensors: Mapping[str, Tensor]) -> int:
    """Return the width of an ARR-COC 0.1 checkpoint's queries."""
    last = tensors.get("participatory_scorer.texture_proj.2.weight")
    if last is None or last.dim() == 0:
        raise CheckpointError(
            "the ARR-COC 0.1 checkpoint lacks 'participatory_scorer.texture_proj.2.weight', which determines the width "
            "of its queries. Save the front-end's weights again"
        )
    if last.shape[0] not in QUERY_WIDTHS:
        raise CheckpointError(
            f"the ARR-COC 0.1 checkpoint is for queries of width '{last.shape[0]}'. Known widths: "
            f"{' and '.join(map(str, QUERY_WIDTHS))}"
        )
    return int(last.shape[0])


def _fill(module: nn.Module, tensors: Mapping[str, Tensor], name: str) -> None:
    """Load tensors into a module; names and shapes must match exactly."""
    state = module.state_dict()
    fitting = checkpoint.fit_checkpoint(
        tensors, {key: tuple(own.shape) for key, own in state.items()}, origin=f"the checkpoint, read as {name},"
    )
    if whole := [key for key, tensor in fitting.items() if not tensor.is_floating_point()]:
        raise CheckpointError(f"'{whole[0]}' of the checkpoint, read as {name}, has integers. Name a float checkpoint")
    module.load_state_dict({key: tensor.to(state[key].dtype) for key, tensor in fitting.items()})


def _vision(name: str, module: nn.Module, factory: str, weights: str) -> ModelSpec:
    """Declare arr-coc-tiny or arr-coc-base."""
    trained = name == "arr-coc-tiny"
    # The threshold belongs to the trained weights; other weights of this shape may have none.
    tuned = {PRESENCE: HOME / PRESENCE} if trained and (HOME / PRESENCE).is_file() else {}
    threshold = json.loads(tuned[PRESENCE].read_text())["threshold"] if tuned else None

    def evaluate() -> EvaluationSet:
        # Random weights have no task to be good at, so they get the same images without truth.
        dataset = datasets.evaluation_set(HOME / "evaluation")
        if not trained:
            return replace(dataset, truth=None)
        return replace(dataset, metric=datasets.coverage, metric_name="coverage@32")

    return ModelSpec(
        name=name,
        module=module.eval(),
        inputs=(
            Input("images", ("batch", 3, "height", "width"), kind="image"),
            Input("queries", ("batch", QUERY_WIDTH), low=-1.0, high=1.0, kind="query"),
        ),
        outputs=(replace(_OUTPUTS[0], threshold=threshold), *_OUTPUTS[1:]),
        axes={"batch": _BATCH, "height": _EDGE, "width": _EDGE},
        factory=f"{__name__}:{factory}",
        evaluation=evaluate,
        calibration=lambda count: datasets.calibration_set(HOME / "calibration", count),
        files={file: HOME / file for file in ("vocabulary.json", "embeddings.bin", "credits.json")} | tuned,
        licence="Apache-2.0",
        author="edgekit",
        description=f"ARR-COC front-end: relevance of image patches to a query; {weights}.",
    )


def _random_arr_coc_01(width: int) -> ModelSpec:
    """Return ARR-COC 0.1 with random weights."""
    module = ArrCoc01(width)
    initialize(module, SEED, fan_in=True)
    return _declare_arr_coc_01(module, width, "seeded random weights")


def _declare_arr_coc_01(module: nn.Module, width: int, weights: str) -> ModelSpec:
    """Declare ARR-COC 0.1."""

    def evaluate() -> EvaluationSet:
        return datasets.with_wide_queries(lambda: datasets.evaluation_set(HOME / "evaluation"), width)

    def calibrate(count: int) -> EvaluationSet:
        return datasets.with_wide_queries(lambda: datasets.calibration_set(HOME / "calibration", count), width)

    return ModelSpec(
        name="arr-coc-0.1",
        module=module.eval(),
        inputs=(
            Input("images", ("batch", 3, "height", "width"), kind="image"),
            Input("queries", ("batch", width), low=-1.0, high=1.0),
        ),
        outputs=_OUTPUTS,
        axes={"batch": _BATCH, "height": _EDGE, "width": _EDGE},
        factory=f"{__name__}:{'arr_coc_0_1' if width == QUERY_WIDTHS[0] else 'arr_coc_0_1_wide'}",
        evaluation=evaluate,
        calibration=calibrate,
        licence="MIT",
        author="ARR-COC",
        description=f"ARR-COC 0.1 front-end: relevance of a picture's 32 x 32 cells to a query; {weights}.",
        notes=OWN_NUMBERS,
    )
