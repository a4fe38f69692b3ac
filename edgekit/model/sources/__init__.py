"""Where a model comes from: a preset, a checkpoint, a file or folder of another library, or a function -> ModelSpec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from edgekit.errors import UsageError, did_you_mean
from edgekit.model.parts import Parts
from edgekit.model.sources import checkpoint, factory, program, timm, transformers
from edgekit.model.sources.onnx import spec_of_onnx
from edgekit.model.spec import ModelSpec
from edgekit.model.words import NOTHING, Words

PRESETS = {
    "arr-coc-tiny": f"{factory.SHIPPED}:arr_coc_tiny",
    "arr-coc-base": f"{factory.SHIPPED}:arr_coc_base",
    "arr-coc-0.1": f"{factory.SHIPPED}:arr_coc_0_1",
}
FROM_CHECKPOINT = f"{factory.SHIPPED}:from_checkpoint"


def resolve_model(model: str, words: Words = NOTHING) -> ModelSpec:
    """As `resolve`, of a model that is one graph.

    Raises:
        UsageError: As for `resolve`, or if it is made of parts.
        ModelError: As for `resolve`.
        CheckpointError: As for `resolve`.
    """
    return factory.single(resolve(model, words))


def resolve(model: str, words: Words = NOTHING, task: str = "") -> ModelSpec | Parts:
    """The model that a user named: a preset, a checkpoint's, a program's or an ONNX file's path, a folder, a factory.

    Args:
        model: The name; a folder as `transformers:FOLDER` or `timm:FOLDER`, a factory as `package.module:factory`.
        words: What is said of an ONNX file, of a program, of a folder's or of a factory's model.
        task: What a folder of transformers is for, where that takes more than one run of it.

    Raises:
        UsageError: If it is none of these, or something is said of what describes itself.
        ModelError: If the factory cannot be imported, raises, or returns something else.
        CheckpointError: If the checkpoint cannot be read or fits no built-in model.
    """
    if not model:
        raise UsageError(f"a model needs a name: possible are {', '.join(PRESETS)}, a path, or package.module:factory")
    if task and not model.startswith(transformers.PREFIX):
        raise UsageError(f"the task '{task}' is for {transformers.PREFIX}FOLDER: leave it out")
    path = Path(model)
    if path.suffix == ".onnx" and path.is_file():
        return spec_of_onnx(path, words)
    if path.suffix == program.SUFFIX:
        return program.spec_of_program(path, words)
    others = (*PRESETS, transformers.PREFIX, timm.PREFIX)
    if ":" in model and not model.startswith(others) and not path.exists():
        return factory.named(model, words)
    if model.startswith((transformers.PREFIX, timm.PREFIX)) and not task:
        return factory.described(_of_library(model), words)
    if words:
        raise UsageError(
            f"'{model}'{f' for {task}' if task else ''} says itself what its inputs, outputs and axes are: --axes, "
            "--inputs and --outputs are for an ONNX file, a saved program, a folder of transformers or timm, and "
            "package.module:factory"
        )
    if model in PRESETS:
        return factory.shipped(PRESETS[model])
    if model.startswith(transformers.PREFIX):
        return transformers.parts_of_folder(Path(model.removeprefix(transformers.PREFIX)), task)
    if path.suffix in {".safetensors", ".pt", ".pth", ".bin", ".ckpt"} or path.exists():
        tensors = checkpoint.read_checkpoint(path)
        spec = factory.called(factory.imported(FROM_CHECKPOINT), FROM_CHECKPOINT, tensors)
        return checkpoint.as_their_own(spec, path, factory.shipped(spec.factory))
    raise UsageError(f"no model '{model}': {_hint(model)}")


def _of_library(model: str) -> ModelSpec:
    """A model of transformers or timm, as its folder describes it."""
    if model.startswith(timm.PREFIX):
        return timm.spec_of_timm(model.removeprefix(timm.PREFIX))
    return transformers.spec_of_folder(Path(model.removeprefix(transformers.PREFIX)))


def check_model(model: str) -> None:
    """See that there is a model of a name, without making it: a path is there, a factory can be imported.

    Raises:
        UsageError: If it is none of what `resolve_model` takes.
        ModelError: If the factory cannot be imported.
    """
    if model.startswith(transformers.PREFIX):
        if not Path(model.removeprefix(transformers.PREFIX)).is_dir():
            raise UsageError(f"no folder '{model.removeprefix(transformers.PREFIX)}': '{model}' names one")
    elif model not in PRESETS and not model.startswith(timm.PREFIX) and (not model or not Path(model).exists()):
        if ":" not in model:
            raise UsageError(f"no model '{model}': {_hint(model)}")
        factory.search_working_directory()
        factory.imported(model)


def _hint(model: str) -> str:
    """What a name that is no model may have meant, and what is possible."""
    if meant := did_you_mean(model, PRESETS):
        hint = f"{meant} "
    elif model.endswith((".onnx", program.SUFFIX)):
        hint = "there is no such file; "
    elif "/" in model:
        hint = (
            "nothing is downloaded: a model of transformers is taken from a folder, as transformers:FOLDER, one of "
            "timm from a folder or the cache, as timm:NAME; any other is loaded in a function of your own that returns "
            "its ModelSpec, named as package.module:factory; "
        )
    else:
        hint = ""
    paths = "the path of a checkpoint, of a program (model.pt2) or of an ONNX file"
    others = f"{paths}, transformers:FOLDER, timm:NAME, or package.module:factory"
    return f"{hint}possible are {', '.join(PRESETS)}, {others}"


def factory_of(function: Callable[[], object], words: Words = NOTHING) -> ModelSpec | Parts:
    """The model of a factory that is given as a function; one that workers cannot import leaves no name.

    Raises:
        ModelError: If the factory raises, or returns something else.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    importable = function.__module__ != "__main__" and "<locals>" not in name and "<lambda>" not in name
    found = factory.made(function, name, words=words)
    return found if isinstance(found, Parts) else replace(found, factory=name if importable else "", words=words)
