"""The records of a model and its program in a build folder, read and checked without PyTorch.

config.json names the model's factory and files, program.json the captured program's; both name the hash of each file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from edgekit.errors import CaptureError, ModelError
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.storage import verified_io
from edgekit.storage.files import digest_file

if TYPE_CHECKING:
    import torch


CONFIG = "config.json"
# In a model's folder, and in the program's.
WEIGHTS = "model.safetensors"
# In a model's folder: the captured program that stands for the model's code.
GRAPH = "module"
PROGRAM = "program.pt2"
INFO = "program.json"


def read_config(folder: Path) -> dict[str, Any]:
    """Return config.json, checked together with every file that it names.

    Raises:
        ModelError: If the folder is not a model folder, or has changed.
    """
    try:
        config = verified_io.read_record(folder, CONFIG)
        files = {str(name): str(sha256) for name, sha256 in config["files"].items()}
        str(config["factory"]), dict(config["sets"]), dict(config["words"])
    except (verified_io.RefusedError, KeyError, AttributeError) as error:
        why = (
            f"'{CONFIG}' {error}"
            if isinstance(error, verified_io.RefusedError)
            else f"'{CONFIG}' lacks required fields"
        )
        raise ModelError(f"'{folder}' is not a model folder ({why}). Run `edgekit export` again") from error
    for name, sha256 in files.items():
        try:
            verified_io.check_file(folder, name, None, sha256)
        except verified_io.RefusedError as error:
            raise ModelError(
                f"the model in '{folder}' has changed since it was written ('{name}' {error}). "
                "Run `edgekit export` again"
            ) from error
    return config


def model_digest(folder: Path) -> str:
    """Return the sha256 of a model folder's config.json, which contains the hashes of the weights and of the code."""
    return digest_file(folder / CONFIG)


def recorded_weights(folder: Path) -> str:
    """Return `weights_digest` of the folder's original module, from config.json; empty if unknown.

    Raises:
        ModelError: If the folder is not a model folder, or has changed.
    """
    return str(read_config(folder).get("weights_sha256", ""))


def model_files(folder: Path) -> Collection[str]:
    """Return the files that edgekit wrote for a model in a folder, even if damaged or of an older edgekit."""
    return verified_io.named_files(folder, CONFIG)


def require_whole(folder: Path) -> None:
    """Check that a program's folder is unchanged, if it exists: an ONNX file has none.

    Raises:
        CaptureError: If it has changed.
    """
    if folder.exists():
        read_info(folder)


def program_files(folder: Path) -> Collection[str]:
    """Return the files that edgekit wrote for a program in a folder, even if damaged."""
    return verified_io.named_files(folder, INFO, PROGRAM, WEIGHTS)


def read_info(folder: Path) -> dict[str, Any]:
    """Return program.json, checked together with the program.

    Raises:
        CaptureError: If it is missing, or has changed.
    """
    try:
        info = verified_io.read_record(folder, INFO)
        files = {str(name): str(sha256) for name, sha256 in info["files"].items()}
        for name, sha256 in {PROGRAM: files[PROGRAM], **files}.items():
            verified_io.check_file(folder, name, None, sha256)
    except (verified_io.RefusedError, KeyError, TypeError, AttributeError) as error:
        raise CaptureError(f"the captured program in '{folder}' {error}. Run `edgekit export` again") from error
    return info


INVARIANTS = ("sorted", "at_most", "below")
RARE = (*INVARIANTS, "takes", "float_range")
"""Fields of an input that few models declare."""


def declaration(spec: ModelSpec) -> dict[str, Any]:
    """Return a model's declaration as JSON values, which `declared_spec` reads."""
    return {
        "name": spec.name,
        # What is not said of an input is not stored, so that it has the same record as before it could be said.
        "inputs": [{k: v for k, v in asdict(i).items() if v or k not in RARE} for i in spec.inputs],
        "outputs": [asdict(o) for o in spec.outputs],
        "axes": {name: asdict(axis) for name, axis in spec.axes.items()},
        "licence": spec.licence,
        "author": spec.author,
        "description": spec.description,
        "trained_on": spec.trained_on,
    }


def declared_spec(record: Mapping[str, Any], module: torch.nn.Module) -> ModelSpec:
    """Return the model of a stored declaration, with this module."""
    return ModelSpec(
        name=record["name"],
        module=module,
        inputs=declared_inputs(record["inputs"]),
        outputs=declared_outputs(record["outputs"]),
        axes=declared_axes(record["axes"]),
        licence=record["licence"],
        author=record["author"],
        description=record["description"],
        trained_on=record.get("trained_on", ""),
    )


def declared_inputs(rows: Sequence[Mapping[str, Any]]) -> tuple[Input, ...]:
    """Return inputs from their stored form: `dataclasses.asdict`, through JSON."""
    return TypeAdapter(tuple[Input, ...]).validate_python(rows)


def declared_outputs(rows: Sequence[Mapping[str, Any]]) -> tuple[Output, ...]:
    """Return outputs from their stored form, likewise."""
    return TypeAdapter(tuple[Output, ...]).validate_python(rows)


def declared_axes(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Axis]:
    """Return axes from their stored form."""
    return TypeAdapter(dict[str, Axis]).validate_python(rows)
