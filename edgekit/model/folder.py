"""A model folder: config.json (which factory, which files with which hashes), model.safetensors, the model's files.

Whatever exports or judges reads the model from there, in this process or in another one; everything is checked first.
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
from edgekit.model.records import CONFIG, GRAPH, WEIGHTS, declaration, model_files, read_config
from edgekit.model.sources import checkpoint, factory, restore, runs_no_code
from edgekit.model.spec import ModelSpec
from edgekit.storage.files import digest_file, digest_text, dump_json, scratch, staging, write_text
from edgekit.storage.verified_io import SEAL, seal_record

if TYPE_CHECKING:
    pass


CHANGED = (
    "the code behind '{factory}', or a library's version, is not that of this build's export: {what}; export again"
)


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
        model, config = place / "model", _config(spec)
        model.mkdir()  # the temporary folder itself is its owner's alone
        try:
            checkpoint.write_checkpoint(
                model / WEIGHTS,
                spec.module.state_dict(),
                infinite=(
                    frozenset(spec.module.state_dict())
                    - {name for name, _ in spec.module.named_parameters(remove_duplicate=False)}
                ),
            )
        except CheckpointError as error:
            raise ModelError(f"'{spec.name}' {error}") from error
        for file, path in spec.files.items():
            shutil.copyfile(path, model / file)
        config["sets"] = write_sets(spec, model, spec.brought if spec.factory else SETS)
        if not spec.factory:
            config["captured"] = write_captured(captured or Capture(spec), model, model / WEIGHTS)
        config["files"] = {
            p.relative_to(model).as_posix(): digest_file(p) for p in sorted(model.rglob("*")) if p.is_file()
        }
        if _holds(folder, config):
            return
        with staging(folder, model_files) as staged:
            shutil.copytree(model, staged, dirs_exist_ok=True)
            write_text(staged / CONFIG, seal_record(config))


def load_builds_model(folder: Path, trusted: bool) -> ModelSpec:
    """The model of a build that somebody else may have made: it runs no code of theirs without the user's word.

    Args:
        folder: The build's model folder.
        trusted: Whether the user trusts the build.

    Raises:
        ModelError: As for `load_model`; and where the build is not trusted, if the model is a captured program or of a
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
            f"the model in '{folder}' was given in memory and lies there as a program, which can run code of whoever "
            "made the build: run with --trust-build if you made it or trust them"
        )
    if name and not runs_no_code(name):
        raise ModelError(
            f"the model in '{folder}' is made by '{name}', which edgekit does not ship: "
            "run with --trust-build if you made the build or trust whoever did"
        )
    return load_model(folder)


def other_code(folder: Path, spec: ModelSpec) -> str:
    """That a factory's code here is not what the model was exported with, in a sentence; or nothing.

    Args:
        folder: The model folder.
        spec: What `load_model` made of it.
    """
    config = read_config(folder)
    if not config["factory"] or config["code_sha256"] == code_digest(code_of(spec)):
        return ""
    return CHANGED.format(
        factory=config["factory"],
        what="recorded answers are of the code of then, fresh ones (--minutes) of that of today",
    )


def load_model(folder: Path) -> ModelSpec:
    """Make the model of a model folder again: its factory's module, or its captured program, with the folder's weights.

    It runs the code that the folder names: `load_builds_model` asks whether it may.

    Raises:
        ModelError: If the folder is not a model folder, was changed, or its factory cannot be imported.
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


def _config(spec: ModelSpec) -> dict[str, object]:
    return {
        **declaration(spec),
        "schema_version": 1,
        "factory": spec.factory,
        "code_sha256": code_digest(code_of(spec)),
        "weights_sha256": checkpoint.weights_digest(spec),
        "words": spec.words.as_record() if spec.words else {},
    }


def _holds(folder: Path, config: Mapping[str, object]) -> bool:
    """Whether a model folder has this config.json and files as it says; of a captured program the text is compared."""
    try:
        stored = read_config(folder)
    except ModelError:
        return False
    return _identity(stored) == _identity(json.loads(dump_json(config)))


def _identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config without its seal and the hashes of the captured program's files, which differ between two captures."""
    config = {name: value for name, value in config.items() if name != SEAL}
    files = {name: sha256 for name, sha256 in config["files"].items() if not name.startswith(f"{GRAPH}/")}
    return {**config, "files": files}


def code_of(spec: ModelSpec) -> set[str]:
    """Names of the Python modules that define a model."""
    names = {type(module).__module__ for module in spec.module.modules()} | {spec.factory.partition(":")[0]}
    return names | {function.__module__ for function in own_operators.replacements(spec)}


def code_digest(names: Collection[str]) -> str:
    """Hash of the files of Python modules and of their libraries' versions: with another a model is exported again."""
    texts = []
    for name in sorted(names):
        path = getattr(sys.modules.get(name), "__file__", None)
        if path and not name.startswith("torch."):
            texts.append(f"{name} {digest_file(Path(path))}")
    for name in sorted({name.partition(".")[0] for name in names}):
        texts.append(f"{name} {getattr(sys.modules.get(name), '__version__', '')}")
    return digest_text("\n".join(texts))
