"""The function that makes a model, `package.module:function`: where its code may come from, and when it may run.

Three ways lead to one, and each lets it run on other grounds:

- Its user names it in this command (`named`): Python's path is searched, and last the working directory.
- edgekit ships it (`shipped`): the working directory is not searched.
- A build names it (`recorded`): anyone may have written the build. Without the user's word it runs only where its
  source, found before anything of it is imported, has the hash that the build recorded; the working directory is not
  searched.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib import util
from importlib.machinery import ModuleSpec
from pathlib import Path

from edgekit.errors import EdgekitError, ModelError
from edgekit.model.contract import checked
from edgekit.model.spec import ModelSpec
from edgekit.storage.files import digest_file, digest_text

SHIPPED = "edgekit.arrcoc.presets"
TRUST = "run with --trust-build if you trust this build and the code in your working directory"


def named(factory: str) -> ModelSpec:
    """The model of a factory that the user named in this command.

    Raises:
        ModelError: If it cannot be imported, raises, or returns something else.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last: a file there must not stand in for a library
    return shipped(factory)


def shipped(factory: str) -> ModelSpec:
    """The model of a factory on Python's path as it is.

    Raises:
        ModelError: As for `named`.
    """
    return replace(called(imported(factory), factory), factory=factory)


def recorded(factory: str, sha256: str, trusted: bool) -> ModelSpec:
    """The model of a factory that a build names.

    Args:
        factory: As the build has it.
        sha256: Hash of its source, as the build recorded it (`source_sha256`).
        trusted: Whether the user trusts the build: then it counts as named by them.

    Raises:
        ModelError: As for `named`, and if its source is not the recorded one.
    """
    if trusted:
        return named(factory)
    if factory.partition(":")[0] == SHIPPED:
        return shipped(factory)
    actual = source_sha256(factory)
    if not actual:
        raise ModelError(
            f"the build's factory '{factory}' is not on Python's path: put its folder on PYTHONPATH, or {TRUST}"
        )
    if actual != sha256:
        raise ModelError(
            f"the source of the build's factory '{factory}' is not the one that the build was exported with: export "
            f"again, or {TRUST}"
        )
    return shipped(factory)


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


def source_sha256(factory: str) -> str:
    """Hash of the files that importing a factory's module runs first: its packages' and its own.

    Nothing is imported to find them.

    Returns:
        sha256 in hex; empty where there is no such module, or it has no file.
    """
    name = factory.partition(":")[0]
    try:
        specs = list(_specs(name))
        files = [(spec.name, Path(spec.origin)) for spec in specs if spec.has_location and spec.origin]
        if not specs or not specs[-1].has_location:
            return ""
        return digest_text("\n".join(f"{one} {digest_file(path)}" for one, path in files))
    except (ImportError, OSError, ValueError):
        return ""


def _specs(name: str) -> Iterator[ModuleSpec]:
    """Each package on the way to a module, and the module; `util.find_spec` alone would import the packages."""
    parts = name.split(".")
    spec = util.find_spec(parts[0]) if parts[0] not in sys.modules else _of_imported(parts[0])
    for number in range(1, len(parts) + 1):
        if spec is None:
            raise ModuleNotFoundError(name)
        yield spec
        if number < len(parts):
            inside = spec.submodule_search_locations
            spec = _below(".".join(parts[: number + 1]), inside) if inside is not None else None


def _below(name: str, folders: Iterable[str]) -> ModuleSpec | None:
    """A module or package in the folders of its parent; `PathFinder` would need the parent of a namespace imported."""
    portions: list[str] = []
    for folder in folders:
        finder = pkgutil.get_importer(folder)
        spec = finder.find_spec(name) if finder is not None else None
        if spec is not None and spec.loader is not None:
            return spec
        portions += (spec.submodule_search_locations or []) if spec is not None else []
    if not portions:
        return None
    namespace = ModuleSpec(name, None, is_package=True)
    namespace.submodule_search_locations = portions
    return namespace


def _of_imported(name: str) -> ModuleSpec | None:
    return getattr(sys.modules[name], "__spec__", None)


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
