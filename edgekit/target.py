"""The interface of a target: the only file that a target author must read.

A target is one file that ends in a declaration, `TARGET = Target(...)`. Everything that crosses its border is a path,
so that it can run in this process, in another interpreter or on another machine::

    def export(source: Path, out: Path, job: Job) -> Exported:
        ...read `source`, write files into `out`...
        return Exported(precision="fp32", entry="model.xyz", dynamic=("batch",))

    def load(artifact: Path, place: str) -> Runtime:
        ...

    TARGET = Target(summary="...", export=export, load=load, tolerance={"": FP32})

Built-in targets are the files of `edgekit_targets`; third parties declare an entry point in the group
`edgekit.targets` and inherit `edgekit.testing.TargetContract` in their tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from edgekit.artifact.manifest import Variant
from edgekit.judge.tolerance import Tolerance
from edgekit.runtime.protocol import Runtime

Precision = Literal["fp32", "fp16", "int8", "mixed"]


def silent(done: float, text: str) -> None:
    """A progress callback that says nothing."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What an export may need besides its source.

    Attributes:
        model: The model folder (config.json, model.safetensors): `edgekit.model.load` reads it.
        reference: The reference folder: what the artifact will be judged by.
        artifacts: Folders of the artifacts named in the target's `also` that exist and were not rejected, by target.
        options: The target's options as the user gave them, by name.
        cache: A folder of the target's own in the build, for what costs time to find again; it may be deleted.
        progress: Called with the share done in [0, 1] and what is going on.
    """

    model: Path
    reference: Path
    artifacts: Mapping[str, Path] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    cache: Path = Path("cache")
    progress: Callable[[float, str], None] = silent


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What an export says of the files it wrote.

    Attributes:
        precision: Of the weights and of most of the arithmetic.
        entry: The file or folder (for packages) that a runtime opens, relative to the artifact.
        dynamic: Names of the axes that stay dynamic; the grid proves them, the rest are fixed at their defaults.
        notes: Facts a user should know, one sentence each; they go into the manifest and the report.
        variants: The models of a bundle; empty for a single model.
        golden: Path of the golden vectors in a bundle.
    """

    precision: Precision
    entry: str
    dynamic: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    golden: str = ""


class Export(Protocol):
    """Makes the files of one artifact."""

    def __call__(self, source: Path, out: Path, job: Job) -> Exported:
        """Read `source`, write into `out` (an empty folder).

        Raises:
            edgekit.errors.EdgekitError: With one sentence, where the model or the options cannot be exported.
        """


class Load(Protocol):
    """Opens one artifact."""

    def __call__(self, artifact: Path, place: str) -> Runtime:
        """Open a verified artifact folder in one of the target's places.

        Raises:
            edgekit.errors.NotVerifiedHere: Where this host cannot run it; the message names what is missing.
        """


@dataclass(frozen=True)
class Need:
    """A library that a target imports when it runs, and the extra of edgekit that installs it."""

    module: str
    extra: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of a target: `-O NAME=VALUE` on the command line.

    Attributes:
        name: As the user types it.
        default: The value where the user says nothing.
        help: One line.
        choices: The possible values; empty for free text.
        folder: Whether the value is a folder: what is in it goes into the artifact's key, its path does not.
    """

    name: str
    default: str
    help: str
    choices: tuple[str, ...] = ()
    folder: bool = False


@dataclass(frozen=True, kw_only=True)
class Target:
    """One kind of artifact: how to make it, how to run it, what it may differ by.

    Attributes:
        summary: One line for `edgekit targets`.
        export: Makes it.
        load: Runs it.
        tolerance: What it may differ from the reference by, for each place or for all ("").
        source: What `export` reads: "model" (the model folder), "program" (the captured program's folder) or the
            name of another target (its artifact folder).
        also: Further targets whose artifacts are used when they are there (a bundle takes what was proved).
        needs: Libraries that must be importable.
        obstacle: Why this host cannot make it although the libraries are there, in a sentence; empty where it can. Such
            a target is left out where the user names none.
        groups: Names under which `-t` selects it besides its own and "all".
        places: Where an artifact is run and judged; one verdict each. "<where>-<variant>" for a variant of a bundle.
        sampled: Places that are too slow for everything, and how many evaluation images are judged there unless the
            option `images` is "all". The verdict says so.
        options: What the user may set.
        content: sha256 of files that the export reads beside its source and its code (a built page): part of the key.
        timed: Whether latency is measured here (a simulator's is meaningless).
    """

    summary: str
    export: Export
    load: Load
    tolerance: Mapping[str, Tolerance]
    source: str = "model"
    also: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    obstacle: Callable[[], str] = str
    groups: tuple[str, ...] = ()
    places: tuple[str, ...] = ("cpu",)
    sampled: Mapping[str, int] = field(default_factory=dict)
    options: tuple[Option, ...] = ()
    content: Callable[[], str] = str
    timed: bool = True
