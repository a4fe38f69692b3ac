"""Name -> target.

Built-in targets are the files of `edgekit_targets`; third parties use the entry point group `edgekit.targets`. Listing
names imports nothing; `find` imports one module. A broken plug-in breaks only itself.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

from edgekit.artifact.option import OptionValue
from edgekit.errors import DependencyError, UsageError, suggestion
from edgekit.storage import environment
from edgekit.storage.packages import package_digest
from edgekit.target import Need, Target

GROUP = "edgekit.targets"
BUILT_IN = "edgekit_targets"
PROGRAM = "program"
BASIC_SOURCES = ("model", PROGRAM)
ALL = "all"
EDGEKIT = "edgekit"
INTERPRETER = "mil_interpreter"
"""The origin of built-in targets."""
LIBRARIES = (
    EDGEKIT,
    "torch",
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxscript",
    "onnxconverter-common",
    "safetensors",
    "pillow",
)
"""Of edgekit's own requirements those that decide what is in an artifact."""


@dataclass(frozen=True)
class Entry:
    """Where a target is declared: a module and an attribute, and who brings it."""

    name: str
    module: str
    attribute: str
    origin: str


@dataclass(frozen=True)
class TargetInfo:
    """What there is to know of a target.

    Attributes:
        name: As `-t` takes it.
        summary: What it makes.
        choose_for: Whom it is for.
        proved_by: What runs it where it is judged.
        not_proved: What its verdict says nothing of.
        source: What it is made from.
        groups: Names that select it besides its own.
        places: Where it is judged.
        missing: The commands that install what it lacks here.
        options: JSON schema of its options.
    """

    name: str
    summary: str
    choose_for: str
    proved_by: str
    not_proved: str
    source: str
    groups: tuple[str, ...]
    places: tuple[str, ...]
    missing: tuple[str, ...]
    options: Mapping[str, Any]


def available() -> dict[str, Entry]:
    """Every target by name, sorted; nothing is imported. Of two that have one name the first is there."""
    return _read()[0]


def find(name: str) -> Target:
    """Import one target.

    Raises:
        UsageError: If there is no such target (with the nearest name), its module is broken, or two have its name.
    """
    return _found(name, *_read())


def loadable() -> tuple[dict[str, Target], dict[str, str]]:
    """All targets that import, and for what is broken, by target or by name and package, the sentence that says why."""
    entries, twice = _read()
    targets: dict[str, Target] = {}
    broken: dict[str, str] = {f"{name} (declared twice)": str(why) for name, why in twice.items()}
    for name in entries:
        try:
            targets[name] = _found(name, entries, twice)
        except UsageError as error:
            broken[name] = str(error)
    return targets, broken


def info(name: str, target: Target) -> TargetInfo:
    """What there is to know of a target."""
    return TargetInfo(
        name=name,
        summary=target.summary,
        choose_for=target.about.choose_for,
        proved_by=target.about.proved_by,
        not_proved=target.about.not_proved,
        source=target.source,
        groups=target.groups,
        places=tuple(place.name for place in target.places),
        missing=tuple(f"{need.module}: {need.install}" for need in missing(target)),
        options={"type": "object", "properties": {option.name: option.schema() for option in target.options}},
    )


def missing(target: Target) -> tuple[Need, ...]:
    """The needs of a target that are not installed (looked up, not imported); one an environment."""
    absent = [need for need in target.needs if not _there(need)]
    first = {need.environment: need for need in reversed(absent)}
    return tuple(need for need in absent if not need.environment or first[need.environment] is need)


def require(name: str, target: Target) -> None:
    """See that what a target needs is installed.

    Raises:
        DependencyError: Naming the library and the extra that brings it.
    """
    for need in missing(target):
        raise DependencyError(f"target '{name}' needs {need.module}: {need.install}")


def require_trust(name: str, target: Target, trusted: bool) -> None:
    """Refuse to open an artifact that runs code of its own, unless the user says that it may run.

    Raises:
        UsageError: If it is and nobody said so.
    """
    if target.runs_code and not trusted:
        raise UsageError(
            f"opening an artifact of '{name}' runs code of whoever made the build: run with --trust-build (in Python: "
            "trust_build=True) if you made it or trust them, or name other targets with -t"
        )


def code_digest(target: Target) -> str:
    """Hash of all the code that makes, runs and judges a target's artifacts: edgekit's and its package's."""
    modules = [getattr(one, "__module__", type(one).__module__) for one in (target.export, target.load)]
    return package_digest(EDGEKIT, INTERPRETER, *modules)


def versions(target: Target) -> dict[str, str]:
    """Versions of the libraries that edgekit makes artifacts with and of those that a target needs, by distribution."""
    names = {
        *LIBRARIES,
        *(found.name for need in target.needs for found in _distributions().get(need.module.partition(".")[0], ())),
    }
    found = {name: metadata.version(name).partition("+")[0] for name in names}
    for need in target.needs:
        if need.environment:
            found |= environment.version_of(need.environment, need.module)
    return dict(sorted(found.items()))


@functools.cache
def _distributions() -> Mapping[str, list[metadata.Distribution]]:
    """Import name -> distributions, as in `metadata.packages_distributions`, which reads all names: half a second."""
    brought: dict[str, list[metadata.Distribution]] = {}
    for found in metadata.distributions():
        declared = (found.read_text("top_level.txt") or "").split()
        for module in set(declared or re.findall(r"^(\w+)[./]", found.read_text("RECORD") or "", re.MULTILINE)):
            brought.setdefault(module, []).append(found)
    return brought


