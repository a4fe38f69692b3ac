"""Extension points of edgekit: packages add records to it by entry points.

| group | record | adds | |---|---|---| | `edgekit.targets` | `edgekit.target.Target` | a kind of artifact | |
`edgekit.unlisted_targets` | the same | one that only a command selects | |
`edgekit.commands` | `Command` | a command of `edgekit` | | `edgekit.sources` | `Source` | a kind of name that `edgekit
export` takes as a model | | `edgekit.places` | `PlaceRuntime` | a runtime in which artifacts of several targets are
judged | | `edgekit.hooks` | a function | an optional step of the core (`HOOKS`) |

edgekit's own targets, commands, sources and places use the same records. A record names its functions by path
("module:function"), so that listing imports no heavy library. A broken package breaks only its own records.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from edgekit.errors import DISTRIBUTION, DependencyError, UsageError, install_command, suggestion

# The origin of edgekit's own records, and the name of its package.
EDGEKIT = "edgekit"
GROUPS = (
    "edgekit.targets", "edgekit.unlisted_targets", "edgekit.commands", "edgekit.sources", "edgekit.places",
    "edgekit.hooks",
)  # fmt: skip
Panel = Literal["Export", "Understand", "Ship", "Other machines", "Scale"]
PANELS: tuple[Panel, ...] = ("Export", "Understand", "Ship", "Other machines", "Scale")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of `edgekit`.

    Attributes:
        name: As it is typed.
        panel: Its panel in `edgekit --help`.
        summary: One line of help.
        function: Path of a function that Typer can read, or of a Typer application with subcommands.
        examples: Examples at the end of the command's help.
    """

    name: str
    panel: Panel
    summary: str
    function: str
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.panel not in PANELS:
            raise ValueError(f"unknown panel '{self.panel}'. Panels: {', '.join(PANELS)}")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A kind of name that `edgekit export` takes as a model.

    Attributes:
        form: Its form in help and errors, for example "transformers:FOLDER".
        open: Path of a function `(name, words, task)` that returns the model. A prefix is taken off the name.
        prefix: Prefix of such names.
        names: Complete names.
        suffixes: Ends of paths; "" matches every path that exists and has no other source.
        factory: Path of the factory that returns the model, instead of `open`; for `names`.
        trusted_factories: Further factories that a build may name without the user's consent, like `factory`.
        restore: Path of a function `(files) -> ModelSpec` that rebuilds the model of a build from its files.
        check: Path of a function `(name) -> None` that refuses a name without opening it.
        push: Path of a function `(name) -> upload` that refuses a name, for `--push-to`; `upload(build)` uploads a
            build to it and returns what the user reads.
        takes_words: True if `--axes`, `--inputs` and `--outputs` may describe the model.
        takes_task: True if it takes `--task`.
    """

    form: str
    open: str = ""
    prefix: str = ""
    names: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    factory: str = ""
    trusted_factories: tuple[str, ...] = ()
    restore: str = ""
    check: str = ""
    push: str = ""
    takes_words: bool = True
    takes_task: bool = False


@dataclass(frozen=True, kw_only=True)
class PlaceRuntime:
    """A runtime in which artifacts of several targets are judged.

    Attributes:
        summary: One line for `edgekit places`.
        library: The module that must be importable here.
        opener: Path of a function `(file, settings) -> Runtime`.
        extra: The extra of edgekit that installs the library, for edgekit's own records.
        hint: The command that installs the library, for all others.
        opens: Ends of the names of files that it opens.
        settings: Arguments of the opener. Names with the prefix "provider." go to ONNX Runtime's provider.
        carried: Modules that a pack carries in addition to the core's engine.
        folder_index: The file that marks an artifact as a folder with a file for each size.
        folder_opener: Path of a function `(folder, open_file) -> Runtime` for such artifacts.
        is_emulated: True if the processor is not the host's: artifacts then run at their default sizes only, and are
            not timed.
        computes_half: True if it computes fp32 in fp16.
        answer_pack: Path of a function that runs a pack on a device; the place then runs nothing on this host.
        status: Path of a function that returns its state for `edgekit doctor`; empty to check the library only.
    """

    summary: str
    library: str
    opener: str = ""
    extra: str = ""
    hint: str = ""
    opens: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    carried: tuple[str, ...] = ()
    folder_index: str = ""
    folder_opener: str = ""
    is_emulated: bool = False
    computes_half: bool = False
    answer_pack: str = ""
    status: str = ""

    @property
    def install(self) -> str:
        """The command that installs the library on this host."""
        return self.hint or install_command(self.extra)


@dataclass(frozen=True)
class Entry:
    """An entry point: the record's name, its module and attribute, and the package that declares it."""

    name: str
    module: str
    attribute: str
    origin: str


