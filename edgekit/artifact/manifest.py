"""The manifest: what is in an artifact. `manifest.schema.json`, the contract with web/ and mobile/, is made from it.

It holds no dates, no paths and no latency, so that the same inputs and tools give the same bytes but for the hashes of
what was measured (`results`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from edgekit.artifact.result import Evidence
from edgekit.model.spec import Axis, Fit, Input, Output
from edgekit.storage.door import require_plain


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class File(_Record):
    """One file of an artifact: path relative to the folder (POSIX), size in bytes, sha256.

    `gzip` and `brotli` are the sizes of the precompressed files `path.gz` and `path.br` that lie beside it, if any.
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

    name: str
    dtype: str
    shape: tuple[int | str, ...] = ()
    role: str = "tensor"
    kind: str = "tensor"
    of: str = ""
    low: float = 0.0
    high: float = 1.0
    fit: Fit = "stretch"
    classes: tuple[str, ...] = ()

    @classmethod
    def of_input(cls, given: Input) -> Self:
        """What the manifest says of a model's input."""
        return cls(
            name=given.name,
            dtype=given.dtype,
            shape=given.shape,
            kind=given.kind,
            low=given.low,
            high=given.high,
            fit=given.fit,
        )

    @classmethod
    def of_output(cls, made: Output, shape: tuple[int | str, ...]) -> Self:
        """What the manifest says of a model's output, with the shape that it was seen to have."""
        return cls(
            name=made.name,
            dtype=made.dtype,
            shape=shape,
            role=made.role,
            of=made.of,
            low=made.low,
            high=made.high,
            classes=made.classes,
        )


class AxisInfo(_Record):
    """A dimension: dynamic within [minimum, maximum] in steps of multiple_of, or fixed at default."""

    default: int
    minimum: int
    maximum: int
    multiple_of: int
    dynamic: bool

    @classmethod
    def of_axis(cls, axis: Axis, dynamic: bool) -> Self:
        """What the manifest says of a model's axis, dynamic in this artifact or fixed."""
        return cls(
            default=axis.default,
            minimum=axis.minimum,
            maximum=axis.maximum,
            multiple_of=axis.multiple_of,
            dynamic=dynamic,
        )


class Source(_Record):
    """What the artifact was made from: the model's folder, the captured program or another target's artifact."""

    name: str
    sha256: str


class Variant(_Record):
    """One of several models in a bundle: which precision, which file, proved as which target."""

    name: str
    precision: str
    path: str
    target: str


class VerdictInfo(_Record):
    """The verdict in one place (for example cpu, wasm, interpreter), and what was asked there."""

    place: str
    status: Literal["verified", "rejected", "not verified here"]
    reason: str = ""
    evidence: Evidence | None = None


class Manifest(_Record):
    """What is in an artifact.

    Attributes:
        name: Of the model.
        target: Of the target that made it.
        precision: Of the weights and of most of the arithmetic.
        entry: The file or folder that a runtime opens.
        key: sha256 of all that went in (source, target's code, options, tool versions): unchanged means no work.
        source: What it was made from.
        model_sha256: Hash of the model folder at the head of the chain.
        options: The target's options.
        inputs: In the order of the module's forward.
        outputs: Likewise.
        axes: Dimensions that vary, or could have.
        sizes: The only sizes of the axes beside the batch that it takes together; empty where all within `axes` are.
        notes: Facts a user should know.
        failures: What the exporter itself found wrong; such an artifact is rejected.
        tools: Versions of the libraries that made it.
        files: Every file but the manifest and the results.
        variants: The models of a bundle.
        golden: Path of the golden vectors in a bundle.
        left_out: What would have been a variant and was rejected in this bundle: target and its artifact's sha256.
        proof: Shapes at which it was proved, one dictionary of axis sizes each.
        verdicts: One a place; empty before it was judged.
        results: The files that the verdicts rest on, result.json and score maps; other numbers in each run.
        content_sha256: sha256 of all of this record but this field (`edgekit.storage.door.seal_of`).
    """

    schema_version: Literal[1] = 1
    name: str
    target: str
    precision: str
    entry: str
    key: str
    source: Source
    model_sha256: str
    options: dict[str, str] = {}
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    axes: dict[str, AxisInfo] = {}
    sizes: tuple[dict[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    tools: dict[str, str] = {}
    files: tuple[File, ...]
    variants: tuple[Variant, ...] = ()
    golden: str = ""
    left_out: dict[str, str] = {}
    proof: tuple[dict[str, int], ...] = ()
    verdicts: tuple[VerdictInfo, ...] = ()
    results: tuple[File, ...] = ()
    content_sha256: str = ""

    @property
    def static(self) -> bool:
        """Whether every axis is fixed."""
        return not any(axis.dynamic for axis in self.axes.values())

    @property
    def rejected(self) -> bool:
        """Whether any place rejected it; such an artifact enters no bundle and no app."""
        return any(v.status == "rejected" for v in self.verdicts)

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Whether these sizes of axes, as far as they are given, are among those that it takes together."""
        given = [one for one in self.sizes if all(one.get(name, size) == size for name, size in sizes.items())]
        return not self.sizes or bool(given)

    def named(self, path: str) -> File | None:
        """What it says of a file; None where it does not name it."""
        return next((file for file in (*self.files, *self.results) if file.path == path), None)

    @property
    def sha256(self) -> str:
        """One hash for the whole artifact's content: of the files' hashes, in order."""
        lines = "\n".join(f"{f.path} {f.sha256}" for f in self.files)
        return hashlib.sha256(lines.encode()).hexdigest()
