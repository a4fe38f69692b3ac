"""Reference of a build: its own, the one that ships with the model, or a new one recorded on the CPU.

A shipped reference may lack new inputs, features of some rows, or the noise of some outputs. The module on this CPU in
fp32 supplies these; every batch names its device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.artifact.run_record import CACHE
from edgekit.errors import EdgekitError, RecordError
from edgekit.evaluate.rows import Axes
from edgekit.judge.rows import PLACES, SUFFIX
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.model.spec import Array, ModelSpec, Output
from edgekit.reference.batches import Batch, each_batch, inputs_digest, same_inputs
from edgekit.reference.info import INFO, ReferenceInfo, read_info
from edgekit.reference.record import (
    NOISE_ROWS,
    RecordingSubject,
    align_ranking,
    measured_noise,
    record,
    retain,
    run_batches,
    subject_of,
    task_digest,
    without,
)
from edgekit.reference.store import Reference, declaration, read_reference, recorded_outputs, write_reference
from edgekit.storage.files import write_text
from edgekit.target import silent

# In a build's cache: the subject of its reference, and the reference, as hashes.
KNOWN = "reference.sha256"


def obtain(spec: ModelSpec, folder: Path, progress: Callable[[float, str], None] = silent) -> Reference:
    """Return a build's reference: its own if the weights match, else the shipped one, else a new CPU one.

    Args:
        spec: The model.
        folder: The build's reference folder.
        progress: Receives progress callbacks.

    Raises:
        RecordError: If the model's own output is not finite, or the shipped reference was changed.
    """
    subject = replace(subject_of(spec), first=read_info(folder).first)
    if (known := _known_reference(subject, folder)) is not None:
        return known
    reference = _existing_reference(subject, folder)
    if reference is None:
        progress(0.1, "preparing the reference")
        subject = _adopt(subject, folder) or record(subject, folder, "cpu", True, progress)
        reference = read_reference(folder, subject.asked)
    # Its inputs need not be made and compared again.
    cache = folder.parent / CACHE
    cache.mkdir(exist_ok=True)
    write_text(cache / KNOWN, _known(subject, reference.info))
    return reference


def reference_folder(spec: ModelSpec, folder: Path) -> Path:
    """Return the user's reference folder for a model, after a check.

    Raises:
        RecordError: If it is missing, or belongs to other weights.
    """
    info = read_info(folder)
    if not (folder / INFO).is_file() or info.missing:
        why = f": {info.missing}" if (folder / INFO).is_file() else ""
        raise RecordError(f"no usable reference in '{folder}'{why}. Record one with `edgekit reference -o`")
    if info.weights_sha256 != weights_digest(spec):
        raise RecordError(
            f"the reference in '{folder}' belongs to other weights than those of '{spec.name}'. Record one with "
            "`edgekit reference -o`"
        )
    return folder


def _known(subject: RecordingSubject, info: ReferenceInfo) -> str:
    return f"{subject.sha256} {info.sha256}\n"


def _known_reference(subject: RecordingSubject, folder: Path) -> Reference | None:
    """Return an intact reference that an earlier run found to belong to this subject; None if there is none."""
    info, path = read_info(folder), folder.parent / CACHE / KNOWN
    if info.damage or not path.is_file() or path.read_text() != _known(subject, info):
        return None
    reference = Reference(info, lambda: read_reference(folder, subject.asked).batches)
    first = next(each_batch(subject.spec, subject.evaluation))
    recorded, outputs = reference.outputs[0]
    # Rows for which the model itself returns NaN were left out.
    if first.names != recorded.names or not _answers_alike(subject, info, replace(first, outputs=outputs)):
        return None
    return reference


def _existing_reference(subject: RecordingSubject, folder: Path) -> Reference | None:
    """Return a build's reference if it is intact and belongs to these weights and inputs, else None."""
    try:
        reference = read_reference(folder, subject.asked)
    except RecordError:
        return None
    same = reference.info.weights_sha256 == subject.weights_sha256
    same &= reference.info.raw.get("task_sha256", "") in ("", task_digest(subject.evaluation))
    batches = without(subject.asked, reference.info.raw.get("unanswered", {}))
    same = same and same_inputs(reference.batches, batches)
    return reference if same and _answers_alike(subject, reference.info, reference.batches[0]) else None


ALIKE = 1e-2
"""Of an output's largest value: another device differs by less, other code or preprocessing by more."""


def _answers_alike(subject: RecordingSubject, info: ReferenceInfo, batch: Batch) -> bool:
    """Return whether the module still gives a batch's recorded answer to its first row: its code may have changed."""
    single, axes = batch.first(1), info.row_axes
    # An output that was renamed or added has no recorded answers.
    if any(output.name not in axes for output in subject.spec.outputs):
        return False
    try:
        (answered, *_), _ = run_batches(subject.open_runtime(), subject.spec.outputs, (single,), axes)
    except EdgekitError:
        return False
    for output in subject.spec.outputs:
        expected, actual = single.outputs.get(output.name), answered.outputs.get(output.name)
        if expected is None or actual is None or expected.dtype.kind != "f" or output.role in ("features", "counts"):
            continue
        # Where rows lie along another axis, `first` cannot cut the recorded answer.
        if axes.get(output.name) != 0 or expected.shape != actual.shape:
            continue
        if not np.allclose(actual, expected, rtol=0, atol=ALIKE * float(np.abs(expected).max(initial=0)) + 1e-12):
            return False
    return True