class Door(Generic[T]):
    """The records of one group.

    Args:
        group: Group of the entry points.
        noun: Noun for a record in messages.
        kind: Path of the record's class.
    """

    def __init__(self, group: str, noun: str, kind: str) -> None:
        self.group, self.noun, self.kind = group, noun, kind

    def entries(self) -> dict[str, Entry]:
        """Return each entry point by name, sorted; nothing is imported. The first of two with one name is kept."""
        return self._read()[0]

    def find(self, name: str) -> T:
        """Import one record.

        Raises:
            UsageError: If the name is unknown, its module cannot be imported, or two packages declare it.
        """
        return self._load(name, *self._read())

    def load_all(self) -> tuple[dict[str, T], dict[str, str]]:
        """Return all records that can be imported, and why each other one cannot, by name."""
        entries, duplicates = self._read()
        records: dict[str, T] = {}
        broken = {f"{name} (declared twice)": str(error) for name, error in duplicates.items()}
        for name in entries:
            try:
                records[name] = self._load(name, entries, duplicates)
            except UsageError as error:
                broken[name] = str(error)
        return records, broken

    def _read(self) -> tuple[dict[str, Entry], dict[str, UsageError]]:
        entries: dict[str, Entry] = {}
        duplicates: dict[str, UsageError] = {}
        for entry in _declarations().get(self.group, ()):
            first = entries.setdefault(entry.name, entry)
            if entry != first:
                duplicates[entry.name] = UsageError(
                    f"two {self.noun}s are called '{entry.name}': {first.origin} and {entry.origin}. Uninstall one of "
                    "them"
                )
        return dict(sorted(entries.items())), duplicates

    def _load(self, name: str, entries: Mapping[str, Entry], duplicates: Mapping[str, UsageError]) -> T:
        if name not in entries:
            raise UsageError(
                f"unknown {self.noun} '{name}'. {suggestion(name, entries)}Possible values: {', '.join(entries)}"
            )
        entry = entries[name]
        # edgekit's own records win over a package's duplicates.
        if name in duplicates and entry.origin != EDGEKIT:
            raise duplicates[name]
        if not entry.attribute:
            raise UsageError(f"{self.noun} '{name}' of {entry.origin} has no attribute. Declare it as module:RECORD")
        try:
            record = getattr(importlib.import_module(entry.module), entry.attribute)
        except (Exception, SystemExit) as error:  # a package may do anything while it is imported
            why = f"{type(error).__name__}: {error}"
            raise UsageError(f"{self.noun} '{name}' of {entry.origin} cannot be imported: {why}") from error
        if not isinstance(record, resolve(self.kind)):
            raise UsageError(
                f"{self.noun} '{name}' of {entry.origin} is a {type(record).__name__}, not an "
                f"{self.kind.replace(':', '.')}"
            )
        return record  # type: ignore[no-any-return]  # `kind` names T


commands: Door[Command] = Door("edgekit.commands", "command", f"{__name__}:Command")
sources: Door[Source] = Door("edgekit.sources", "source", f"{__name__}:Source")
places: Door[PlaceRuntime] = Door("edgekit.places", "place", f"{__name__}:PlaceRuntime")

# Optional steps of the core, with the message if no package provides them.
HOOKS: Mapping[str, str] = {
    "fetch_build": "builds in stores need edgekit_stores",
    "sign_build": "signatures need edgekit_provenance",
    "require_signature": "signatures need edgekit_provenance",
    "write_bill": "bills of materials need edgekit_provenance",
    "compare_matrices": "matrices need edgekit_matrix",
    "write_hub": "folders for transformers.js need edgekit_hub",
    "check_file": "files of other tools need edgekit_check",
}


def hook(name: str) -> Callable[..., Any]:
    """Import the function of a hook.

    Raises:
        DependencyError: If no package provides it.
    """
    entries = [entry for entry in _declarations().get("edgekit.hooks", ()) if entry.name == name]
    if not entries:
        raise DependencyError(f"{HOOKS[name]}, which is not installed: pip install {DISTRIBUTION}")
    function: Callable[..., Any] = resolve(f"{entries[0].module}:{entries[0].attribute}")
    return function


def resolve(path: str) -> Any:
    """Import the object that "module:attribute" names."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _declarations() -> Mapping[str, tuple[Entry, ...]]:
    return _read_declarations(tuple((folder, _last_change(folder)) for folder in sys.path))


@functools.lru_cache(maxsize=2)
def _read_declarations(path: tuple[tuple[str, int], ...]) -> Mapping[str, tuple[Entry, ...]]:
    """Return the entry points of packages on this path, by group; edgekit's own first."""
    # Reading takes 20 ms, so the result is cached.
    groups, points = {}, metadata.entry_points()
    for group in GROUPS:
        entries = []
        for point in points.select(group=group):
            name = point.dist.name if point.dist else point.value
            origin = EDGEKIT if name == DISTRIBUTION else f"package '{name}'"
            entries.append(Entry(point.name, point.module, point.attr or "", origin))
        groups[group] = tuple(sorted(entries, key=lambda entry: entry.origin != EDGEKIT))
    return groups


def _last_change(folder: str) -> int:
    """Return the time of the last change in a folder, in ns; 0 without a folder."""
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0
