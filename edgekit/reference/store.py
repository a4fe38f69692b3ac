"""Recorded reference on disk: reference.json, outputs.safetensors and, in a build, inputs.safetensors.

A build stores the evaluation inputs. All others follow from these, from seeds and from the shipped photographs:
reference.json names them, a reader regenerates them (`edgekit.reference.batches.BatchSource`) and checks their hash.
Pictures of 8 bits are stored as bytes; arrays keep their order in memory, which sums depend on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from edgekit.errors import RecordError
from edgekit.model import records
from edgekit.model.spec import Array, EvaluationSet, ModelSpec
from edgekit.reference.batches import EVALUATION, WORDS, Batch, BatchSource, inputs_digest
from edgekit.reference.info import INFO, INPUTS, OUTPUTS, BatchInfo, ReferenceInfo, StoredForm, read_info
from edgekit.storage import verified_io
from edgekit.storage.files import digest_file, staging, write_text
from edgekit.storage.verified_io import seal_record

if TYPE_CHECKING:
    import torch

# Most elements of inputs to regenerate (2 GiB of fp32); a larger reference stores them.
LARGEST = 1 << 29
# Rows of a regenerated batch, as an upper bound over all kinds.
MOST_ROWS = 64


@dataclass(frozen=True)
class Reference:
    """A recorded reference.

    Attributes:
        info: The content of reference.json.
        read: Reads the batches with their outputs.
    """

    info: ReferenceInfo
    read: Callable[[], tuple[Batch, ...]]

    @functools.cached_property
    def batches(self) -> tuple[Batch, ...]:
        """The batches with outputs.

        Raises:
            RecordError: If they are missing or damaged.
        """
        return self.read()

    @functools.cached_property
    def outputs(self) -> tuple[tuple[BatchInfo, Mapping[str, Array]], ...]:
        """Each batch with its outputs, without its inputs.

        Raises:
            RecordError: If they are missing or damaged.
        """
        return recorded_outputs(self.info)

    @property
    def noise(self) -> Mapping[str, float]:
        """Largest absolute difference between the model's own runs, for each floating-point output.

        The runs are on the reference's device in fp32, on the CPU in fp32 and on the CPU in fp64, over the evaluation
        batch. The value is NaN if any of them is not finite, which `ReferenceInfo.noise` leaves out: the judge refuses
        such a reference.
        """
        raw: Mapping[str, Mapping[str, float]] = self.info.raw.get("noise", {})
        return {output: _largest(by_pair.values()) for output, by_pair in raw.items()}

    @property
    def channel_noise(self) -> Mapping[str, Array]:
        """The noise of each channel of outputs whose channels are quantities, float64 [channels]; NaN if unknown.

        Empty in a reference that was recorded by an earlier version.
        """
        raw: Mapping[str, Sequence[float | None]] = self.info.raw.get("channel_noise", {})
        return {output: np.array(values, np.float64) for output, values in raw.items()}

    @property
    def sha256(self) -> str:
        """Hash of reference.json."""
        return self.info.sha256

    @property
    def device(self) -> str:
        """Description of its device."""
        return self.info.device


def write_reference(folder: Path, batches: tuple[Batch, ...], info: Mapping[str, object], with_inputs: bool) -> None:
    """Write a reference folder atomically; `info` gains the batches, the hashes and a seal over everything.

    Args:
        folder: The folder to write.
        batches: The batches with outputs.
        info: Other content of reference.json. With `declared` in it (`declaration`) the batches are those of
            `batches_for`, and only the evaluation inputs are stored; without it, all inputs are.
        with_inputs: True to store inputs for readers; a reference that ships with its model leaves them out.
    """
    from safetensors.numpy import save

    outputs = _flat_names({b.name: b.outputs for b in batches})
    with staging(folder, _own_files) as staged:
        (staged / OUTPUTS).write_bytes(save(outputs))
        whole = {**info, "batches": [_describe(b) for b in batches], "outputs_sha256": digest_file(staged / OUTPUTS)}
        for key in ("inputs_sha256", "stored"):
            whole.pop(key, None)
        every = not (_has_declaration(info) and _size(info, batches) <= LARGEST)
        stored = {b.name: b.inputs for b in batches if with_inputs and (every or b.kept or b.name == EVALUATION)}
        # The other inputs of this batch are regenerated, but the model's vocabulary is not here.
        if with_inputs and not every:
            stored |= {b.name: _queries_of(info, b) for b in batches if b.name == WORDS}
        # Not `_flat_names`: a stored form keeps the memory layout.
        if arrays := {f"{batch}/{name}": array for batch, inputs in stored.items() for name, array in inputs.items()}:
            forms = {name: StoredForm.of(array) for name, array in arrays.items()}
            (staged / INPUTS).write_bytes(save({name: form.store(arrays[name]) for name, form in forms.items()}))
            whole["inputs_sha256"] = digest_file(staged / INPUTS)
            whole["stored"] = {name: asdict(form) for name, form in forms.items() if form != StoredForm()}
        write_text(staged / INFO, seal_record(whole))


def declaration(spec: ModelSpec) -> dict[str, object]:
    """Return the part of reference.json from which a model's inputs can be regenerated."""
    whole = records.declaration(spec)
    return {name: whole[name] for name in ("inputs", "outputs", "axes")}


