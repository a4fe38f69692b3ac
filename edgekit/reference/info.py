"""Content of reference.json, read tolerantly: a report needs nothing of it; a judge checks `missing`."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from edgekit.model.spec import Array
from edgekit.storage import verified_io
from edgekit.storage.files import digest_text
from edgekit.storage.verified_io import seal_record

INFO, INPUTS, OUTPUTS = "reference.json", "inputs.safetensors", "outputs.safetensors"
# Elements: a smaller array is stored unchanged.
SMALLEST = 1 << 12
# Prefix of the evaluation set's tensors.
_PREFIX = "evaluation/"


@dataclass(frozen=True)
class Noise:
    """The reference's difference from itself: one output on two devices or in two precisions."""

    output: str
    between: str
    value: float


@dataclass(frozen=True)
class Speed:
    """Latency of the model itself on the reference's device, in milliseconds."""

    batch: str
    mode: str
    p50: float
    p95: float | None = None


@dataclass(frozen=True)
class BatchInfo:
    """One batch of a reference.

    Attributes:
        name: Name of the batch.
        sizes: Sizes of its axes, if it is one shape.
        names: One name per row.
        inputs_sha256: Hash of its inputs.
        answered_by: Description of the device that ran it.
        shapes: Declared shapes of the inputs whose batch is not their first axis.
    """

    name: str
    sizes: Mapping[str, int]
    names: tuple[str, ...]
    inputs_sha256: str = ""
    answered_by: str = ""
    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredForm:
    """Form of an array of inputs in inputs.safetensors.

    Attributes:
        pixels: True if floats that are whole 255ths are stored as bytes.
        order: The axes in memory order, the slowest first; empty if that is their own order.
    """

    pixels: bool = False
    order: tuple[int, ...] = ()

    @classmethod
    def of(cls, array: Array) -> StoredForm:
        """Return the smallest form of an array that restores it bit for bit."""
        order = tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))
        form = cls(order=() if order == tuple(range(array.ndim)) else order)
        if array.dtype != np.float32 or array.size < SMALLEST:
            return form
        pixels = replace(form, pixels=True)
        same = np.array_equal(pixels.restore(pixels.store(array)).view(np.uint32), array.view(np.uint32))
        return pixels if same else form

    def store(self, array: Array) -> Array:
        """Return the array in its stored form."""
        laid = np.asarray(array.transpose(self.order) if self.order else array, order="C")
        if not self.pixels:
            return laid
        # NumPy warns when it casts a NaN to a byte; the comparison in `of` rejects that form.
        with np.errstate(invalid="ignore"):
            return np.asarray(np.rint(np.clip(laid, 0, 1) * 255), dtype=np.uint8)

    def restore(self, array: Array) -> Array:
        """Return the original array."""
        wide: Array = np.divide(array, np.float32(255), dtype=np.float32) if self.pixels else array
        return wide.transpose(np.argsort(self.order)) if self.order else wide


@dataclass(frozen=True)
class RecordedHost:
    """Device and software that made a reference.

    Attributes:
        device: Description of the device.
        kind: "cuda", "cpu" or empty.
        facts: Driver, versions and flags, by name.
    """

    device: str = "unknown device"
    kind: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedEvaluation:
    """The evaluation set of a reference.

    Attributes:
        names: Names of its rows.
        captions: Their queries in words.
        metric: Name of the task metric.
        mean: Its mean over the set.
        values: Its value for each row.
        doubt: Signs that the model is set up wrongly, in a sentence; may be empty.
    """

    names: tuple[str, ...] = ()
    captions: tuple[str, ...] = ()
    metric: str = ""
    mean: float | None = None
    values: tuple[float, ...] = ()
    doubt: str = ""


