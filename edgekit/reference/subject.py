"""A model as its reference sees it: what is asked of it, which weights it has, and how it is run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from edgekit.model.evaluation_set import evaluation_of
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.model.spec import Array, Evaluation, ModelSpec, Output
from edgekit.reference.batches import Batch, batches_for
from edgekit.reference.store import declaration
from edgekit.runtime.protocol import Runtime

LATENCY_BATCHES = (1, 32)


class Opened(Protocol):
    """Opens a copy of the model."""

    def __call__(self, device: str = "cpu", double: bool = False) -> Runtime:
        """Open it on "cpu" or "cuda", in fp32 or in fp64."""


@dataclass(frozen=True)
class Subject:
    """What recording and checking a reference needs of a model.

    Attributes:
        name: Of the model.
        weights_sha256: What a recorded reference belongs to.
        shipped: Folder of the reference that ships with the model, or None.
        evaluation: Its evaluation set, or None.
        asked: The batches of inputs, without outputs.
        declared: Its inputs and axes, as `edgekit.reference.store.declaration` gives them.
        outputs: What it answers with.
        timed: One batch of inputs for each batch size that is timed, by "batch 1" and "batch 32".
        opened: Opens a copy of the model.
        timed_on_cuda: Times a batch on a GPU, by way of running.
    """

    name: str
    weights_sha256: str
    shipped: Path | None
    evaluation: Evaluation | None
    asked: tuple[Batch, ...]
    declared: Mapping[str, object]
    outputs: tuple[Output, ...]
    timed: Mapping[str, Mapping[str, Array]]
    opened: Opened
    timed_on_cuda: Callable[[Mapping[str, Array]], dict[str, dict[str, object]]]

    @property
    def features(self) -> frozenset[str]:
        """Outputs of which a reference that ships keeps sketches."""
        return frozenset(o.name for o in self.outputs if o.role == "features")


def subject_of(spec: ModelSpec) -> Subject:
    """Take from a model what its reference needs."""
    from edgekit.reference.cuda_timing import timings
    from edgekit.runtime.eager import EagerRuntime

    def copied() -> ModelSpec:
        return replace(spec, module=copy.deepcopy(spec.module))

    def opened(device: str = "cpu", double: bool = False) -> Runtime:
        return EagerRuntime(copied(), device, double)

    def timed_on_cuda(inputs: Mapping[str, Array]) -> dict[str, dict[str, object]]:
        return timings(copied(), inputs)

    evaluation = _dense(evaluation_of(spec))
    sizes = LATENCY_BATCHES if "batch" in spec.axes else LATENCY_BATCHES[:1]
    asked = batches_for(spec, evaluation)
    timed = {f"batch {size}": spec.random(7, {"batch": size}) for size in sizes}
    return Subject(
        name=spec.name,
        weights_sha256=weights_digest(spec),
        shipped=spec.reference,
        evaluation=evaluation,
        asked=asked,
        declared=declaration(spec),
        outputs=spec.outputs,
        timed=timed,
        opened=opened,
        timed_on_cuda=timed_on_cuda,
    )


def _dense(evaluation: Evaluation | None) -> Evaluation | None:
    """The set with arrays without gaps in memory, their axes in the same order: a reader of a build has the same."""
    if evaluation is None:
        return None
    return replace(evaluation, inputs={name: np.copy(array, order="K") for name, array in evaluation.inputs.items()})
