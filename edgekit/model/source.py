"""Where a model comes from, and its folder: a preset, a checkpoint or `package.module:factory` -> ModelSpec.

A model folder holds config.json (which factory, which files with which hashes), model.safetensors and the model's
further files. Whatever exports or judges reads the model from there, in this process or in another one.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import CheckpointError, ModelError, UsageError, did_you_mean
from edgekit.model import checkpoint, factory, own_operators, timm_folder, transformers_folder
from edgekit.model.captured import GRAPH, holds_program, read_captured, write_captured
from edgekit.model.contract import checked
from edgekit.model.folder import CONFIG, WEIGHTS, own_files, read_config
from edgekit.model.onnx_file import Ranges, spec_of_onnx
from edgekit.model.program import Capture
from edgekit.model.spec import ModelSpec
from edgekit.model.weights import as_their_own, weights_digest
from edgekit.storage.door import SEAL, sealed
from edgekit.storage.files import digest_file, digest_text, dump_json, scratch, staging, write_text

if TYPE_CHECKING:
    import torch

PRESETS = {
    "arr-coc-tiny": f"{factory.SHIPPED}:arr_coc_tiny",
    "arr-coc-base": f"{factory.SHIPPED}:arr_coc_base",
    "arr-coc-0.1": f"{factory.SHIPPED}:arr_coc_0_1",
}
FROM_CHECKPOINT = f"{factory.SHIPPED}:from_checkpoint"


def resolve_model(model: str, axes: Ranges | None = None) -> ModelSpec:
    """The model that a user named: a preset, a checkpoint's or an ONNX file's path, a folder, or a factory.

    Args:
        model: The name; a folder as `transformers:FOLDER` or `timm:FOLDER`, a factory as `package.module:factory`.
        axes: For an ONNX file: the ranges of its open sizes.

    Raises:
        UsageError: If it is none of these.
        ModelError: If the factory cannot be imported, raises, or returns something else.
        CheckpointError: If the checkpoint cannot be read or fits no built-in model.
    """
    if model in PRESETS:
        return factory.shipped(PRESETS[model])
    if not model:
        raise UsageError(f"a model needs a name: possible are {', '.join(PRESETS)}, a path, or package.module:factory")
    if model.startswith(transformers_folder.PREFIX):
        return checked(transformers_folder.spec_of_folder(Path(model.removeprefix(transformers_folder.PREFIX))))
    if model.startswith(timm_folder.PREFIX):
        return checked(timm_folder.spec_of_timm(model.removeprefix(timm_folder.PREFIX)))
    path = Path(model)
    if path.suffix == ".onnx" and path.is_file():
        return spec_of_onnx(path, axes)
    if path.suffix in {".safetensors", ".pt", ".pth", ".bin", ".ckpt"} or path.exists():
        tensors = checkpoint.read_checkpoint(path)
        spec = factory.called(factory.imported(FROM_CHECKPOINT), FROM_CHECKPOINT, tensors)
        return as_their_own(spec, path, factory.shipped(spec.factory))
    if ":" in model:
        return factory.named(model)
    raise UsageError(f"no model '{model}': {_hint(model)}")


def _hint(model: str) -> str:
    """What a name that is no model may have meant, and what is possible."""
    if meant := did_you_mean(model, PRESETS):
        hint = f"{meant} "
    elif model.endswith(".onnx"):
        hint = "there is no such file; "
    elif "/" in model:
        hint = (
            "nothing is downloaded: a model of transformers is taken from a folder, as transformers:FOLDER, one of "
            "timm from a folder or the cache, as timm:NAME; any other is loaded in a function of your own that returns "
            "its ModelSpec, named as package.module:factory; "
        )
    else:
        hint = ""
    others = "a checkpoint's or an ONNX file's path, transformers:FOLDER, timm:NAME, or package.module:factory"
    return f"{hint}possible are {', '.join(PRESETS)}, {others}"


def factory_of(function: Callable[[], object]) -> ModelSpec:
    """The model of a factory that is given as a function; one that workers cannot import leaves no name.

    Raises:
        ModelError: If the factory raises, or returns something else.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    importable = function.__module__ != "__main__" and "<locals>" not in name and "<lambda>" not in name
    return replace(factory.called(function, name), factory=name if importable else "")