def parsed_options(name: str, target: Target, given: Mapping[str, object]) -> dict[str, OptionValue]:
    """The value of each of a target's options, parsed, or its default.

    Raises:
        UsageError: If there is no such option, or its value is not possible.
    """
    declared = {option.name: option for option in target.options}
    for option in given:
        if option not in declared:
            possible = ", ".join(declared) or "none"
            raise UsageError(f"target '{name}' has no option '{option}': possible are {possible}")
    return {o: d.parse(name, given[o]) if o in given else d.default for o, d in declared.items()}


def groups_of(targets: Mapping[str, Target]) -> dict[str, list[str]]:
    """The names of each group's targets; "all" is one of the groups."""
    found: dict[str, list[str]] = {ALL: list(targets)}
    for name, target in targets.items():
        for group in target.groups:
            found.setdefault(group, []).append(name)
    return found


def select_targets(wanted: Iterable[str], targets: Mapping[str, Target]) -> tuple[str, ...]:
    """Names and groups -> target names without repetition, in the order given.

    Raises:
        UsageError: If a name is neither a target nor a group (with the nearest one).
    """
    members_of = groups_of(targets)
    chosen: list[str] = []
    for name in wanted:
        members = [name] if name in targets else []
        members += members_of.get(name, [])
        if not members:
            known = [*targets, *members_of]
            raise UsageError(
                f"no target '{name}': {suggestion(name, known)}possible are {', '.join(sorted(set(known)))}"
            )
        chosen += members
    return tuple(dict.fromkeys(chosen))


def ordered(names: Iterable[str], targets: Mapping[str, Target]) -> tuple[str, ...]:
    """The chosen targets and the targets that they are made from, sources first.

    Raises:
        UsageError: If a target's source does not exist, or sources go round in a circle.
    """
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise UsageError(f"targets are made from each other in a circle: {' -> '.join((*path, name))}")
        if name not in targets:
            raise UsageError(f"target '{path[-1]}' is made from '{name}', which does not exist")
        source = targets[name].source
        if source not in BASIC_SOURCES:
            visit(source, (*path, name))
        for other in targets[name].bundle.sources:
            if other in chosen:
                visit(other, (*path, name))
        if name not in order:
            order.append(name)

    chosen = tuple(names)
    for name in chosen:
        visit(name, ())
    return tuple(order)


def _read() -> tuple[dict[str, Entry], dict[str, UsageError]]:
    """Every target by name, sorted, and for each name that is declared more than once the error that says by whom."""
    entries: dict[str, Entry] = {}
    twice: dict[str, UsageError] = {}
    for entry in (*_built_in(), *_plug_ins()):
        first = entries.setdefault(entry.name, entry)
        if entry != first:
            twice[entry.name] = UsageError(
                f"two targets are called '{entry.name}': {first.origin} and {entry.origin}; uninstall one of them"
            )
    return dict(sorted(entries.items())), twice


def _found(name: str, entries: Mapping[str, Entry], twice: Mapping[str, UsageError]) -> Target:
    """Import one of the entries; a built-in target keeps its name whoever else declares it."""
    if name not in entries:
        raise UsageError(f"no target '{name}': {suggestion(name, entries)}possible are {', '.join(entries)}")
    entry = entries[name]
    if name in twice and entry.origin != EDGEKIT:
        raise twice[name]
    if not entry.attribute:
        raise UsageError(f"target '{name}' of {entry.origin} names no attribute: declare it as module:TARGET")
    try:
        target = getattr(importlib.import_module(entry.module), entry.attribute)
    except (Exception, SystemExit) as error:  # a plug-in may do anything while it is imported
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"target '{name}' of {entry.origin} cannot be imported: {why}") from error
    if not isinstance(target, Target):
        raise UsageError(
            f"target '{name}' of {entry.origin} is a {type(target).__name__}, not an edgekit.target.Target"
        )
    return target


def _built_in() -> Iterable[Entry]:
    found = util.find_spec(BUILT_IN)
    for folder in (found.submodule_search_locations or []) if found else []:
        for module in pkgutil.iter_modules([folder]):
            if not module.name.startswith("_"):
                name = module.name.replace("_", "-")
                yield Entry(name, f"{BUILT_IN}.{module.name}", "TARGET", EDGEKIT)


def _plug_ins() -> Iterable[Entry]:
    return _declared_on(tuple((folder, _changed(folder)) for folder in sys.path))


@functools.lru_cache(maxsize=2)
def _declared_on(path: tuple[tuple[str, int], ...]) -> tuple[Entry, ...]:
    """What packages on this path declare; read again where one was installed: it takes 20 ms, ten times a command."""
    points = [(point, point.dist.name if point.dist else point.value) for point in metadata.entry_points(group=GROUP)]
    return tuple(Entry(p.name, p.module, p.attr or "", f"package '{origin}'") for p, origin in points)


def _changed(folder: str) -> int:
    """When something was last added to a folder or removed from it, in ns; 0 where there is none."""
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def _there(need: Need) -> bool:
    if need.environment:
        return environment.ready(need.environment)
    try:
        return util.find_spec(need.module) is not None
    except (ImportError, ValueError):
        return False