def read_reference(folder: Path, in_memory: Iterable[Batch] = ()) -> Reference:
    """Read a build's reference folder, with inputs.

    Args:
        folder: The reference.
        in_memory: The caller's batches of `batches_for`, which are not regenerated but checked against the recorded
            hashes like all inputs.

    Raises:
        RecordError: If it is missing, incomplete or damaged.
    """
    info = read_info(folder)
    if not (folder / INFO).is_file():
        raise RecordError(f"no reference in '{folder}'. Record it with `edgekit reference`")
    if info.missing or not info.batches:
        why = info.missing.partition(" was ")[2]
        damage = f"was {why}" if why else "is damaged"
        raise RecordError(f"the reference in '{folder}' {damage}. Run `edgekit reference` again")
    inputs = _inputs(info, in_memory)
    batches = tuple(
        Batch(b.name, inputs[b.name], outputs, b.sizes, b.names, b.answered_by, shapes=b.shapes)
        for b, outputs in recorded_outputs(info)
    )
    if [inputs_digest((batch,)) for batch in batches] != [b.inputs_sha256 for b in info.batches]:
        raise RecordError(
            f"the reference in '{folder}' was changed after it was recorded. Run `edgekit reference` again"
        )
    return Reference(info, lambda: batches)


def reference_of(folder: Path, weights_sha256: str) -> Reference:
    """Read a build's reference for a model with these weights (`edgekit.model.folder.recorded_weights`).

    Raises:
        RecordError: If it is missing, incomplete or damaged, or belongs to other weights.
    """
    reference = read_reference(folder)
    if reference.info.weights_sha256 != weights_sha256:
        raise RecordError(
            f"the reference in '{folder}' was recorded with other weights than the model's. Run `edgekit export` again"
        )
    return reference


def recorded_outputs(info: ReferenceInfo) -> tuple[tuple[BatchInfo, Mapping[str, Array]], ...]:
    """Return the batches of a reference with their outputs, with or without its inputs.

    Raises:
        RecordError: If the outputs are damaged, or differ from those that reference.json names.
    """
    outputs = _arrays(info.folder, OUTPUTS, info.files[OUTPUTS])
    return tuple((batch, arrays_of(batch.name, outputs)) for batch in info.batches)


