"""A recorded reference on disk: reference.json, outputs.safetensors and, in a build, inputs.safetensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.errors import RecordError
from edgekit.model.spec import Array
from edgekit.reference.batches import Batch, arrays_of, inputs_digest
from edgekit.reference.info import INFO, INPUTS, OUTPUTS, ReferenceInfo, read_info
from edgekit.storage.files import digest_file, dump_json, staging, write_text


@dataclass(frozen=True)
class Reference:
    """A recorded reference.

    Attributes:
        batches: What was asked and answered.
        info: What reference.json says.
    """

    batches: tuple[Batch, ...]
    info: ReferenceInfo

    @property
    def noise(self) -> Mapping[str, float]:
        """For each floating-point output the largest absolute difference between the model's own answers.

        They were given on this device in fp32, on the CPU in fp32 and on the CPU in fp64, over the evaluation batch.
        NaN where any of them is not finite, which `ReferenceInfo.noise` leaves out: the judge refuses such a reference.
        """
        raw: Mapping[str, Mapping[str, float]] = self.info.raw.get("noise", {})
        return {output: _largest(found.values()) for output, found in raw.items()}

    @property
    def sha256(self) -> str:
        """Of reference.json."""
        return self.info.sha256

    @property
    def device(self) -> str:
        """What made it, in words."""
        return self.info.device


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

    info = read_info(folder)
    if not (folder / INFO).is_file():
        raise RecordError(f"no reference in '{folder}': make it with `edgekit reference`")
    if info.missing or not info.batches:
        raise RecordError(f"the reference in '{folder}' is damaged: run `edgekit reference` again")
    try:
        inputs, outputs = load_file(folder / INPUTS), load_file(folder / OUTPUTS)
    except Exception as error:
        raise RecordError(f"the reference in '{folder}' is damaged ({error}): run `edgekit reference` again") from error
    batches = tuple(
        Batch(b.name, arrays_of(b.name, inputs), arrays_of(b.name, outputs), b.sizes, b.names) for b in info.batches
    )
    if inputs_digest(batches) != info.inputs_sha256 or digest_file(folder / OUTPUTS) != info.outputs_sha256:
        raise RecordError(f"the reference in '{folder}' was changed after it was recorded: run `edgekit reference`")
    return Reference(batches, info)


def _largest(values: Iterable[float]) -> float:
    found = [float(value) for value in values]
    return max(found, default=0.0) if all(math.isfinite(value) for value in found) else math.nan


def _named(batches: Mapping[str, Mapping[str, Array]]) -> dict[str, Array]:
    """Arrays by `<batch>/<tensor>`; contiguous, since safetensors writes the memory of others as it lies."""
    return {
        f"{batch}/{name}": np.ascontiguousarray(array)
        for batch, arrays in batches.items()
        for name, array in arrays.items()
    }
