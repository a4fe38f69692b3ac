"""The interface of a target: the only file that a target's author must read.

A target is one file that ends in a declaration, `TARGET = Target(...)`. Everything that crosses its border is a path,
so that it can run in this process, in another interpreter or on another machine::

    OPSET = Option(name="opset", default=20, choices=(20, 21), help="ONNX opset version")

    def export(source: Path, out: Path, job: Job) -> Exported:
        ...read `job.entry`, write files into `out`; job.get(OPSET) is an int...
        return Exported(precision="fp32", entry="model.xyz", dynamic=job.dynamic)

    def load(artifact: Path, place: Place) -> Runtime:
        ...

    TARGET = Target(
        summary="...", source="onnx", export=export, load=load, options=(OPSET,),
        places=(Place(name="cpu", tolerance=FP32),), needs=(Need("xyz", hint="pip install xyz"),),
    )

Built-in targets are the files of `edgekit_targets`; third parties declare an entry point in the group
`edgekit.targets` and inherit `edgekit.testing.TargetContract` in their tests. `examples/target-plugin` is a complete
package. What a target may import of edgekit is listed in `pyproject.toml` (the contract "Targets import what third
parties may").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from edgekit.artifact.manifest import Manifest, Variant
from edgekit.artifact.option import Option, OptionValue
from edgekit.errors import install_command
from edgekit.judge.limits import FP16, FP32, FP32_DELEGATED, INT8, Tolerance
from edgekit.runtime.protocol import Runtime, SelfTimedRuntime, Timings
from edgekit.storage import environment

__all__ = [
    "FP16",
    "FP32",
    "FP32_DELEGATED",
    "INT8",
    "Audience",
    "Bundle",
    "Export",
    "ExportResult",
    "Job",
    "Load",
    "Need",
    "Option",
    "Place",
    "Precision",
    "Runtime",
    "SelfTimedRuntime",
    "SourceRequirements",
    "Target",
    "TargetDescription",
    "Timings",
    "Tolerance",
    "Variant",
    "silent",
]

Precision = Literal["fp32", "fp16", "bf16", "int8", "int4", "mixed"]
Audience = Literal["server", "browser", "android", "ios", "none"]
T = TypeVar("T", bound=OptionValue)


def no_parts(options: Mapping[str, OptionValue]) -> tuple[tuple[str, ...], ...]:
    """What a target that is no bundle brings with it."""
    return ()


def silent(share: float, text: str) -> None:
    """A progress callback that does nothing."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What an export may need besides its source.

    Attributes:
        model: The model folder (config.json, model.safetensors): `edgekit.model.folder.load_model` reads it.
        reference: The reference folder: what the artifact will be judged by, for a target that declares
            `reads.reference`.
        entry: What the source offers to open: the entry file or folder of the artifact that the target is made from;
            the source folder itself for "model" and "program".
        dynamic: Names of the axes that the source kept dynamic.
        artifacts: Folders of the artifacts named in `bundle.sources` that exist and were not rejected, by target.
        options: Values by the option's name; `get` returns one with its type.
        cache: A folder of the target's own in the build, for what costs time to find again; it may be deleted.
        progress: Called with the share done in [0, 1] and what is going on.
    """

    model: Path
    reference: Path = Path()
    entry: Path = Path()
    dynamic: tuple[str, ...] = ()
    artifacts: Mapping[str, Path] = field(default_factory=dict)
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    cache: Path = Path("cache")
    progress: Callable[[float, str], None] = silent

    def get(self, option: Option[T]) -> T:
        """The value of an option that the target declares, with the option's type."""
        return self.options.get(option.name, option.default)  # type: ignore[return-value]  # parsed as the option's type


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """What an export says of the files it wrote.

    Attributes:
        precision: Of the weights and of most of the arithmetic.
        entry: The file or folder (for packages) that a runtime opens, relative to the artifact.
        dynamic: Names of the axes that stay dynamic; the grid proves them, the rest are fixed at their defaults.
        sizes: The only sizes of the axes beside the batch that it takes together, where these are not all, or not the
            defaults; of `edgekit.model.shapes.fixed_sizes`, at which the reference has answers. Empty: all.
        notes: Facts a user should know, one sentence each; they go into the manifest and the report.
        failures: Checks of the exporter's own that the result did not pass, one sentence each: with one of these an
            artifact is rejected wherever it runs, whatever it answers there.
        variants: The models of a bundle; empty for a single model.
        golden: Path of the golden vectors in a bundle.
    """

    precision: Precision
    entry: str
    dynamic: tuple[str, ...] = ()
    sizes: tuple[Mapping[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    golden: str = ""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an artifact is run and judged; one verdict each.

    Attributes:
        name: As reports print it.
        tolerance: What the artifact may differ from the reference by in this place.
        variant: Name of the bundle's variant that runs here; empty for a single model.
        settings: What `load` needs to know of the place, by name (a device, a delegate ...).
        sample: How many evaluation images are judged where all would take too long, unless the option `images` is
            "all"; 0 for all. The verdict says so.
        timed: Whether latency is measured here (an interpreter's is meaningless).
        limits: Tolerances in the place of `tolerance` where an option gives the artifact another precision, by
            precision.
    """

    name: str
    tolerance: Tolerance
    variant: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    sample: int = 0
    timed: bool = True
    limits: Mapping[str, Tolerance] = field(default_factory=dict)

    @property
    def tolerances(self) -> tuple[str, ...]:
        """The names of the limits that may apply here, the usual one first."""
        return tuple(dict.fromkeys(each.name for each in (self.tolerance, *self.limits.values())))

    def tolerance_of(self, manifest: Manifest) -> Tolerance:
        """What an artifact may differ from the reference by: as INT8 may where the model itself rounds."""
        return INT8 if manifest.export.self_quantized else self.limits.get(manifest.precision, self.tolerance)


class Export(Protocol):
    """Makes the files of one artifact."""

    def __call__(self, source: Path, out: Path, job: Job) -> ExportResult:
        """Read the folder `source`, write into `out` (an empty folder).

        Raises:
            edgekit.errors.EdgekitError: With one sentence, where the model or the options cannot be exported.
        """


class Load(Protocol):
    """Opens one artifact."""

    def __call__(self, artifact: Path, place: Place) -> Runtime:
        """Open a verified artifact folder in one of the target's places.

        Raises:
            edgekit.errors.NotVerifiedHere: Where this host cannot run it; the message names what is missing.
        """


@dataclass(frozen=True)
class Need:
    """A library that a target imports when it runs.

    Attributes:
        module: Its import name.
        extra: The extra of edgekit that installs it, for built-in targets.
        hint: The command that installs it, for all others.
        environment: The environment that has it, where it clashes with edgekit's own libraries; `edgekit env add` makes
            that, and the target calls its interpreter (`edgekit.storage.environment`).
    """

    module: str
    extra: str = ""
    hint: str = ""
    environment: str = ""

    @property
    def install(self) -> str:
        """The command that installs it."""
        if self.environment:
            return environment.command(self.environment)
        return self.hint or install_command(self.extra)


@dataclass(frozen=True, kw_only=True)
class TargetDescription:
    """What people are told of a target, in a few words each.

    Attributes:
        use_case: What a user takes it for.
        proved_by: What runs it where it is judged.
        not_covered: What no verdict of it speaks of.
        audience: To whom its artifacts are shipped; the report recommends one artifact for each. "none": to apps that
            chose their runtime already.
        successor: The target that new users take in its place, where its runtime is no longer developed: it is then
            recommended to nobody.
    """

    use_case: str = ""
    proved_by: str = ""
    not_covered: str = ""
    audience: Audience = "server"
    successor: str = ""


@dataclass(frozen=True, kw_only=True)
class SourceRequirements:
    """What an export can be made of, and what it reads beside its source.

    Attributes:
        fixed: Whether it can be made of an artifact that is fixed at sizes other than the defaults.
        onnx: Whether it can be made of a model that is an ONNX file, for which there is no program.
        reference: Whether it reads the recorded answers: another reference then makes it anew.
        content: sha256 of files that it reads beside its source and its code (a built page): part of the key.
    """

    fixed: bool = False
    onnx: bool = False
    reference: bool = False
    content: Callable[[], str] = str


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """Of a target that holds several models: what it takes, and what is made with it.

    Attributes:
        sources: Further targets whose artifacts are used when they are there (a bundle takes what was proved).
        parts: What is made with it although nobody named it, in view of its options: groups of targets among its
            sources, of which any can stand in for the others.
    """

    sources: tuple[str, ...] = ()
    parts: Callable[[Mapping[str, OptionValue]], tuple[tuple[str, ...], ...]] = no_parts


@dataclass(frozen=True, kw_only=True)
class Target:
    """One kind of artifact: how to make it, how to run it, where it is judged.

    Attributes:
        summary: One line for `edgekit targets`.
        export: Makes it.
        load: Runs it.
        places: Where it is run and judged.
        source: What `export` reads: "model" (the model folder), "program" (the captured program's folder) or the
            name of another target (its artifact folder).
        opt_in: Whether it is left out where the user names no target.
        runs_code: Whether opening an artifact runs code that lies in it: one of a build that somebody else may have
            made is opened with the user's word only.
        unavailable_reason: Why this host cannot make it although the libraries are there, in a sentence; empty where it
            can. Such a target is left out where the user names none.
        reads: What its export can be made of, and what it reads beside its source.
        bundle: Of a target that holds several models.
        needs: Libraries that must be importable.
        groups: Names under which `-t` selects it besides its own and "all".
        options: What the user may set.
        about: What people are told of it.
    """

    summary: str
    export: Export
    load: Load
    places: tuple[Place, ...]
    source: str = "model"
    opt_in: bool = False
    runs_code: bool = False
    unavailable_reason: Callable[[], str] = str
    reads: SourceRequirements = SourceRequirements()
    bundle: Bundle = Bundle()
    needs: tuple[Need, ...] = ()
    groups: tuple[str, ...] = ()
    options: tuple[Option[OptionValue], ...] = ()
    about: TargetDescription = TargetDescription()

    def place_on(self, device: str) -> Place | None:
        """Its first place on a device, "cuda" or "cpu"; None where it has none."""
        cuda = device == "cuda"
        return next((place for place in self.places if (place.settings.get("device") == "cuda") == cuda), None)

    def places_of(self, manifest: Manifest) -> tuple[Place, ...]:
        """Where one of its artifacts is judged: of a bundle in the places of those variants that are in it."""
        names = {variant.name for variant in manifest.bundle.variants}
        return tuple(place for place in self.places if not place.variant or place.variant in names)

    def place(self, name: str) -> Place:
        """One of its places by name."""
        return next(place for place in self.places if place.name == name)