@dataclass(frozen=True, eq=False)
class ReferenceInfo:
    """Description of a reference folder.

    Attributes:
        folder: The folder.
        sha256: Hash of reference.json; empty without one.
        missing: Sentence on what is missing; empty if reference.json is readable.
        host: Device and software that made it.
        noise: Its own noise.
        speeds: Its latencies.
        evaluation: Its evaluation set.
        batches: Its batches, in order.
        weights_sha256: Hash of the recorded model's weights.
        files: Hashes of outputs.safetensors and inputs.safetensors, by name; empty for inputs if they are not stored.
        row_axes: The batch axis of each output; None if it is one thing.
        raw: All of reference.json.
    """

    folder: Path
    sha256: str = ""
    missing: str = ""
    host: RecordedHost = RecordedHost()
    noise: tuple[Noise, ...] = ()
    speeds: tuple[Speed, ...] = ()
    evaluation: RecordedEvaluation = RecordedEvaluation()
    batches: tuple[BatchInfo, ...] = ()
    weights_sha256: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    row_axes: Mapping[str, int | None] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """Description of its device."""
        return self.host.device

    @property
    def first(self) -> tuple[int, ...]:
        """Real rows from which changed inputs are made before all others; none in an older reference."""
        rows = self.raw.get("first")
        return tuple(row for row in rows if isinstance(row, int) and row >= 0) if isinstance(rows, list) else ()

    def outputs(self, names: Sequence[str]) -> dict[str, Array]:
        """Return the recorded evaluation outputs of some names, [n, ...] each; missing ones are left out."""
        return tensors(self.folder / OUTPUTS, {name: _PREFIX + name for name in names if OUTPUTS in self._whole})

    def form(self, tensor: str) -> StoredForm:
        """Return the stored form of a tensor of inputs."""
        table = _table(_table(self.raw, "stored"), tensor)
        return StoredForm(bool(table.get("pixels")), tuple(table.get("order", ())))

    def image_input(self) -> str:
        """Return the name of the tensor of images in the inputs, [n, 3, H, W] or [n, H, W, 3]; empty without one."""
        shapes = _shapes(self.folder / INPUTS) if INPUTS in self._whole else {}
        images = [name for name, shape in shapes.items() if len(shape) == 4 and self._channels(name, shape) == 3]
        return next((name for name in sorted(images) if name.startswith(_PREFIX)), "")

    def _channels(self, tensor: str, shape: Sequence[int]) -> int:
        order, axis = self.form(tensor).order or range(len(shape)), 3 if self._is_channels_last(tensor) else 1
        return shape[list(order).index(axis)] if axis in order else 0

    def _is_channels_last(self, tensor: str) -> bool:
        rows = _table(self.raw, "declared").get("inputs", ())
        return any(tensor.endswith(f"/{row.get('name')}") and "nhwc" in row.get("takes", ()) for row in rows)

    def picture(self, tensor: str, index: int) -> Array | None:
        """Return one evaluation image as uint8 [H, W, 3]; None if it is unreadable."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.folder / INPUTS, framework="numpy") as file:
                row = self.form(tensor).restore(file.get_slice(tensor)[index : index + 1])[0]
        except (OSError, ValueError, IndexError, TypeError, SafetensorError):
            return None
        image = row if self._is_channels_last(tensor) else row.transpose(1, 2, 0)
        if image.dtype == np.uint8:
            return np.asarray(image)
        bright = np.nan_to_num(np.asarray(image, np.float32))
        return np.asarray((np.clip(bright, 0, 1) * 255 + 0.5).astype(np.uint8))

    @functools.cached_property
    def _whole(self) -> frozenset[str]:
        """Files that match the hashes of reference.json."""
        whole = set()
        for file, sha256 in self.files.items():
            with contextlib.suppress(verified_io.RefusedError):
                whole.add(verified_io.check_file(self.folder, file, None, sha256).name)
        return frozenset(whole)

    @property
    def damage(self) -> str:
        """Sentence on what is wrong with its files; empty if all match reference.json."""
        # A model without real inputs has no file of inputs.
        changed = sorted({name for name, sha256 in self.files.items() if sha256 or name != INPUTS} - self._whole)
        return self.missing or (f"'{changed[0]}' is missing or was changed since it was recorded" if changed else "")

    def name(self, index: int) -> str:
        """Return the name of a row of the evaluation set."""
        names = self.evaluation.names
        return names[index] if index < len(names) else f"row {index}"

    def caption(self, index: int) -> str:
        """Return the query of an image as text; empty if it is not recorded."""
        captions = self.evaluation.captions
        return captions[index] if index < len(captions) else ""


def read_info(folder: Path) -> ReferenceInfo:
    """Read the available parts of a folder's reference.json."""
    try:
        record = verified_io.read_record(folder, INFO)
    except verified_io.MissingError:
        return ReferenceInfo(folder, missing="no reference is recorded in this build")
    except verified_io.ChangedError:
        return ReferenceInfo(folder, missing="the reference of this build was changed after it was recorded")
    except verified_io.RefusedError:
        return ReferenceInfo(folder, missing="the reference of this build is damaged")
    metric = _table(record, "metric")
    mean = metric.get("mean")
    values = next((value for value in metric.values() if isinstance(value, list)), [])
    facts = {"driver": str(record["driver"])} if record.get("driver") else {}
    for group in ("versions", "flags"):
        facts |= {
            str(name): ({True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value))
            for name, value in sorted(_table(record, group).items())
        }
    return ReferenceInfo(
        folder,
        sha256=digest_text(seal_record(record)),
        host=RecordedHost(str(record.get("device") or "unknown device"), str(record.get("device_kind") or ""), facts),
        noise=tuple(Noise(*row) for row in _leaves(_table(record, "noise"))),
        speeds=tuple(_speeds(_table(record, "latency"))),
        evaluation=RecordedEvaluation(
            names=_texts(record.get("names"))
            or next((batch.names for batch in _batches(record.get("batches")) if batch.name == _PREFIX[:-1]), ()),
            captions=_texts(record.get("captions")),
            metric=str(metric.get("name") or ""),
            mean=float(mean) if _is_number(mean) else None,
            values=tuple(float(value) if _is_number(value) else math.nan for value in values),
            doubt=str(record.get("doubt") or ""),
        ),
        batches=tuple(_batches(record.get("batches"))),
        weights_sha256=str(record.get("weights_sha256") or ""),
        files={OUTPUTS: str(record.get("outputs_sha256") or ""), INPUTS: str(record.get("inputs_sha256") or "")},
        row_axes={str(n): a if isinstance(a, int) else None for n, a in _table(record, "row_axes").items()},
        raw=record,
    )


