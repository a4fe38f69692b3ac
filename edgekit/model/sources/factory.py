"""Factories, functions named `package.module:function` that make a model: where they are found, and when they may run.

There are three ways to name one, each with its own permission to run:

- The user names it in this command (`load_named`): Python's path is searched, and last the working directory.
- edgekit ships it (`load_shipped`): the working directory is not searched.
- A build names it: anyone may have written the build. Unless the user trusts the build, it runs only if edgekit ships
  it (`is_shipped`).
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit import doors
from edgekit.errors import EdgekitError, ModelError, ShapeMissingError, UsageError
from edgekit.model.contract import check_size, check_spec
from edgekit.model.overrides import NOTHING, SpecOverrides, require_known
from edgekit.model.parts import CompositeModel
from edgekit.model.sources.arguments import parameter_names
from edgekit.model.sources.module import spec_of_module
from edgekit.model.spec import Input, ModelSpec

if TYPE_CHECKING:
    import torch

TESTING = "edgekit.testing"


def load_named(factory: str, words: SpecOverrides = NOTHING) -> ModelSpec | CompositeModel:
    """Return the model of a factory that the user named in this command, with the user's facts.

    Raises:
        ModelError: If it cannot be imported, raises, or returns something else.
        UsageError: If a fact is about something that does not exist.
    """
    search_working_directory()
    model = call(import_function(factory), factory, words=words)
    return model if isinstance(model, CompositeModel) else replace(model, factory=factory, words=words)


def search_working_directory() -> None:
    """Append the working directory to Python's path; last, so that a file there cannot shadow a library."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)


def load_shipped(factory: str, words: SpecOverrides = NOTHING) -> ModelSpec:
    """Return the model of a factory on Python's path, with the user's facts.

    Raises:
        ModelError: As for `load_named`.
        UsageError: As for `load_named`.
    """
    return replace(call_factory(import_function(factory), factory, words=words), factory=factory, words=words)


def apply_overrides(spec: ModelSpec, words: SpecOverrides) -> ModelSpec:
    """Return a declared model with the user's facts, checked.

    Raises:
        UsageError: If a fact is about something that does not exist.
    """
    words.require_own_shapes()
    return replace(check_spec(words.of_spec(spec) if words else spec), words=words)


def is_shipped(factory: str) -> bool:
    """Return whether a package registers this factory for builds, or `edgekit.testing` contains it."""
    records, _ = doors.sources.load_all()
    if any(factory in (record.factory, *record.trusted_factories) for record in records.values() if factory):
        return True
    module, _, name = factory.partition(":")
    function = getattr(importlib.import_module(module), name, None) if module == TESTING else None
    return (
        inspect.isfunction(function)
        and function.__module__.startswith(TESTING)
        and not inspect.signature(function).parameters
        and function.__annotations__.get("return") in (ModelSpec, ModelSpec.__name__)
    )


def call_factory(
    factory: Callable[..., object], name: str, *arguments: object, words: SpecOverrides = NOTHING
) -> ModelSpec:
    """Return a factory's model, checked, with the user's facts; the factory returns a ModelSpec or a module.

    Raises:
        ModelError: If it raises, or returns something else.
        UsageError: If a fact is about something that does not exist, a module's shapes are missing, or it is composite.
    """
    return single(call(factory, name, *arguments, words=words))


def single(model: ModelSpec | CompositeModel) -> ModelSpec:
    """Return the model if it is a single graph.

    Raises:
        UsageError: If it is a composite model.
    """
    if isinstance(model, CompositeModel):
        raise UsageError(
            f"'{model.name}' is a composite model, which only `edgekit export` takes. After export, each part has "
            f"its own build, as build/{model.name}/{next(iter(model.parts))}"
        )
    return model


def call(
    factory: Callable[..., object], name: str, *arguments: object, words: SpecOverrides = NOTHING
) -> ModelSpec | CompositeModel:
    """Return a factory's model as `call_factory` does, or its composite model.

    Raises:
        ModelError: As for `call_factory`.
        UsageError: As for `call_factory`; or for facts about a composite model.
    """
    try:
        returned = factory(*arguments)
    except EdgekitError:
        raise
    except Exception as error:
        raise ModelError(f"the factory '{name}' raised {_where(error)}") from error
    if isinstance(returned, ModelSpec):
        return apply_overrides(returned, words)
    if isinstance(returned, CompositeModel):
        if words:
            raise UsageError(
                f"'{name}' returns a composite model. Give axes, inputs and outputs in each edgekit.Component"
            )
        return returned
    import torch

    if not isinstance(returned, torch.nn.Module):
        kinds = "an edgekit.model.ModelSpec, an edgekit.CompositeModel or a torch.nn.Module"
        raise ModelError(f"the factory '{name}' returned {type(returned).__name__}, not {kinds}")
    return spec_of_module(returned, _example(returned, name, words), words)


def _example(module: torch.nn.Module, name: str, words: SpecOverrides) -> dict[str, torch.Tensor]:
    """Return an example of the given shapes, with values in the given ranges, else in [0, 1]."""
    import torch

    takes = parameter_names(module)
    require_known(takes, words.inputs, "inputs name the input")
    shapes = {n: input_facts["shape"] for n, input_facts in words.inputs.items() if "shape" in input_facts}
    if not shapes or (lacking := [n for n in words.inputs if n not in shapes]):
        missing = lacking[0] if shapes else next(iter(takes), "x")
        raise ShapeMissingError(
            f"'{name}' returned a plain module, so edgekit needs the shape of '{missing}'. Add --inputs "
            f"{missing}:shape=1,3,224,224, and likewise for each input (forward() takes {', '.join(takes)})",
            () if shapes else takes,
        )
    example = {}
    for each in takes:
        if each not in shapes:
            continue
        input_facts, dtype = words.inputs[each], words.inputs[each].get("dtype", "float32")
        i = Input(each, shapes[each], dtype=dtype, low=input_facts.get("low", 0.0), high=input_facts.get("high", 1.0))
        spec = ModelSpec(type(module).__name__, module, (i,), ())
        check_size(spec, i)
        array = spec.random(0)[each]
        example[each] = torch.from_numpy(np.atleast_1d(array).reshape(shapes[each]))
    return example


def import_function(factory: str) -> Callable[..., object]:
    """Import the named function.

    Raises:
        ModelError: If it does not exist, or importing fails.
    """
    module_name, _, function = factory.partition(":")
    if not module_name or not function or re.search(r"[/\\]", module_name):
        raise ModelError(f"'{factory}' is not of the form package.module:factory, as Python imports it, without a path")
    try:
        module = importlib.import_module(module_name)
    except EdgekitError:
        raise
    except ModuleNotFoundError as error:
        if (stem := module_name.removesuffix(".py")) != module_name:
            raise ModelError(f"'{module_name}' of '{factory}' is a file. Write {stem}:{function}") from error
        raise ModelError(f"cannot import '{module_name}' of '{factory}': {error}. Is it on PYTHONPATH?") from error
    except Exception as error:
        raise ModelError(f"importing '{module_name}' of '{factory}' failed: {_where(error)}") from error
    value = getattr(module, function, None)
    if not callable(value):
        raise ModelError(f"'{module_name}' has no function '{function}'. Name it as package.module:factory")
    return value  # type: ignore[no-any-return]  # callable() narrows Any to an unknown callable


def _where(error: Exception) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    # A syntax error names its file itself.
    names_its_file = isinstance(error, SyntaxError) or not frames
    last = "" if names_its_file else f" at {frames[-1].filename}:{frames[-1].lineno}"
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}{last}"
