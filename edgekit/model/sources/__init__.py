"""Sources of models: each kind of name is a record (`edgekit.doors.Source`); any other name is a factory's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit import doors
from edgekit.doors import Source
from edgekit.errors import UsageError, did_you_mean
from edgekit.model.overrides import NOTHING, SpecOverrides
from edgekit.model.parts import CompositeModel
from edgekit.model.sources import factory
from edgekit.model.spec import ModelSpec

FACTORY = "package.module:factory"


def resolve_model(model: str, words: SpecOverrides = NOTHING) -> ModelSpec:
    """Return the single-graph model that a user named; as `resolve`.

    Raises:
        UsageError: As for `resolve`, or if it is a composite model.
        ModelError: As for `resolve`.
        CheckpointError: As for `resolve`.
    """
    return factory.single(resolve(model, words))


def resolve(model: str, words: SpecOverrides = NOTHING, task: str = "") -> ModelSpec | CompositeModel:
    """Return the model that a user named.

    Args:
        model: The name: of a source, or of a factory as `package.module:factory`.
        words: The user's facts about its inputs, outputs and axes.
        task: The task, if it needs more than one run of the model.

    Raises:
        UsageError: If no source takes the name, or the facts are for a model that describes itself.
        ModelError: If the model cannot be made.
        CheckpointError: If a checkpoint cannot be read or fits no built-in model.
    """
    if not model:
        raise UsageError(f"a model needs a name. {_hint(model).capitalize()}")
    source = source_of(model)
    if task and (source is None or not source.takes_task):
        forms = " or ".join(source.form for source in _sources() if source.takes_task)
        raise UsageError(f"the task '{task}' applies only to {forms}. Leave it out")
    if source is None:
        if ":" in model and not Path(model).exists():
            return factory.load_named(model, words)
        raise UsageError(f"no model '{model}'. {_hint(model)}")
    if words and (task or not source.takes_words):
        forms = ", ".join(source.form for source in _sources() if source.takes_words)
        raise UsageError(
            f"'{model}'{f' for {task}' if task else ''} describes its own inputs, outputs and axes. Use --axes, "
            f"--inputs and --outputs only for {forms} and {FACTORY}"
        )
    if source.factory:
        return factory.load_shipped(source.factory)
    opened: ModelSpec | CompositeModel = doors.resolve(source.open)(model.removeprefix(source.prefix), words, task)
    return opened


def source_of(model: str) -> Source | None:
    """Return the source that takes a name; None for a factory's name, and for an unknown name."""
    sources, path = _sources(), Path(model)
    for source in sources:
        if model in source.names or (source.prefix and model.startswith(source.prefix)):
            return source
    if not model or not path.exists():
        return None
    by_suffix = [source for source in sources if path.suffix and path.is_file() and path.suffix in source.suffixes]
    return next(iter([*by_suffix, *(source for source in sources if "" in source.suffixes)]), None)


def presets() -> list[str]:
    """Return the complete names that sources accept."""
    return [name for source in _sources() for name in source.names]


def restore(name: str, files: Mapping[str, Path]) -> ModelSpec | None:
    """Make the model of a build again from its files, if a source with a prefix made it; None otherwise."""
    for source in _sources():
        if source.prefix and source.restore and name.startswith(source.prefix):
            spec: ModelSpec = doors.resolve(source.restore)(files)
            return spec
    return None


def runs_no_code(name: str) -> bool:
    """Return whether an untrusted build may name this as its model: it runs only installed code."""
    by_prefix = any(source.prefix and source.restore and name.startswith(source.prefix) for source in _sources())
    return by_prefix or factory.is_shipped(name)


def check_model(model: str) -> None:
    """Check that a model of this name exists, without making it.

    Raises:
        UsageError: If `resolve` does not accept the name.
        ModelError: If a factory cannot be imported.
    """
    source = source_of(model)
    if source is not None:
        if source.check:
            doors.resolve(source.check)(model.removeprefix(source.prefix))
    elif not model or ":" not in model:
        raise UsageError(f"no model '{model}'. {_hint(model)}")
    else:
        factory.search_working_directory()
        factory.import_function(model)


def uploader_of(name: str) -> Callable[[Any], str]:
    """Return a function that uploads a build to a name, and returns what the user reads of it.

    Raises:
        UsageError: If no source takes uploads to such a name.
        EdgekitError: If the source refuses the name, or lacks a library or a token.
    """
    source = source_of(name)
    if source is None or not source.push:
        forms = " or ".join(source.form for source in _sources() if source.push)
        raise UsageError(f"cannot push to '{name}'. Write {forms}")
    upload: Callable[[Any], str] = doors.resolve(source.push)(name.removeprefix(source.prefix))
    return upload


def _sources() -> list[Source]:
    return list(doors.sources.load_all()[0].values())


def _hint(model: str) -> str:
    """Return a suggestion for an unknown model's name, and the possible forms."""
    if meant := did_you_mean(model, presets()):
        hint = f"{meant} "
    elif Path(model).suffix in {suffix for source in _sources() for suffix in source.suffixes if suffix}:
        hint = "This file does not exist. "
    elif "/" in model:
        hint = "edgekit downloads nothing. Name a folder or a cached model, or load it in your own function. "
    else:
        hint = ""
    return f"{hint}Possible: {', '.join(source.form for source in _sources())}, or {FACTORY}"


def factory_of(function: Callable[[], object], words: SpecOverrides = NOTHING) -> ModelSpec | CompositeModel:
    """Return the model of a factory function; if workers cannot import it, the model has no factory name.

    Raises:
        ModelError: If the factory raises, or returns something else.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    importable = function.__module__ != "__main__" and "<locals>" not in name and "<lambda>" not in name
    spec = factory.call(function, name, words=words)
    return spec if isinstance(spec, CompositeModel) else replace(spec, factory=name if importable else "", words=words)