def save_model(spec: ModelSpec, folder: Path, captured: Capture | None = None) -> None:
    """Write a model folder: model.safetensors, the model's files, config.json; nothing if it is there already.

    Args:
        spec: The model.
        folder: Where to write.
        captured: Its capture, where the program is needed elsewhere too.

    Raises:
        CaptureError: If the model has no factory and its module cannot be captured.
    """
    with scratch() as place:
        made, config = place / "model", _config(spec)
        made.mkdir()  # the temporary folder itself is its owner's alone
        try:
            checkpoint.write_checkpoint(made / WEIGHTS, spec.module.state_dict(), infinite=_buffers(spec.module))
        except CheckpointError as error:
            raise ModelError(f"'{spec.name}' {error}") from error
        for file, path in spec.files.items():
            shutil.copyfile(path, made / file)
        if not spec.factory:
            config["captured"] = write_captured(captured or Capture(spec), made, made / WEIGHTS)
        config["files"] = {p.relative_to(made).as_posix(): digest_file(p) for p in _files(made)}
        if _holds(folder, config):
            return
        with staging(folder, own_files) as staged:
            shutil.copytree(made, staged, dirs_exist_ok=True)
            write_text(staged / CONFIG, sealed(config))


def load_builds_model(folder: Path, trusted: bool) -> ModelSpec:
    """The model of a build that somebody else may have made: it runs no code of theirs without the user's word.

    Args:
        folder: The build's model folder.
        trusted: Whether the user trusts the build.

    Raises:
        ModelError: As for `load_model`, and if the model is a captured program and the build is not trusted.
        CheckpointError: As for `load_model`.
    """
    if not trusted and holds_program(read_config(folder)):
        raise ModelError(
            f"the model in '{folder}' was given in memory and lies there as a program, which can run code of whoever "
            "made the build: run with --trust-build if you made it or trust them"
        )
    return load_model(folder, trusted)


def load_model(folder: Path, trust_build: bool = False) -> ModelSpec:
    """Make the model of a model folder again: its factory's module, or its captured program, with the folder's weights.

    Args:
        folder: The model folder.
        trust_build: Whether its factory may run although its source is not the recorded one (see `factory.recorded`).

    Raises:
        ModelError: If the folder is not a model folder, was changed, or its factory may not run.
        CheckpointError: If its weights do not fit.
    """
    from safetensors.torch import load_file

    config = read_config(folder)
    name, files = config["factory"], config["files"]
    if not name:
        return read_captured(config, folder)
    if name.startswith(transformers_folder.PREFIX):
        spec = checked(transformers_folder.spec_of_files({file: folder / file for file in files}))
    elif name.startswith(timm_folder.PREFIX):
        spec = checked(timm_folder.spec_of_files({file: folder / file for file in files}))
    else:
        spec = factory.recorded(name, config.get("factory_sha256", ""), trust_build)
    expected = {name: tuple(tensor.shape) for name, tensor in spec.module.state_dict().items()}
    spec.module.load_state_dict(checkpoint.fit_checkpoint(load_file(folder / WEIGHTS), expected))
    here = {name: folder / name for name in files if name != WEIGHTS}
    told = {name: config[name] for name in ("name", "licence", "author", "description")}
    return replace(spec, files=here, **told)


def _buffers(module: torch.nn.Module) -> frozenset[str]:
    """Names of what is not trained: a mask may hold infinities."""
    return frozenset(module.state_dict()) - {name for name, _ in module.named_parameters(remove_duplicate=False)}


def _config(spec: ModelSpec) -> dict[str, object]:
    return {
        "schema_version": 1,
        "name": spec.name,
        "factory": spec.factory,
        "factory_sha256": factory.source_sha256(spec.factory) if spec.factory else "",
        "code_sha256": _code_sha256(spec),
        "weights_sha256": weights_digest(spec),
        "inputs": [asdict(i) for i in spec.inputs],
        "outputs": [asdict(o) for o in spec.outputs],
        "axes": {name: asdict(axis) for name, axis in spec.axes.items()},
        "licence": spec.licence,
        "author": spec.author,
        "description": spec.description,
    }


def _holds(folder: Path, config: Mapping[str, object]) -> bool:
    """Whether a model folder has this config.json and files as it says; of a captured program the text is compared."""
    try:
        there = read_config(folder)
    except ModelError:
        return False
    return _identity(there) == _identity(json.loads(dump_json(config)))


def _identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config without its seal and the hashes of the captured program's files, which differ between two captures."""
    config = {name: value for name, value in config.items() if name != SEAL}
    files = {name: sha256 for name, sha256 in config["files"].items() if not name.startswith(f"{GRAPH}/")}
    return {**config, "files": files}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _code_sha256(spec: ModelSpec) -> str:
    """Hash of the files that define the module and of their libraries' versions: another one is exported again."""
    names = {type(module).__module__ for module in spec.module.modules()} | {spec.factory.partition(":")[0]}
    names |= {function.__module__ for function in own_operators.replacements(spec)}
    texts = []
    for name in sorted(names):
        path = getattr(sys.modules.get(name), "__file__", None)
        if path and not name.startswith("torch."):
            texts.append(f"{name} {digest_file(Path(path))}")
    for name in sorted({name.partition(".")[0] for name in names}):
        texts.append(f"{name} {getattr(sys.modules.get(name), '__version__', '')}")
    return digest_text("\n".join(texts))
