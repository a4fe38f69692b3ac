"""A recorded reference on disk: reference.json, outputs.safetensors and, in a build, inputs.safetensors.

A build stores the evaluation inputs. All others follow from these, from seeds and from the photographs that ship: they
are named in reference.json, made again when they are read (`edgekit.reference.batches.BatchSource`), and held against
their hash. Pictures of 8 bits are stored as bytes; arrays keep the order in memory, which sums depend on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from edgekit.errors import RecordError
from edgekit.model import records
from edgekit.model.spec import Array, EvaluationSet, ModelSpec
from edgekit.reference.batches import EVALUATION, Batch, BatchSource, arrays_of, inputs_digest
from edgekit.reference.info import INFO, INPUTS, OUTPUTS, BatchInfo, ReferenceInfo, StoredForm, read_info
from edgekit.storage import verified_io
from edgekit.storage.files import digest_file, staging, write_text
from edgekit.storage.verified_io import seal_record

if TYPE_CHECKING:
    import torch

LARGEST = 1 << 29  # elements of inputs that are made again (2 GiB of fp32); a larger reference stores them
MOST_ROWS = 64  # of a batch that is made again: more than any kind has


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
        return {output: _largest(by_pair.values()) for output, by_pair in raw.items()}

    @property
    def sha256(self) -> str:
        """Of reference.json."""
        return self.info.sha256

    @property
    def device(self) -> str:
        """What made it, in words."""
        return self.info.device


def write_reference(folder: Path, batches: tuple[Batch, ...], info: Mapping[str, object], with_inputs: bool) -> None:
    """Write a reference folder atomically; `info` gains the list of batches, the hashes and a seal over everything.

    Args:
        folder: Where to write.
        batches: What was asked and answered.
        info: What else reference.json says. With `declared` in it (`declaration`) the batches are what `batches_for`
            makes, and only the evaluation inputs are stored; without it, all inputs are.
        with_inputs: Whether a reader gets the inputs; a reference that ships with its model leaves them out.
    """
    from safetensors.numpy import save

    outputs = _flat_names({b.name: b.outputs for b in batches})
    with staging(folder, _own_files) as staged:
        (staged / OUTPUTS).write_bytes(save(outputs))
        whole = {**info, "batches": [_describe(b) for b in batches], "outputs_sha256": digest_file(staged / OUTPUTS)}
        for key in ("inputs_sha256", "stored"):
            whole.pop(key, None)
        every = not (_has_declaration(info) and _size(info, batches) <= LARGEST)
        stored = [b for b in batches if with_inputs and (every or b.kept or b.name == EVALUATION)]
        if stored:
            forms = {f"{b.name}/{name}": StoredForm.of(array) for b in stored for name, array in b.inputs.items()}
            arrays = {f"{b.name}/{name}": array for b in stored for name, array in b.inputs.items()}
            (staged / INPUTS).write_bytes(save({name: form.store(arrays[name]) for name, form in forms.items()}))
            whole["inputs_sha256"] = digest_file(staged / INPUTS)
            whole["stored"] = {name: asdict(form) for name, form in forms.items() if form != StoredForm()}
        write_text(staged / INFO, seal_record(whole))


def declaration(spec: ModelSpec) -> dict[str, object]:
    """What reference.json says of a model, so that its inputs can be made again."""
    whole = records.declaration(spec)
    return {name: whole[name] for name in ("inputs", "axes")}


def read_reference(folder: Path, in_memory: Iterable[Batch] = ()) -> Reference:
    """Read a build's reference folder, with inputs.

    Args:
        folder: The reference.
        in_memory: What the caller has of `batches_for`, which is not made again; it is held against the recorded hashes
            like all inputs.

    Raises:
        RecordError: If it is missing, incomplete or damaged.
    """
    info = read_info(folder)
    if not (folder / INFO).is_file():
        raise RecordError(f"no reference in '{folder}': make it with `edgekit reference`")
    if info.missing or not info.batches:
        why = info.missing.partition(" was ")[2]
        damage = f"was {why}" if why else "is damaged"
        raise RecordError(f"the reference in '{folder}' {damage}: run `edgekit reference` again")
    inputs = _inputs(info, in_memory)
    batches = tuple(
        Batch(b.name, inputs[b.name], outputs, b.sizes, b.names, b.answered_by, shapes=b.shapes)
        for b, outputs in recorded_outputs(info)
    )
    if [inputs_digest((batch,)) for batch in batches] != [b.inputs_sha256 for b in info.batches]:
        raise RecordError(f"the reference in '{folder}' was changed after it was recorded: run `edgekit reference`")
    return Reference(batches, info)


def reference_of(folder: Path, weights_sha256: str) -> Reference:
    """Read a build's reference for a model with these weights (`edgekit.model.folder.recorded_weights`).

    Raises:
        RecordError: If it is missing, incomplete or damaged, or belongs to other weights.
    """
    reference = read_reference(folder)
    if reference.info.weights_sha256 != weights_sha256:
        raise RecordError(
            f"the reference in '{folder}' was recorded with other weights than the model's: run `edgekit export` again"
        )
    return reference


def recorded_outputs(info: ReferenceInfo) -> tuple[tuple[BatchInfo, dict[str, Array]], ...]:
    """The batches of a reference with their answers, whether or not its inputs are there.

    Raises:
        RecordError: If the outputs are damaged, or are not those that reference.json names.
    """
    outputs = _arrays(info.folder, OUTPUTS, info.files[OUTPUTS])
    return tuple((batch, arrays_of(batch.name, outputs)) for batch in info.batches)


def _inputs(info: ReferenceInfo, batches: Iterable[Batch]) -> dict[str, Mapping[str, Array]]:
    """The inputs of each batch by its name: those that are stored, and the others as they are made.

    Raises:
        RecordError: If they are missing or damaged.
    """
    stored = (
        _arrays(info.folder, INPUTS, info.files[INPUTS]) if info.files[INPUTS] or not _has_declaration(info.raw) else {}
    )
    try:
        stored = {name: info.form(name).restore(array) for name, array in stored.items()}
        inputs: dict[str, Mapping[str, Array]] = {b.name: arrays_of(b.name, stored) for b in info.batches}
        lacking = [b for b in info.batches if not inputs[b.name]]
        if lacking and _size(info.raw, info.batches) <= LARGEST:
            names = next((b.names for b in info.batches if b.name == EVALUATION), ())
            real = EvaluationSet(inputs[EVALUATION], names) if inputs.get(EVALUATION) else None
            source = BatchSource(_spec(info.raw), real)
            ready = {b.name: b for b in batches}
            inputs |= {b.name: _regenerate(source, b, ready.get(b.name)) for b in lacking}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(
            f"the inputs that the reference in '{info.folder}' names cannot be made again ({error}): "
            "run `edgekit reference` again"
        ) from error
    return inputs


def _regenerate(source: BatchSource, batch_info: BatchInfo, in_memory: Batch | None) -> Mapping[str, Array]:
    can_reuse = in_memory is not None and in_memory.sizes == batch_info.sizes
    batch = in_memory if can_reuse else source.batch(batch_info.name, batch_info.sizes)
    if batch is None:
        raise ValueError(f"the model has no inputs '{batch_info.name}'")
    if batch.names != batch_info.names:  # rows that the model itself answers with NaN are left out
        batch = batch.select_rows([batch.names.index(name) for name in batch_info.names], batch_info.name)
    return batch.inputs


def _has_declaration(info: Mapping[str, Any]) -> bool:
    return "declared" in info


def _spec(info: Mapping[str, Any]) -> ModelSpec:
    """A model's inputs and axes, without the model."""
    overrides = info["declared"]
    inputs, axes = records.declared_inputs(overrides["inputs"]), records.declared_axes(overrides["axes"])
    return ModelSpec("", cast("torch.nn.Module", None), inputs, (), axes)


