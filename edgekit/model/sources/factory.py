"""The function that makes a model, `package.module:function`: where its code may come from, and when it may run.

Three ways lead to one, and each lets it run for another reason:

- Its user names it in this command (`named`): Python's path is searched, and last the working directory.
- edgekit ships it (`shipped`): the working directory is not searched.
- A build names it: anyone may have written the build. Without the user's word it runs only where edgekit ships it
  (`is_shipped`).
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from edgekit.errors import EdgekitError, ModelError
from edgekit.model.contract import checked
from edgekit.model.spec import ModelSpec

SHIPPED = "edgekit.arrcoc.presets"
SHIPPED_MODULES = (SHIPPED, "edgekit.testing")


def named(factory: str) -> ModelSpec:
    """The model of a factory that the user named in this command.

    Raises:
        ModelError: If it cannot be imported, raises, or returns something else.
    """
    search_working_directory()
    return shipped(factory)


def search_working_directory() -> None:
    """Let Python look for modules in the working directory, last: a file there must not stand in for a library."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)


def shipped(factory: str) -> ModelSpec:
    """The model of a factory on Python's path as it is.

    Raises:
        ModelError: As for `named`.
    """
    return replace(called(imported(factory), factory), factory=factory)


def is_shipped(factory: str) -> bool:
    """Whether edgekit itself has this factory: a function of its own that takes nothing and returns a ModelSpec."""
    module, _, name = factory.partition(":")
    if module not in SHIPPED_MODULES:
        return False
    function = getattr(importlib.import_module(module), name, None)
    return (
        inspect.isfunction(function)
        and function.__module__.startswith(SHIPPED_MODULES)
        and not inspect.signature(function).parameters
        and function.__annotations__.get("return") in (ModelSpec, ModelSpec.__name__)
    )


def called(factory: Callable[..., object], name: str, *arguments: object) -> ModelSpec:
    """What a factory returns, checked.

    Raises:
        ModelError: If it raises, or returns something else.
    """
    try:
        spec = factory(*arguments)
    except EdgekitError:
        raise
    except Exception as error:
        raise ModelError(f"the factory '{name}' raised {_where(error)}") from error
    if not isinstance(spec, ModelSpec):
        raise ModelError(f"the factory '{name}' returned {type(spec).__name__}, not an edgekit.model.ModelSpec")
    return checked(spec)


def imported(factory: str) -> Callable[..., object]:
    """The function that a name stands for; its module is imported.

    Raises:
        ModelError: If there is none, or importing fails.
    """
    module_name, _, function = factory.partition(":")
    try:
        module = importlib.import_module(module_name)
    except EdgekitError:
        raise
    except ModuleNotFoundError as error:
        raise ModelError(f"cannot import '{module_name}' of '{factory}': {error}; is it on PYTHONPATH?") from error
    except Exception as error:
        raise ModelError(f"importing '{module_name}' of '{factory}' failed: {_where(error)}") from error
    value = getattr(module, function, None)
    if not callable(value):
        raise ModelError(f"'{module_name}' has no function '{function}': name it as package.module:factory")
    return value  # type: ignore[no-any-return]  # callable() narrows Any to an unknown callable


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    last = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}{last}"