def _adopt(subject: RecordingSubject, folder: Path) -> RecordingSubject | None:
    """Copy the shipped reference into a build; return its subject, or None if it belongs to other weights or inputs.

    Raises:
        RecordError: If it was changed after it was recorded.
    """
    shipped = subject.spec.reference
    if shipped is None or not shipped.is_dir():
        return None
    info = read_info(shipped)
    if info.missing:
        raise RecordError(
            f"the reference that ships with '{subject.spec.name}' in '{shipped}' is unusable: {info.missing}. Record "
            "it with `edgekit reference --device cuda`"
        )
    if info.weights_sha256 != subject.weights_sha256:
        return None
    subject = replace(subject, first=info.first)
    by_name = {batch.name: (batch, outputs) for batch, outputs in recorded_outputs(info)}
    arrays = {
        batch.name: by_name[batch.name][1]
        for batch in subject.asked
        if batch.name in by_name and by_name[batch.name][0].inputs_sha256 == inputs_digest((batch,))
    }
    if not arrays:
        return None
    batches, axes = _complete_answers(subject, arrays, info)
    noise = _noise(subject, info, axes, batches)
    whole = {**info.raw, "row_axes": dict(axes), **noise, "declared": declaration(subject.spec)}
    write_reference(folder, batches, whole, with_inputs=True)
    return subject


def _complete_answers(
    subject: RecordingSubject, arrays: Mapping[str, Mapping[str, Array]], info: ReferenceInfo
) -> tuple[tuple[Batch, ...], Axes]:
    """Return all batches with outputs: the recorded ones, and the CPU's if any are missing."""
    lacking = [b for b in subject.asked if b.name not in arrays or _partial(subject, arrays[b.name], len(b.names))]
    runtime = subject.open_runtime()
    axes = info.row_axes or None
    results, axes = run_batches(runtime, subject.spec.outputs, lacking if lacking or axes else subject.asked[:1], axes)
    own = {batch.name: batch for batch in results}
    batches = []
    for batch in subject.asked:
        if batch.name not in arrays:
            outputs, by = own[batch.name].outputs, runtime.device
        elif batch.name in own:
            outputs = _fill_features(subject.spec.outputs, arrays[batch.name], own[batch.name].outputs)
            by = f"{info.device} (features that it did not keep: {runtime.device})"
        else:
            outputs, by = arrays[batch.name], info.device
        batches.append(replace(batch, outputs=retain(subject.spec.outputs, outputs), answered_by=by))
    return tuple(batches), axes


def _partial(subject: RecordingSubject, outputs: Mapping[str, Array], rows: int) -> bool:
    return any(len(outputs[n]) < rows and n + SUFFIX not in outputs for n in subject.features if n in outputs)


def _fill_features(
    outputs: tuple[Output, ...], arrays: Mapping[str, Array], own: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the recorded outputs with their features completed; a row with other patches comes from the CPU."""
    same = align_ranking(outputs, arrays, own)
    filled = {name: array.copy() for name, array in arrays.items() if len(array) == len(own[name])}
    other = np.zeros(len(next(iter(own.values()))), bool)
    for name in own.keys() - filled.keys():
        first = len(arrays[name])
        filled[name] = np.concatenate([arrays[name], same[name][first:].astype(arrays[name].dtype)])
        other |= np.isnan(filled[name]).reshape(len(other), -1).any(1)
    for name, array in filled.items():
        array[other] = own[name][other]
    return filled


def _noise(subject: RecordingSubject, info: ReferenceInfo, axes: Axes, batches: tuple[Batch, ...]) -> dict[str, object]:
    """Return the recorded noise by output and by channel; of outputs without any, that of the CPU's two precisions."""
    noise, channel_noise = dict(info.raw.get("noise", {})), dict(info.raw.get("channel_noise", {}))
    first = batches[0].first(NOISE_ROWS)
    lacking = {name for name, array in first.outputs.items() if array.dtype.kind == "f" and name not in noise}
    lacking = {name for name in lacking if not name.endswith((SUFFIX, PLACES))}
    if lacking:
        rows = next(b for b in subject.asked if b.name == first.name).first(NOISE_ROWS)
        own, _ = run_batches(subject.open_runtime(), subject.spec.outputs, (rows,), axes)
        by_output, by_channel, _ = measured_noise(subject, own[0], "cpu", axes, lacking)
        noise, channel_noise = noise | by_output, channel_noise | by_channel
    return {"noise": noise, "channel_noise": channel_noise}
