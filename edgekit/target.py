"""Interface of a target, the only file that a target's author must read.

A target is one file that ends in a declaration, `TARGET = Target(...)`. All its arguments are paths, so that it can run
in this process, in another interpreter or on another machine::

    OPSET = Option(name="opset", default=20, choices=(20, 21), help="ONNX opset version")

    def export(source: Path, out: Path, job: Job) -> ExportResult:
        ...read `job.entry`, write files into `out`; job.get(OPSET) is an int...
        return ExportResult(precision="fp32", entry="model.xyz", dynamic=job.dynamic)

    def load(artifact: Path, place: Place) -> Runtime:
        ...

    TARGET = Target(
        summary="...", source="onnx", export=export, load=load, options=(OPSET,),
        places=(Place(name="cpu", tolerance=FP32),), needs=(Need("xyz", hint="pip install xyz"),),
    )

Built-in targets are the files of `edgekit_targets`; third parties declare an entry point in the group `edgekit.targets`
and inherit `edgekit.testing.TargetContract` in their tests. `examples/target-plugin` is a complete package.
`pyproject.toml` lists the modules of edgekit that a target may import (the contract "Targets import what third parties
may").
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
    """Return the implied targets of a target that is not a bundle: none."""
    return ()


def silent(share: float, text: str) -> None:
    """Do nothing, as a progress callback."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Further inputs of an export in addition to its source.

    Attributes:
        model: The model folder (config.json, model.safetensors): `edgekit.model.folder.load_model` reads it.
        reference: The reference folder: the basis of the verdict, for a target that declares `reads.reference`.
        entry: Entry file or folder of the source artifact; the source folder itself for "model" and "program".
        dynamic: Names of the axes that the source kept dynamic.
        artifacts: Folders of the artifacts named in `bundle.sources` that exist and were not rejected, by target.
        options: Values by the option's name; `get` returns one with its type.
        cache: The target's folder in the build for results that take time to compute again; it may be deleted.
        selected: True if the user selected the target; False in a run of all targets, and as a part of a bundle.
        progress: Called with the share done in [0, 1] and the current step.
    """

    model: Path
    reference: Path = Path()
    entry: Path = Path()
    dynamic: tuple[str, ...] = ()
    artifacts: Mapping[str, Path] = field(default_factory=dict)
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    cache: Path = Path("cache")
    selected: bool = True
    progress: Callable[[float, str], None] = silent

    def get(self, option: Option[T]) -> T:
        """Return the value of an option that the target declares, with the option's type."""
        return self.options.get(option.name, option.default)  # type: ignore[return-value]  # parsed as the option's type


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """Description of the files that an export wrote.

    Attributes:
        precision: Precision of the weights and of most of the arithmetic.
        entry: The file or folder (for packages) that a runtime opens, relative to the artifact.
        dynamic: Names of the axes that stay dynamic; the grid tests them, the others are fixed at their defaults.
        sizes: The only combinations of sizes, other than the batch, that it takes, from
            `edgekit.model.shapes.fixed_sizes`, at which the reference has outputs. Empty if it takes all, or the
            defaults.
        notes: Notes for users, one sentence each, for the manifest and the report.
        failures: Failed checks of the exporter, one sentence each: with any of these the artifact is rejected
            everywhere, whatever it returns.
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
    """A place where an artifact is run and judged, with its own verdict.

    Attributes:
        name: Its name in reports.
        tolerance: Limits on the artifact's differences from the reference in this place.
        variant: Name of the bundle's variant that runs here; empty for a single model.
        settings: Settings of the place for `load`, by name (a device, a delegate ...).
        sample: Number of evaluation images to judge if all would take too long, unless the option `images` is "all"; 0
            for all. The verdict states it.
        timed: True if latency is measured here (an interpreter's is meaningless).
        limits: Tolerances instead of `tolerance` if an option gives the artifact another precision, by precision.
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
        """Names of the tolerances that may apply here, the usual one first."""
        return tuple(dict.fromkeys(each.name for each in (self.tolerance, *self.limits.values())))

    def tolerance_of(self, manifest: Manifest) -> Tolerance:
        """Return an artifact's tolerance; a model that quantizes itself gets INT8's."""
        return INT8 if manifest.export.self_quantized else self.limits.get(manifest.precision, self.tolerance)


class Export(Protocol):
    """Function that exports one artifact."""

    def __call__(self, source: Path, out: Path, job: Job) -> ExportResult:
        """Read the folder `source`, and write into the empty folder `out`.

        Raises:
            edgekit.errors.EdgekitError: With one sentence, if the model or the options cannot be exported.
            edgekit.errors.NeedlessExportError: If the artifact would bring nothing and `job.selected` is false; the
                target is skipped, and the run does not fail.
        """


class Load(Protocol):
    """Function that opens one artifact."""

    def __call__(self, artifact: Path, place: Place) -> Runtime:
        """Open a verified artifact folder in one of the target's places.

        Raises:
            edgekit.errors.NotVerifiedHere: If this host cannot run it; the message names the missing requirement.
        """


@dataclass(frozen=True)
class Need:
    """A library that a target imports at run time.

    Attributes:
        module: Its import name.
        extra: The extra of edgekit that installs it, for built-in targets.
        hint: The command that installs it, for all others.
        environment: The environment that has it, if it conflicts with edgekit's own libraries; `edgekit env add`
            installs that, and the target calls its interpreter (`edgekit.storage.environment`).
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
    """User-facing description of a target, in a few words each.

    Attributes:
        use_case: Its purpose for a user.
        proved_by: The runtime that it is judged in.
        not_covered: Aspects outside of its verdicts.
        audience: Platform that its artifacts are for; the report recommends one artifact for each. "none": apps with a
            fixed runtime.
        successor: The replacement for new users, if its runtime is no longer developed: it is then never recommended.
    """

    use_case: str = ""
    proved_by: str = ""
    not_covered: str = ""
    audience: Audience = "server"
    successor: str = ""


@dataclass(frozen=True, kw_only=True)
class SourceRequirements:
    """Possible sources of an export, and its further inputs.

    Attributes:
        fixed: True if its source may be fixed at sizes other than the defaults.
        onnx: True if the model may be an ONNX file, which has no program.
        reference: True if it reads the recorded outputs: another reference then triggers a new export.
        content: sha256 of files that it reads in addition to its source and its code (a built page): part of the key.
    """

    fixed: bool = False
    onnx: bool = False
    reference: bool = False
    content: Callable[[], str] = str


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """Variants of a target that holds several models.

    Attributes:
        sources: Further targets whose verified artifacts are used if they exist.
        parts: Targets that it implies for given options: groups of alternatives among its sources.
    """

    sources: tuple[str, ...] = ()
    parts: Callable[[Mapping[str, OptionValue]], tuple[tuple[str, ...], ...]] = no_parts


@dataclass(frozen=True, kw_only=True)
class Target:
    """One kind of artifact: how to export it, run it and judge it.

    Attributes:
        summary: One line for `edgekit targets`.
        export: Exports it.
        load: Runs it.
        places: Places where it is run and judged.
        source: Input of `export`: "model" (the model folder), "program" (the captured program's folder) or the name of
            another target (its artifact folder).
        opt_in: True if it is exported only when the user selects it.
        runs_code: True if opening an artifact runs code in it: an artifact that somebody else may have made is opened
            only with the user's consent.
        unavailable_reason: Returns why this host cannot export it although the libraries are installed, in a sentence;
            empty if it can. Such a target is exported only when the user selects it.
        reads: Possible sources of its export, and its further inputs.
        bundle: Variants, if it holds several models.
        needs: Libraries that must be importable.
        groups: Names for `-t` in addition to its own and "all".
        options: Options for the user.
        fallback: Options of a second export, if the judge rejects the first and the user gave none of them.
        about: User-facing description.
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
    fallback: Mapping[str, str] = field(default_factory=dict)
    about: TargetDescription = TargetDescription()

    def place_on(self, device: str) -> Place | None:
        """Return its first place on a device, "cuda" or "cpu", or None."""
        cuda = device == "cuda"
        return next((place for place in self.places if (place.settings.get("device") == "cuda") == cuda), None)

    def places_of(self, manifest: Manifest) -> tuple[Place, ...]:
        """Return the places where one of its artifacts is judged; in a bundle those of its variants."""
        names = {variant.name for variant in manifest.bundle.variants}
        return tuple(place for place in self.places if not place.variant or place.variant in names)

    def place(self, name: str) -> Place:
        """Return one of its places by name."""
        return next(place for place in self.places if place.name == name)