def _size(info: Mapping[str, Any], batches: Iterable[Batch | BatchInfo]) -> float:
    """Elements that the inputs of some batches have at most, before any is made."""
    spec = _spec(info)
    return sum(
        math.prod(abs(float(n)) for n in spec.shape(i.name, batch.sizes))
        * (1 if batch.sizes else max(MOST_ROWS, len(batch.names)))
        for batch in batches
        for i in spec.inputs
    )


def _arrays(folder: Path, name: str, sha256: str) -> dict[str, Array]:
    """The arrays of one of a reference's files, once it is the one that reference.json names."""
    from safetensors.numpy import load_file

    try:
        return dict(load_file(verified_io.check_file(folder, name, None, sha256)))
    except verified_io.MissingError as error:
        raise RecordError(f"the reference in '{folder}' has no '{name}': run `edgekit reference` again") from error
    except verified_io.RefusedError as error:
        raise RecordError(
            f"the reference in '{folder}' was changed after it was recorded ('{name}' {error}): run `edgekit reference`"
        ) from error
    except Exception as error:  # whatever the parser makes of a file that somebody named with its hash
        raise RecordError(f"the reference in '{folder}' is damaged ({error}): run `edgekit reference` again") from error


def _own_files(folder: Path) -> Collection[str]:
    """Which files of a folder edgekit wrote, if a reference lies there: also where it is damaged."""
    return (INFO, INPUTS, OUTPUTS) if (folder / INFO).is_file() else ()


def _describe(batch: Batch) -> dict[str, object]:
    return {
        "name": batch.name,
        "sizes": dict(batch.sizes),
        "names": list(batch.names),
        "inputs_sha256": inputs_digest((batch,)),
        "answered_by": batch.answered_by,
        **({"shapes": {name: list(shape) for name, shape in batch.shapes.items()}} if batch.shapes else {}),
    }


def _largest(values: Iterable[float]) -> float:
    values_as_floats = [float(value) for value in values]
    return max(values_as_floats, default=0.0) if all(math.isfinite(value) for value in values_as_floats) else math.nan


def _flat_names(batches: Mapping[str, Mapping[str, Array]]) -> dict[str, Array]:
    """Arrays by `<batch>/<tensor>`; contiguous, since safetensors writes the memory of others as it lies."""
    return {
        f"{batch}/{name}": np.asarray(array, order="C")
        for batch, arrays in batches.items()
        for name, array in arrays.items()
    }
