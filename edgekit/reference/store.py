"""A recorded reference on disk: reference.json, outputs.safetensors and, in a build, inputs.safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import RecordError
from edgekit.model.spec import Array
from edgekit.reference.batches import Batch, arrays_of, inputs_digest
from edgekit.storage.files import digest_file, dump_json, staging, write_text

INFO, INPUTS, OUTPUTS = "reference.json", "inputs.safetensors", "outputs.safetensors"


@dataclass(frozen=True)
class Reference:
    """A recorded reference.

    Attributes:
        batches: What was asked and answered.
        noise: For each floating-point output the largest absolute difference between the model's own answers on this
            device in fp32, on the CPU in fp32 and on the CPU in fp64, over the evaluation batch.
        info: Everything else that reference.json says.
        sha256: Of reference.json.
    """

    batches: tuple[Batch, ...]
    noise: Mapping[str, float]
    info: Mapping[str, Any]
    sha256: str

    @property
    def device(self) -> str:
        """What made it, in words."""
        return str(self.info["device"])


def write_reference(folder: Path, batches: tuple[Batch, ...], info: Mapping[str, object], with_inputs: bool) -> None:
    """Write a reference folder atomically; `info` gains the hashes and the list of batches."""
    from safetensors.numpy import save

    outputs = _named({b.name: b.outputs for b in batches})
    with staging(folder) as staged:
        (staged / OUTPUTS).write_bytes(save(outputs))
        described = [{"name": b.name, "sizes": dict(b.sizes), "names": list(b.names)} for b in batches]
        own = {"batches": described, "inputs_sha256": inputs_digest(batches)}
        own["outputs_sha256"] = digest_file(staged / OUTPUTS)
        if with_inputs:
            (staged / INPUTS).write_bytes(save(_named({b.name: b.inputs for b in batches})))
        write_text(staged / INFO, dump_json({**info, **own}))


def read_reference(folder: Path) -> Reference:
    """Read a build's reference folder, with inputs.

    Raises:
        RecordError: If it is missing, incomplete or damaged.
    """
    from safetensors.numpy import load_file

    info = describe_reference(folder)
    try:
        inputs, outputs = load_file(folder / INPUTS), load_file(folder / OUTPUTS)
    except Exception as error:
        raise RecordError(f"the reference in '{folder}' is damaged ({error}): run `edgekit reference` again") from error
    batches = tuple(
        Batch(b["name"], arrays_of(b["name"], inputs), arrays_of(b["name"], outputs), b["sizes"], tuple(b["names"]))
        for b in info["batches"]
    )
    if inputs_digest(batches) != info["inputs_sha256"] or digest_file(folder / OUTPUTS) != info["outputs_sha256"]:
        raise RecordError(f"the reference in '{folder}' was changed after it was recorded: run `edgekit reference`")
    noise = {name: max(found.values()) for name, found in info["noise"].items()}
    return Reference(batches, noise, info, digest_file(folder / INFO))


def describe_reference(folder: Path) -> dict[str, Any]:
    """What reference.json says.

    Raises:
        RecordError: If it is missing or damaged.
    """
    path = folder / INFO
    try:
        info: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise RecordError(f"no reference in '{folder}': make it with `edgekit reference`") from None
    except (OSError, ValueError) as error:
        raise RecordError(f"'{path}' is damaged ({error}): run `edgekit reference` again") from error
    return info


def _named(batches: Mapping[str, Mapping[str, Array]]) -> dict[str, Array]:
    """Arrays by `<batch>/<tensor>`; contiguous, since safetensors writes the memory of others as it lies."""
    return {
        f"{batch}/{name}": np.ascontiguousarray(array)
        for batch, arrays in batches.items()
        for name, array in arrays.items()
    }