def tensors(path: Path, names: Mapping[str, str]) -> dict[str, Array]:
    """Return some tensors of a safetensors file, by new names; unreadable ones are left out."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            stored = set(file.keys())
            return {new: file.get_tensor(old) for new, old in names.items() if old in stored}
    except (OSError, ValueError, TypeError, SafetensorError):
        return {}


def _shapes(path: Path) -> dict[str, list[int]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - it is no dict
    except (OSError, ValueError, SafetensorError):
        return {}


def _speeds(latency: Mapping[str, Any]) -> list[Speed]:
    speeds = []
    for batch, modes in sorted(latency.items()):
        for mode, value in modes.items() if isinstance(modes, dict) else ():
            p50, p95 = (value.get("p50"), value.get("p95")) if isinstance(value, dict) else (value, None)
            if _is_number(p50):
                speeds.append(Speed(str(batch), str(mode), float(p50), float(p95) if _is_number(p95) else None))
    return speeds


def _leaves(noise: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    leaves = []
    for output, pairs in sorted(noise.items()):
        for between, value in sorted(pairs.items()) if isinstance(pairs, dict) else (("", pairs),):
            inner = sorted(value.items()) if isinstance(value, dict) else [("", value)]
            leaves += [(output, f"{between} {name}".strip(), float(v)) for name, v in inner if _is_number(v)]
    return leaves


def _table(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _batches(batches: object) -> Iterator[BatchInfo]:
    for batch in batches if isinstance(batches, list) else ():
        if isinstance(batch, dict):
            sizes = {str(axis): int(size) for axis, size in _table(batch, "sizes").items() if _is_number(size)}
            fields = {key: str(batch.get(key) or "") for key in ("inputs_sha256", "answered_by")}
            shapes = {name: tuple(shape) for name, shape in _table(batch, "shapes").items() if isinstance(shape, list)}
            yield BatchInfo(str(batch.get("name")), sizes, _texts(batch.get("names")), **fields, shapes=shapes)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
