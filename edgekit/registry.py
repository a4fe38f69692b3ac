"""Targets by name, what each needs here, and the order in which they are made.

Targets are declared by entry points of the group `edgekit.targets` (`edgekit.doors`), edgekit's own too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata, util
from typing import Any

from edgekit.artifact.option import OptionValue
from edgekit.doors import EDGEKIT, Door, Entry
from edgekit.errors import DISTRIBUTION, DependencyError, UsageError, suggestion
from edgekit.storage import environment
from edgekit.storage.environment import package_digest
from edgekit.target import Need, Target

TARGETS: Door[Target] = Door("edgekit.targets", "target", "edgekit.target:Target")
PROGRAM = "program"
BASIC_SOURCES = ("model", PROGRAM)
ALL = "all"
INTERPRETER = "mil_interpreter"
# Of edgekit's own requirements those that decide what is in an artifact.
LIBRARIES = (
    DISTRIBUTION,
    "torch",
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxscript",
    "onnxconverter-common",
    "safetensors",
    "pillow",
)


@dataclass(frozen=True)
class TargetInfo:
    """What there is to know of a target.

    Attributes:
        name: As `-t` takes it.
        summary: What it makes.
        use_case: Whom it is for.
        proved_by: What runs it where it is judged.
        not_covered: What its verdict says nothing of.
        source: What it is made from.
        groups: Names that select it besides its own.
        places: Where it is judged.
        missing: The commands that install what it lacks here.
        options: JSON schema of its options.
    """

    name: str
    summary: str
    use_case: str
    proved_by: str
    not_covered: str
    source: str
    groups: tuple[str, ...]
    places: tuple[str, ...]
    missing: tuple[str, ...]
    options: Mapping[str, Any]


def available() -> dict[str, Entry]:
    """Return every target's entry point by name, sorted; nothing is imported."""
    return TARGETS.entries()


def find(name: str) -> Target:
    """Import one target.

    Raises:
        UsageError: If there is no such target (with the nearest name), its module is broken, or two have its name.
    """
    return TARGETS.find(name)


def loadable() -> tuple[dict[str, Target], dict[str, str]]:
    """Return all targets that can be imported, and why each other one cannot, by name."""
    return TARGETS.load_all()


def info(name: str, target: Target) -> TargetInfo:
    """What there is to know of a target."""
    return TargetInfo(
        name=name,
        summary=target.summary,
        use_case=target.about.use_case,
        proved_by=target.about.proved_by,
        not_covered=target.about.not_covered,
        source=target.source,
        groups=target.groups,
        places=tuple(place.name for place in target.places),
        missing=tuple(f"{need.module}: {need.install}" for need in missing(target)),
        options={"type": "object", "properties": {option.name: option.schema() for option in target.options}},
    )


def missing(target: Target) -> tuple[Need, ...]:
    """The needs of a target that are not installed (looked up, not imported); one an environment."""
    absent = [need for need in target.needs if not _is_installed(need)]
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
    """Return the hash of the code that makes, runs and judges a target's artifacts: edgekit's and its package's."""
    modules = [getattr(function, "__module__", type(function).__module__) for function in (target.export, target.load)]
    return package_digest(EDGEKIT, INTERPRETER, *modules)


def versions(target: Target) -> dict[str, str]:
    """Versions of the libraries that edgekit makes artifacts with and of those that a target needs, by distribution."""
    names = {
        *LIBRARIES,
        *(
            distribution.name
            for need in target.needs
            for distribution in _distributions().get(need.module.partition(".")[0], ())
        ),
    }
    version_by_name = {name: metadata.version(name).partition("+")[0] for name in names}
    for need in target.needs:
        if need.environment:
            version_by_name |= environment.version_of(need.environment, need.module)
    return dict(sorted(version_by_name.items()))


@functools.cache
def _distributions() -> Mapping[str, list[metadata.Distribution]]:
    """Import name -> distributions, as in `metadata.packages_distributions`, which reads all names: half a second."""
    by_package: dict[str, list[metadata.Distribution]] = {}
    for distribution in metadata.distributions():
        declared = (distribution.read_text("top_level.txt") or "").split()
        for module in set(declared or re.findall(r"^(\w+)[./]", distribution.read_text("RECORD") or "", re.MULTILINE)):
            by_package.setdefault(module, []).append(distribution)
    return by_package


def parse_options(name: str, target: Target, values: Mapping[str, object]) -> dict[str, OptionValue]:
    """The value of each of a target's options, parsed, or its default.

    Raises:
        UsageError: If there is no such option, or its value is not possible.
    """
    declared = {option.name: option for option in target.options}
    for option in values:
        if option not in declared:
            possible = ", ".join(declared) or "none"
            raise UsageError(f"target '{name}' has no option '{option}': possible are {possible}")
    return {o: d.parse(name, values[o]) if o in values else d.default for o, d in declared.items()}


def groups_of(targets: Mapping[str, Target]) -> dict[str, list[str]]:
    """The names of each group's targets; "all" is one of the groups."""
    groups: dict[str, list[str]] = {ALL: list(targets)}
    for name, target in targets.items():
        for group in target.groups:
            groups.setdefault(group, []).append(name)
    return groups


def select_targets(selection: Iterable[str], targets: Mapping[str, Target]) -> tuple[str, ...]:
    """Names and groups -> target names without repetition, in the order given.

    Raises:
        UsageError: If a name is neither a target nor a group (with the nearest one).
    """
    members_of = groups_of(targets)
    names_selected: list[str] = []
    for name in selection:
        members = [name] if name in targets else []
        members += members_of.get(name, [])
        if not members:
            possible = [*targets, *members_of]
            raise UsageError(
                f"no target '{name}': {suggestion(name, possible)}possible are {', '.join(sorted(set(possible)))}"
            )
        names_selected += members
    return tuple(dict.fromkeys(names_selected))


def sources_first(names: Iterable[str], targets: Mapping[str, Target]) -> tuple[str, ...]:
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
            if other in selected:
                visit(other, (*path, name))
        if name not in order:
            order.append(name)

    selected = tuple(names)
    for name in selected:
        visit(name, ())
    return tuple(order)


def _is_installed(need: Need) -> bool:
    if need.environment:
        return environment.ready(need.environment)
    try:
        return util.find_spec(need.module) is not None
    except (ImportError, ValueError):
        return False
