"""Manifest of an artifact. `manifest.schema.json`, the contract with web/ and mobile/, is generated from it.

It has no dates, paths or latencies. The same inputs and tools give the same bytes, except for the hashes of
measurements (`results`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from edgekit.artifact.result import Evidence, Status
from edgekit.model.spec import MOST_SIZES, MOST_VALUES, Axis, Fit, Input, Output
from edgekit.storage.verified_io import require_plain

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=200)]
"""A name that is safe in the generated code of apps. The libraries refuse other names too."""
COLOURS = 3
Sum = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+(\+[A-Za-z0-9_.-]+)+$", max_length=200)]
"""A size that is the sum of axes: "past+tokens"."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def _fields_of_declaration(cls, declared: Input | Output | Axis) -> dict[str, Any]:
        """Return the fields that a model's own declaration has too."""
        return {name: getattr(declared, name) for name in cls.model_fields if hasattr(declared, name)}


class File(_Record):
    """One file of an artifact: path relative to the folder (POSIX), size in bytes, sha256.

    `gzip` and `brotli` are the sizes of the precompressed files `path.gz` and `path.br` next to it, if any.
    """

    path: str
    size: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    gzip: int | None = None
    brotli: int | None = None

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        return require_plain(path)


class TensorInfo(_Record):
    """An input or output: sizes are numbers, or names of axes or symbols."""

    name: Name
    dtype: Name
    shape: tuple[int | Name | Sum, ...] = ()
    role: Name = "tensor"
    kind: Name = "tensor"
    of: Name | Literal[""] = ""
    low: float = 0.0
    high: float = 1.0
    fit: Fit = "stretch"
    classes: tuple[str, ...] = ()
    threshold: float | None = None

    @property
    def channels_last(self) -> bool:
        """True if it is an image [batch, height, width, 3]."""
        return self.kind == "image" and self.shape[-1:] == (COLOURS,) != self.shape[1:2]

    @property
    def picture_size(self) -> tuple[int | str, ...]:
        """Height and width of an image."""
        return self.shape[1:3] if self.channels_last else self.shape[2:]

    @classmethod
    def of_input(cls, declared: Input) -> Self:
        """Return the manifest's record of a model's input."""
        return cls(**cls._fields_of_declaration(declared))

    @classmethod
    def of_output(cls, declared: Output, shape: tuple[int | str, ...]) -> Self:
        """Return the manifest's record of a model's output, with its observed shape."""
        return cls(**cls._fields_of_declaration(declared), shape=shape)


class AxisInfo(_Record):
    """A dimension: dynamic within [minimum, maximum] in steps of multiple_of, or fixed at default."""

    default: int
    minimum: int
    maximum: int
    multiple_of: int
    dynamic: bool

    @classmethod
    def of_axis(cls, axis: Axis, dynamic: bool) -> Self:
        """Return the manifest's record of a model's axis, dynamic in this artifact or fixed."""
        return cls(**cls._fields_of_declaration(axis), dynamic=dynamic)

    @model_validator(mode="after")
    def _is_countable(self) -> Self:
        if self.multiple_of < 1 or self.default < 0 or self.maximum // self.multiple_of > MOST_SIZES:
            raise ValueError(
                f"an axis goes from {self.minimum} to {self.maximum} in steps of {self.multiple_of}: an axis has sizes "
                f"from 0, steps from 1, and at most {MOST_SIZES} sizes"
            )
        return self

    @property
    def sizes(self) -> range:
        """All sizes that it takes."""
        if not self.dynamic:
            return range(self.default, self.default + 1)
        return Axis(self.default, self.minimum, self.maximum, self.multiple_of).sizes


class Source(_Record):
    """The artifact's source: the model's folder, the captured program or another target's artifact."""

    name: str
    sha256: str


class Variant(_Record):
    """One of several models in a bundle: its precision, its file, and the target that it was verified as.

    `first_visit` is the transfer of a first visit that runs it, in bytes with brotli; 0 if it is not chosen by default.
    """

    name: Name
    precision: Name
    path: str
    target: Name
    first_visit: int = Field(default=0, ge=0)


class BundleInfo(_Record):
    """The models of a bundle.

    Attributes:
        variants: The models.
        golden: Path of the golden vectors.
        left_out: Variants that were rejected in this bundle: target and its artifact's sha256.
    """

    variants: tuple[Variant, ...] = ()
    golden: str = ""
    left_out: dict[str, str] = {}


class ExportInfo(_Record):
    """Inputs of an export, and faults that the exporter found.

    Attributes:
        key: sha256 of all inputs (source, target's code, options, tool versions): an unchanged key needs no work.
        source: Source of the artifact.
        model_sha256: Hash of the model folder at the head of the chain.
        options: The target's options.
        tools: Versions of the libraries that made it.
        failures: Faults that the exporter found; such an artifact is rejected.
        self_quantized: True if the model quantizes its activations itself, in learned ranges; every target then judges
            it as INT8.
    """

    key: str
    source: Source
    model_sha256: str
    options: dict[str, str] = {}
    tools: dict[str, str] = {}
    failures: tuple[str, ...] = ()
    self_quantized: bool = False


