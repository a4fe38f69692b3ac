"""A recorded reference on disk: reference.json, outputs.safetensors and, in a build, inputs.safetensors."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.errors import RecordError
from edgekit.model.spec import Array
from edgekit.reference.batches import Batch, arrays_of, inputs_digest
from edgekit.reference.info import INFO, INPUTS, OUTPUTS, BatchInfo, ReferenceInfo, read_info
from edgekit.storage import door
from edgekit.storage.door import sealed
from edgekit.storage.files import digest_file, staging, write_text


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
    """Write a reference folder atomically; `info` gains the list of batches, the hashes and a seal over everything."""
    from safetensors.numpy import save

    outputs = _named({b.name: b.outputs for b in batches})
    with staging(folder, _own_files) as staged:
        (staged / OUTPUTS).write_bytes(save(outputs))
        whole = {**info, "batches": [_described(b) for b in batches], "outputs_sha256": digest_file(staged / OUTPUTS)}
        whole.pop("inputs_sha256", None)
        if with_inputs:
            (staged / INPUTS).write_bytes(save(_named({b.name: b.inputs for b in batches})))
            whole["inputs_sha256"] = digest_file(staged / INPUTS)
        write_text(staged / INFO, sealed(whole))


def read_reference(folder: Path) -> Reference:
    """Read a build's reference folder, with inputs.

    Raises:
        RecordError: If it is missing, incomplete or damaged.
    """
    info = read_info(folder)
    if not (folder / INFO).is_file():
        raise RecordError(f"no reference in '{folder}': make it with `edgekit reference`")
    if info.missing or not info.batches:
        why = info.missing.partition(" was ")[2]
        told = f"was {why}" if why else "is damaged"
        raise RecordError(f"the reference in '{folder}' {told}: run `edgekit reference` again")
    inputs = _arrays(folder, INPUTS, info.inputs_sha256)
    batches = tuple(
        Batch(b.name, arrays_of(b.name, inputs), outputs, b.sizes, b.names, b.answered_by, shapes=b.shapes)
        for b, outputs in recorded_outputs(info)
    )
    asked = [b.inputs_sha256 for b in info.batches]
    if [inputs_digest((batch,)) for batch in batches] != asked:
        raise RecordError(f"the reference in '{folder}' was changed after it was recorded: run `edgekit reference`")
    return Reference(batches, info)


def reference_of(folder: Path, weights_sha256: str) -> Reference:
    """Read a build's reference for a model with these weights (`edgekit.model.folder.recorded_weights`).

    Raises:
        RecordError: If it is missing, incomplete or damaged, or belongs to other weights.
    """
    found = read_reference(folder)
    if found.info.weights_sha256 != weights_sha256:
        raise RecordError(
            f"the reference in '{folder}' was recorded with other weights than the model's: run `edgekit export` again"
        )
    return found


def recorded_outputs(info: ReferenceInfo) -> tuple[tuple[BatchInfo, dict[str, Array]], ...]:
    """The batches of a reference with their answers, whether or not its inputs are there.

    Raises:
        RecordError: If the outputs are damaged, or are not those that reference.json names.
    """
    outputs = _arrays(info.folder, OUTPUTS, info.outputs_sha256)
    return tuple((batch, arrays_of(batch.name, outputs)) for batch in info.batches)


def _arrays(folder: Path, name: str, sha256: str) -> dict[str, Array]:
    """The arrays of one of a reference's files, once it is the one that reference.json names."""
    from safetensors.numpy import load_file

    try:
        return dict(load_file(door.check_file(folder, name, None, sha256)))
    except door.MissingError as error:
        raise RecordError(f"the reference in '{folder}' has no '{name}': run `edgekit reference` again") from error
    except door.RefusedError as error:
        raise RecordError(
            f"the reference in '{folder}' was changed after it was recorded ('{name}' {error}): run `edgekit reference`"
        ) from error
    except Exception as error:  # whatever the parser makes of a file that somebody named with its hash
        raise RecordError(f"the reference in '{folder}' is damaged ({error}): run `edgekit reference` again") from error


def _own_files(folder: Path) -> Collection[str]:
    """Which files of a folder edgekit wrote, if a reference lies there: also where it is damaged."""
    return (INFO, INPUTS, OUTPUTS) if (folder / INFO).is_file() else ()


def _described(batch: Batch) -> dict[str, object]:
    return {
        "name": batch.name,
        "sizes": dict(batch.sizes),
        "names": list(batch.names),
        "inputs_sha256": inputs_digest((batch,)),
        "answered_by": batch.answered_by,
        **({"shapes": {name: list(shape) for name, shape in batch.shapes.items()}} if batch.shapes else {}),
    }


def _largest(values: Iterable[float]) -> float:
    found = [float(value) for value in values]
    return max(found, default=0.0) if all(math.isfinite(value) for value in found) else math.nan


def _named(batches: Mapping[str, Mapping[str, Array]]) -> dict[str, Array]:
    """Arrays by `<batch>/<tensor>`; contiguous, since safetensors writes the memory of others as it lies."""
    return {
        f"{batch}/{name}": np.asarray(array, order="C")
        for batch, arrays in batches.items()
        for name, array in arrays.items()
    }
