"""What a caller of the API gave -> the model: a name, a path, a factory, a module with an example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit.errors import UsageError
from edgekit.model.contract import check_name, checked
from edgekit.model.sources import factory_of, resolve_model
from edgekit.model.sources.checkpoint import with_weights
from edgekit.model.sources.module import Axes, spec_of_module
from edgekit.model.spec import Evaluation, ModelSpec
from edgekit.reference.adopt import given_reference


def completed(
    spec: ModelSpec,
    evaluation: Evaluation | Callable[[], Evaluation] | None,
    calibration: Callable[[int], Evaluation] | None,
    reference: str | Path | None,
) -> ModelSpec:
    """The model with what was given beside it."""
    if evaluation is not None:
        if not callable(evaluation) and not isinstance(evaluation, Evaluation):
            raise UsageError(f"the evaluation set is a {type(evaluation).__name__}, not an edgekit.model.Evaluation")
        spec = replace(spec, evaluation=evaluation if callable(evaluation) else lambda: evaluation)
    if calibration is not None:
        spec = replace(spec, calibration=calibration)
    return spec if reference is None else replace(spec, reference=given_reference(spec, Path(reference)))


def signed(spec: ModelSpec, name: str | None, author: str | None, licence: str | None) -> ModelSpec:
    """The model with a name, an author and a licence of its own, where they were given."""
    if name is not None:
        check_name(name)
    return replace(
        spec,
        name=spec.name if name is None else name,
        author=spec.author if author is None else author,
        licence=spec.licence if licence is None else licence,
    )


def given(model: Any, example: Any, axes: Axes | None, weights: str | Path | None, ema: bool = False) -> ModelSpec:
    """The model that a caller of the API named or passed; as `edgekit.export` takes it."""
    if ema and weights is None:
        raise UsageError("ema chooses among the weights of a file: give it with weights (--weights FILE --ema)")
    spec = _declared(model, example, axes)
    return spec if weights is None else with_weights(spec, Path(weights), ema)


def _declared(model: Any, example: Any, axes: Axes | None) -> ModelSpec:
    if isinstance(model, str | Path):
        _refuse_beside(example, None if str(model).endswith(".onnx") else axes)
        return resolve_model(str(model), axes)
    if isinstance(model, ModelSpec):
        _refuse_beside(example, axes)
        return checked(model)
    import torch

    if not isinstance(model, torch.nn.Module):
        _refuse_beside(example, axes)
        if isinstance(model, type) and issubclass(model, torch.nn.Module):
            raise UsageError(f"'{model.__name__}' is a class: give an instance of it, in eval mode")
        if not callable(model):
            kinds = "a preset's name, a path, package.module:factory, a factory, a ModelSpec or a torch.nn.Module"
            raise UsageError(f"a {type(model).__name__} is not a model: possible are {kinds}")
        return factory_of(model)
    if example is None:
        raise UsageError(f"'{type(model).__name__}' needs an example of its inputs: export(net, example=(x,))")
    return spec_of_module(model, example, axes=axes)


def _refuse_beside(example: Any, axes: Axes | None) -> None:
    if example is not None or axes is not None:
        raise UsageError("example and axes describe a module: a name, a path, a factory and a ModelSpec have their own")
