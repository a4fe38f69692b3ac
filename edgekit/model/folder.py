"""A model folder: config.json (the factory, the files and their hashes), model.safetensors, the model's files.

Export and judging read the model from there, in this process or another one; everything is checked first.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import CheckpointError, ModelError
from edgekit.model import own_operators
from edgekit.model.evaluation_set import SETS, with_sets, write_sets
from edgekit.model.overrides import from_record
from edgekit.model.program import Capture, holds_program, read_captured, write_captured
from edgekit.model.records import CONFIG, GRAPH, WEIGHTS, declaration, declared_spec, model_files, read_config
from edgekit.model.sources import checkpoint, factory, restore, runs_no_code
from edgekit.model.sources.onnx import file_of
from edgekit.model.spec import ModelSpec
from edgekit.storage.files import digest_file, digest_text, dump_json, scratch, staging, write_text
from edgekit.storage.verified_io import SEAL, seal_record

if TYPE_CHECKING:
    pass


CHANGED = (
    "the code behind '{factory}', or a library's version, has changed since this build's export: {what}. Export again"
)


def save_model(spec: ModelSpec, folder: Path, captured: Capture | None = None) -> None:
    """Write a model folder: model.safetensors, the model's files, config.json; keep a folder that is already complete.

    The weights are written only if they differ from the folder's.

    Args:
        spec: The model.
        folder: Destination.
        captured: Its capture, if the caller also needs the program.

    Raises:
        CaptureError: If the model has no factory and its module cannot be captured.
    """
    with scratch() as place:
        model, config = place / "model", _config(spec)
        # Not the temporary folder itself, whose permissions allow only its owner.
        model.mkdir()
        for file, path in spec.files.items():
            shutil.copyfile(path, model / file)
        config["sets"] = write_sets(spec, model, spec.brought if spec.factory else SETS)
        if spec.factory:
            config["files"] = _digests(model)
            if _holds(folder, config) and _holds_weights(folder / WEIGHTS, spec):
                return
        else:
            _write_weights(spec, model / WEIGHTS)
            config["captured"] = write_captured(captured or Capture(spec), model, model / WEIGHTS)
            config["files"] = _digests(model)
            if _holds(folder, config):
                return
        with staging(folder, model_files) as staged:
            shutil.copytree(model, staged, dirs_exist_ok=True)
            if spec.factory:
                _write_weights(spec, staged / WEIGHTS)
            write_text(staged / CONFIG, seal_record({**config, "files": _digests(staged)}))


def _holds_weights(path: Path, spec: ModelSpec) -> bool:
    """Return whether a file holds a model's weights and nothing else; NaN is in no file."""
    import torch
    from safetensors import safe_open

    tensors = spec.module.state_dict()
    with safe_open(path, framework="pt") as file:
        return tensors.keys() == set(file.keys()) and all(
            (stored := file.get_tensor(name)).dtype == tensor.dtype and torch.equal(stored, tensor.detach().cpu())
            for name, tensor in tensors.items()
        )


