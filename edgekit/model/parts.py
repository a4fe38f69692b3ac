"""A model of several graphs: named parts, each a model of its own, and a driver that says how they are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgekit.errors import ModelError
from edgekit.model.contract import check_name
from edgekit.model.overrides import Given
from edgekit.model.spec import Array, ModelSpec, Output

if TYPE_CHECKING:
    import torch


class Session(Protocol):
    """A part that answers: the module itself, or an artifact (what `edgekit.load` opens is one)."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch: arrays by input name in, arrays by output name out."""


Driver = Callable[[Mapping[str, Session], Any], "Array | Mapping[str, Array]"]
"""(the parts by name, one of the model's inputs) -> what the whole model answers: an array, or arrays by name."""


@dataclass(frozen=True)
class Component:
    """A module as a part. What it takes is seen when the driver calls it for the first time.

    Attributes:
        module: In eval mode.
        axes: Which dimensions vary, as `edgekit.export` takes it; None lets the first one of each input be the batch.
        inputs: What is said of inputs, likewise. Ranges that are not said follow from all that the driver gives.
        outputs: Likewise of outputs.
        example: Where `forward` takes something else than tensors by name, as `edgekit.export` takes it; the driver
            gives its tensors by the names that they have there.
    """

    module: torch.nn.Module
    axes: Given = None
    inputs: Given = None
    outputs: Given = None
    example: Any = None


@dataclass(frozen=True)
class CompositeModel:
    """A model of several graphs.

    Each part is exported as a build of its own and judged on what the driver gives it; then the driver runs with the
    artifacts in the place of the modules, and what it answers is judged by what it answered with the modules.

    Attributes:
        name: Of the build folder, in which each part's build lies.
        parts: Each a `ModelSpec`, a `Part`, a module, or what names a model (a preset, an ONNX file, a folder).
        driver: Takes the parts by name, each with `run` (arrays by name in and out), and one of `inputs`; returns an
            array, or arrays by name. Must do the same each time.
        inputs: What the whole model is asked, one a call of the driver; of any kind.
        outputs: Of the driver, with their roles; what is not declared is a tensor, or labels where it holds integers.
        calibration: Other inputs of the whole model, from which INT8 gets the ranges of each part. Without them, what
            the driver gives a part is split where there is enough, as a folder of inputs is.
        files: Further files of the whole, by name. With any there is a folder `hub` in the build, as a hub of models
            has it: these files, and in `onnx` each part's verified ONNX files under its name.
        joined: Further ONNX files there, by name, each of two parts as branches of one graph: the second where the
            input `use_cache_branch` is true, as transformers.js takes a decoder.
    """

    name: str
    parts: Mapping[str, ModelSpec | Component | torch.nn.Module | str | Path]
    driver: Driver
    inputs: Sequence[Any]
    outputs: tuple[Output, ...] = ()
    calibration: Sequence[Any] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    joined: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """See that it can be driven.

        Raises:
            ModelError: Naming what cannot.
        """
        import torch

        check_name(self.name)
        parts: object = self.parts
        if not isinstance(parts, Mapping) or not parts:
            raise ModelError(f"'{self.name}' has no parts: give models by name")
        for name, part in parts.items():
            check_name(name)
            if not isinstance(part, ModelSpec | Component | torch.nn.Module | str | Path):
                kinds = "a ModelSpec, an edgekit.Component, a torch.nn.Module or a model's name"
                raise ModelError(f"the part '{name}' of '{self.name}' is a {type(part).__name__}, not {kinds}")
        if not callable(self.driver):
            raise ModelError(f"the driver of '{self.name}' is a {type(self.driver).__name__}: give a function")
        inputs: object = self.inputs
        if not isinstance(inputs, Sequence) or isinstance(inputs, str) or not inputs:
            raise ModelError(
                f"'{self.name}' has no inputs to judge the whole on: give a list, one a call of the driver"
            )