class VerdictSummary(_Record):
    """The verdict in one place (for example cpu, wasm, interpreter).

    Attributes:
        place: Its name.
        status: Verified, rejected, or not verified here.
        reason: Why it is not verified; empty if it is.
        evidence: Covered inputs; None if the measuring side did not report them.
        proof: Shapes within all limits, one dictionary of axis sizes each.
    """

    place: Name
    status: Status
    reason: str = ""
    evidence: Evidence | None = None
    proof: tuple[dict[str, int], ...] = ()


class Manifest(_Record):
    """Content of an artifact.

    Attributes:
        schema_version: It rises if a field is renamed, moved or removed.
        name: Name of the model.
        target: Name of the target.
        precision: Precision of the weights and of most of the arithmetic.
        entry: The file or folder that a runtime opens.
        export: Its source and options.
        inputs: Inputs in the order of the module's forward.
        outputs: Outputs in the module's order.
        axes: Dimensions that vary, or could have.
        sizes: The only combinations of sizes, other than the batch, that it takes; empty if it takes all within `axes`.
        notes: Notes for users.
        files: Every file but the manifest and the results.
        bundle: The models of a bundle; empty for a single model.
        verdicts: One per place; empty before it is judged.
        results: The evidence for the verdicts, result.json and score maps; its numbers vary between runs.
        content_sha256: sha256 of this record without this field (`edgekit.storage.verified_io.seal_of`).
    """

    schema_version: Literal[2] = 2
    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=200)
    target: Name
    precision: Name
    entry: str
    export: ExportInfo
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    axes: dict[Name, AxisInfo] = {}
    sizes: tuple[dict[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[File, ...]
    bundle: BundleInfo = BundleInfo()
    verdicts: tuple[VerdictSummary, ...] = ()
    results: tuple[File, ...] = ()
    content_sha256: str = ""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        sizes = {name: axis.default for name, axis in self.axes.items()}
        for tensor in self.inputs:
            shape = [sizes.get(size, 1) if isinstance(size, str) else size for size in tensor.shape]
            if min(shape, default=1) < 0 or math.prod(shape) > MOST_VALUES:
                raise ValueError(f"the input '{tensor.name}' is {shape}: it can hold at most {MOST_VALUES} values")
        return self

    @property
    def entry_files(self) -> tuple[File, ...]:
        """The entry file, or every file of the entry folder."""
        return tuple(f for f in self.files if f.path == self.entry or f.path.startswith(f"{self.entry}/"))

    @property
    def size(self) -> int:
        """Bytes on disk: all files of a bundle, else the entry file or folder and its weights."""
        return sum(file.size for file in (self.files if self.bundle.variants else (*self.entry_files, *self._beside)))

    @property
    def _beside(self) -> tuple[File, ...]:
        """Files with the entry's name and another suffix (model.xml, model.bin), or a further one (model.onnx.data)."""
        stem = PurePosixPath(self.entry).with_suffix("")
        others = tuple(file for file in self.files if file.path != self.entry)
        return tuple(
            f for f in others if f.path.startswith(f"{self.entry}.") or PurePosixPath(f.path).with_suffix("") == stem
        )

    @property
    def first_visit(self) -> int | None:
        """Bytes that a first visit to a bundle's page transfers, with brotli; None if unknown."""
        places = [verdict.place for verdict in self.verdicts if verdict.status == "verified"]
        verified = [v for v in self.bundle.variants if any(place.endswith(f"-{v.name}") for place in places)]
        return min((v.first_visit for v in verified or self.bundle.variants[:1] if v.first_visit), default=None)

    @property
    def static(self) -> bool:
        """True if every axis is fixed."""
        return not any(axis.dynamic for axis in self.axes.values())

    @property
    def rejected(self) -> bool:
        """True if any place rejected it; such an artifact is used in no bundle and no app."""
        return any(v.status == "rejected" for v in self.verdicts)

    @property
    def open_sizes(self) -> dict[str, range]:
        """Sizes of each dynamic axis; if `sizes` lists combinations, only these are possible."""
        return {name: axis.sizes for name, axis in self.axes.items() if axis.dynamic}

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Return whether sizes of axes, as far as given, are among the combinations that it takes."""
        matches = [row for row in self.sizes if all(row.get(name, size) == size for name, size in sizes.items())]
        return not self.sizes or bool(matches)

    def entry_of(self, path: str) -> File | None:
        """Return its record of a file; None for an unknown file."""
        return next((file for file in (*self.files, *self.results) if file.path == path), None)

    @property
    def sha256(self) -> str:
        """Hash of the whole artifact's content: of the files' hashes, in order."""
        lines = "\n".join(f"{f.path} {f.sha256}" for f in self.files)
        return hashlib.sha256(lines.encode()).hexdigest()