def arrays_of(batch: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays of one batch by their own names, out of a file's."""
    prefix = f"{batch}/"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _inputs(info: ReferenceInfo, batches: Iterable[Batch]) -> dict[str, Mapping[str, Array]]:
    """Return the inputs of each batch by its name: stored, or regenerated.

    Raises:
        RecordError: If they are missing or damaged.
    """
    stored = (
        _arrays(info.folder, INPUTS, info.files[INPUTS]) if info.files[INPUTS] or not _has_declaration(info.raw) else {}
    )
    try:
        stored = {name: info.form(name).restore(array) for name, array in stored.items()}
        inputs: dict[str, Mapping[str, Array]] = {b.name: arrays_of(b.name, stored) for b in info.batches}
        whole = len(_spec(info.raw).inputs) if _has_declaration(info.raw) else 1
        lacking = [b for b in info.batches if len(inputs[b.name]) < (whole if b.name == WORDS else 1)]
        if lacking and _size(info.raw, info.batches) <= LARGEST:
            names = next((b.names for b in info.batches if b.name == EVALUATION), ())
            real = EvaluationSet(inputs[EVALUATION], names) if inputs.get(EVALUATION) else None
            words = next((b.names for b in info.batches if b.name == WORDS), ())
            queries = next(iter(inputs.get(WORDS, {}).values()), ())
            source = BatchSource(_spec(info.raw), real, dict(zip(words, queries, strict=True)), info.first)
            ready = {b.name: b for b in batches}
            inputs |= {b.name: _regenerate(source, b, ready.get(b.name)) for b in lacking}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(
            f"the inputs of the reference in '{info.folder}' cannot be regenerated ({error}). Run `edgekit reference` "
            "again"
        ) from error
    return inputs


def _regenerate(source: BatchSource, batch_info: BatchInfo, in_memory: Batch | None) -> Mapping[str, Array]:
    can_reuse = in_memory is not None and in_memory.sizes == batch_info.sizes
    batch = in_memory if can_reuse else source.batch(batch_info.name, batch_info.sizes)
    if batch is None:
        raise ValueError(f"the model has no inputs '{batch_info.name}'")
    # Rows for which the model itself returns NaN are left out.
    if batch.names != batch_info.names:
        batch = batch.select_rows([batch.names.index(name) for name in batch_info.names], batch_info.name)
    return batch.inputs


def _queries_of(info: Mapping[str, Any], batch: Batch) -> dict[str, Array]:
    """Return the queries of a batch by their input."""
    return {i.name: batch.inputs[i.name] for i in _spec(info).inputs if i.kind == "query"}


def _has_declaration(info: Mapping[str, Any]) -> bool:
    return "declared" in info


def _spec(info: Mapping[str, Any]) -> ModelSpec:
    """Return a model's inputs, outputs and axes, without the model."""
    declared = info["declared"]
    inputs, axes = records.declared_inputs(declared["inputs"]), records.declared_axes(declared["axes"])
    # A reference of an earlier version has none.
    outputs = records.declared_outputs(declared.get("outputs", ()))
    return ModelSpec("", cast("torch.nn.Module", None), inputs, outputs, axes)


def _size(info: Mapping[str, Any], batches: Iterable[Batch | BatchInfo]) -> float:
    """Return the most elements that the inputs of some batches can have, before any is generated."""
    spec = _spec(info)
    return sum(
        math.prod(abs(float(n)) for n in spec.shape(i.name, batch.sizes))
        * (1 if batch.sizes else max(MOST_ROWS, len(batch.names)))
        for batch in batches
        for i in spec.inputs
    )


def _arrays(folder: Path, name: str, sha256: str) -> dict[str, Array]:
    """Return the arrays of one of a reference's files after a check of its hash."""
    from safetensors.numpy import load_file

    try:
        return dict(load_file(verified_io.check_file(folder, name, None, sha256)))
    except verified_io.MissingError as error:
        raise RecordError(f"the reference in '{folder}' has no '{name}'. Run `edgekit reference` again") from error
    except verified_io.RefusedError as error:
        raise RecordError(
            f"the reference in '{folder}' was changed after it was recorded ('{name}' {error}). Run `edgekit "
            "reference` again"
        ) from error
    except Exception as error:  # whatever the parser makes of a file that somebody named with its hash
        raise RecordError(f"the reference in '{folder}' is damaged ({error}). Run `edgekit reference` again") from error


def _own_files(folder: Path) -> Collection[str]:
    """Return the names of edgekit's files in a reference folder, even a damaged one."""
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
    """Return arrays by `<batch>/<tensor>`."""
    return {
        # safetensors writes the raw memory of an array, so it must be contiguous.
        f"{batch}/{name}": np.asarray(array, order="C")
        for batch, arrays in batches.items()
        for name, array in arrays.items()
    }