def _digests(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): digest_file(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def _write_weights(spec: ModelSpec, path: Path) -> None:
    tensors = spec.module.state_dict()
    parameters = {name for name, _ in spec.module.named_parameters(remove_duplicate=False)}
    try:
        checkpoint.write_checkpoint(path, tensors, infinite=frozenset(tensors) - parameters)
    except CheckpointError as error:
        raise ModelError(f"'{spec.name}' {error}") from error


def load_builds_model(folder: Path, trusted: bool) -> ModelSpec:
    """Return the model of a build that somebody else may have made; run its code only if the user trusts it.

    Args:
        folder: The build's model folder.
        trusted: True if the user trusts the build.

    Raises:
        ModelError: As for `load_model`; and in an untrusted build, if the model is a captured program or of a
            factory that edgekit does not ship.
        CheckpointError: As for `load_model`.
    """
    if trusted:
        factory.search_working_directory()
        return load_model(folder)
    config = read_config(folder)
    name = config["factory"]
    if holds_program(config):
        raise ModelError(
            f"the model in '{folder}' is a captured program, which can run code of the build's author. "
            "If you trust the author, run with --trust-build"
        )
    if name and not runs_no_code(name):
        raise ModelError(
            f"the model in '{folder}' comes from '{name}', which edgekit does not ship. "
            "If you trust the build's author, run with --trust-build"
        )
    return load_model(folder)


def other_code(folder: Path, spec: ModelSpec) -> str:
    """Return a sentence if a factory's code here differs from the code at export, else an empty string.

    Args:
        folder: The model folder.
        spec: Loaded from the folder by `load_model`.
    """
    config = read_config(folder)
    if not config["factory"] or config["code_sha256"] == code_digest(code_of(spec)):
        return ""
    return CHANGED.format(
        factory=config["factory"],
        what="recorded outputs come from the code at export, fresh ones (--minutes) from today's code",
    )


def load_model(folder: Path) -> ModelSpec:
    """Load the model of a model folder: its factory's module or its captured program, with the folder's weights.

    This runs code that the folder names: use `load_builds_model` for a build of somebody else.

    Raises:
        ModelError: If the folder is not a model folder, has changed, or its factory cannot be imported.
        CheckpointError: If its weights do not fit.
    """
    from safetensors.torch import load_file

    config = read_config(folder)
    name, files = config["factory"], config["files"]
    if not name:
        return with_sets(read_captured(config, folder), folder, config["sets"])
    words, asset_files = from_record(config["words"]), {file: folder / file for file in files}
    restored = restore(name, asset_files)
    spec = factory.load_shipped(name, words) if restored is None else factory.apply_overrides(restored, words)
    expected = {name: tuple(tensor.shape) for name, tensor in spec.module.state_dict().items()}
    spec.module.load_state_dict(checkpoint.fit_checkpoint(load_file(folder / WEIGHTS), expected))
    here = {name: folder / name for name in files if name not in (WEIGHTS, *SETS.values())}
    facts = {name: config[name] for name in ("name", "licence", "author", "description")}
    spec = replace(spec, files=here, trained_on=config.get("trained_on", ""), **facts)
    return with_sets(spec, folder, config["sets"])


def load_declaration(folder: Path) -> ModelSpec:
    """Return a model as `load_model` does, with an empty module where config.json holds all that exporters ask of it.

    Raises:
        ModelError: As for `load_model`.
        CheckpointError: As for `load_model`.
    """
    import torch

    config = read_config(folder)
    if not config["factory"] or config.get("needs_factory", True):
        return load_model(folder)
    return declared_spec(config, torch.nn.Identity())


def map_weights(spec: ModelSpec, folder: Path) -> None:
    """Give a module the weights of its folder's file, mapped: pages that nobody reads take no memory.

    The module's own weights are freed. Sums may depend on the alignment of tensors in memory, so that its answers are
    not those of a reference, bit for bit. Windows replaces no mapped file, so nothing happens there.
    """
    from safetensors.torch import load_file

    if sys.platform == "win32":
        return
    stored = load_file(folder / WEIGHTS)
    for named in (spec.module.named_parameters, spec.module.named_buffers):
        for name, tensor in named(remove_duplicate=False):
            if name in stored:
                tensor.data = stored[name]


def _config(spec: ModelSpec) -> dict[str, object]:
    return {
        **declaration(spec),
        "schema_version": 1,
        "factory": spec.factory,
        "code_sha256": code_digest(code_of(spec)),
        "weights_sha256": checkpoint.weights_digest(spec),
        "words": spec.words.as_record() if spec.words else {},
        # Functions, or an ONNX file, which only the factory knows.
        "needs_factory": bool(spec.translations) or file_of(spec.module) is not None,
    }


def _holds(folder: Path, config: Mapping[str, object]) -> bool:
    """Return whether a model folder holds this config.json and its files."""
    try:
        stored = read_config(folder)
    except ModelError:
        return False
    return _identity(stored) == _identity(json.loads(dump_json(config)))


def _identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without its seal, the hashes of its graph, which differ between two captures, and of its weights.

    `weights_sha256` stands for the weights.
    """
    config = {name: value for name, value in config.items() if name != SEAL}
    files = {n: sha256 for n, sha256 in config["files"].items() if n != WEIGHTS and not n.startswith(f"{GRAPH}/")}
    return {**config, "files": files}


def code_of(spec: ModelSpec) -> set[str]:
    """Return names of the Python modules that define a model."""
    names = {type(module).__module__ for module in spec.module.modules()} | {spec.factory.partition(":")[0]}
    return names | {function.__module__ for function in own_operators.replacements(spec)}


def code_digest(names: Collection[str]) -> str:
    """Return the hash of Python modules' files and their libraries' versions; if it changes, export again."""
    texts = []
    for name in sorted(names):
        path = getattr(sys.modules.get(name), "__file__", None)
        if path and not name.startswith("torch."):
            texts.append(f"{name} {digest_file(Path(path))}")
    for name in sorted({name.partition(".")[0] for name in names}):
        texts.append(f"{name} {getattr(sys.modules.get(name), '__version__', '')}")
    return digest_text("\n".join(texts))
