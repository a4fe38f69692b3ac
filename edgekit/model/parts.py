"""A composite model: named parts, each with its own graph, and a driver that calls them."""

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
    """A part that can run: the module itself, or an artifact opened by `edgekit.load`."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch: arrays by input name in, arrays by output name out."""


Driver = Callable[[Mapping[str, Session], Any], "Array | Mapping[str, Array]"]
"""(the parts by name, one of the model's inputs) -> the outputs of the composite model: an array, or arrays by name."""


@dataclass(frozen=True)
class Component:
    """A module as a part. Its inputs are known after the driver's first call.

    Attributes:
        module: In eval mode.
        axes: Dimensions that vary, as in `edgekit.export`; None makes the first one of each input the batch.
        inputs: Facts about inputs, as in `edgekit.export`. Missing ranges follow from the driver's values.
        outputs: Facts about outputs.
        example: Needed if `forward` takes anything but tensors by name, as in `edgekit.export`; the driver
            gives its tensors by the names in the example.
    """

    module: torch.nn.Module
    axes: Given = None
    inputs: Given = None
    outputs: Given = None
    example: Any = None


@dataclass(frozen=True)
class CompositeModel:
    """A model of several graphs.

    Each part is exported as its own build and judged on the inputs that the driver gives it. Then the driver runs with
    artifacts in place of the modules, and its outputs are compared with those of the modules.

    Attributes:
        name: Name of the build folder, which contains each part's build.
        parts: Each a `ModelSpec`, a `Component`, a module, or a model's name (a preset, an ONNX file, a folder).
        driver: Takes the parts by name, each with `run` (arrays by name in and out), and one of `inputs`; returns an
            array, or arrays by name. Must be deterministic.
        inputs: Inputs of the composite model, one per call of the driver; of any kind.
        outputs: Of the driver, with their roles; an undeclared output is a tensor, or labels if it holds integers.
        calibration: Other inputs of the composite model, which give each part's ranges for INT8. Without them, the
            driver's inputs of a part are split if there are enough, as a folder of inputs is.
        files: Further files of the composite model, by name. With any, the build has a folder `hub` in a model hub's
            layout: these files, and in `onnx` each part's verified ONNX files under its name.
        joined: Further ONNX files there, by name, each of two parts as branches of one graph: the second if the
            input `use_cache_branch` is true, as transformers.js takes a decoder.
        card: Facts for the model card there: `task`, `source` in words, `base_model` (a repository of the Hugging Face
            hub), and `license`, `license_name` and `license_link` of the source's own card.
    """

    name: str
    parts: Mapping[str, ModelSpec | Component | torch.nn.Module | str | Path]
    driver: Driver
    inputs: Sequence[Any]
    outputs: tuple[Output, ...] = ()
    calibration: Sequence[Any] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    joined: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    card: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the driver can run.

        Raises:
            ModelError: Naming the invalid field.
        """
        import torch

        check_name(self.name)
        parts: object = self.parts
        if not isinstance(parts, Mapping) or not parts:
            raise ModelError(f"'{self.name}' has no parts. Give models by name")
        for name, part in parts.items():
            check_name(name)
            if not isinstance(part, ModelSpec | Component | torch.nn.Module | str | Path):
                kinds = "a ModelSpec, an edgekit.Component, a torch.nn.Module or a model's name"
                raise ModelError(f"the part '{name}' of '{self.name}' is a {type(part).__name__}, not {kinds}")
        if not callable(self.driver):
            raise ModelError(f"the driver of '{self.name}' is a {type(self.driver).__name__}. Give a function")
        inputs: object = self.inputs
        if not isinstance(inputs, Sequence) or isinstance(inputs, str) or not inputs:
            raise ModelError(
                f"'{self.name}' has no inputs to judge the composite model on. Give a list, one per call of the driver"
            )
