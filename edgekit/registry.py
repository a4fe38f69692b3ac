"""Registry of targets: names, requirements, options and order.

Entry points of the group `edgekit.targets` (`edgekit.doors`) declare all targets, edgekit's own too.
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
# Targets of a command: in no list and no group, so that only the command selects them.
UNLISTED: Door[Target] = Door("edgekit.unlisted_targets", "target", "edgekit.target:Target")
PROGRAM = "program"
BASIC_SOURCES = ("model", PROGRAM)
ALL = "all"
INTERPRETER = "mil_interpreter"
# edgekit's own requirements that affect the content of an artifact.
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
    """Description of a target.

    Attributes:
        name: Its name for `-t`.
        summary: Its artifact in a line.
        use_case: Its users.
        proved_by: The runtime that it is judged in.
        not_covered: Aspects outside of its verdict.
        source: Its source.
        groups: Further names that select it.
        places: Its own places.
        missing: Commands that install its missing libraries.
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
        UsageError: If the name is unknown (with the nearest one), its module is broken, or two packages declare it.
    """
    return (UNLISTED if name in UNLISTED.entries() else TARGETS).find(name)


def loadable() -> tuple[dict[str, Target], dict[str, str]]:
    """Return all targets that can be imported, and why each other one cannot, by name."""
    return TARGETS.load_all()


def with_unlisted() -> dict[str, Target]:
    """Return all targets that can be imported, by name, with those that only a command selects."""
    return loadable()[0] | UNLISTED.load_all()[0]


def info(name: str, target: Target) -> TargetInfo:
    """Return the description of a target."""
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
    """Return the needs of a target that are not installed (looked up, not imported); one per environment."""
    absent = [need for need in target.needs if not _is_installed(need)]
    first = {need.environment: need for need in reversed(absent)}
    return tuple(need for need in absent if not need.environment or first[need.environment] is need)


def require(name: str, target: Target) -> None:
    """Raise unless a target's requirements are installed.

    Raises:
        DependencyError: With the library and the command to install it.
    """
    for need in missing(target):
        raise DependencyError(f"target '{name}' needs {need.module}: {need.install}")


def require_trust(name: str, target: Target, trusted: bool) -> None:
    """Raise if an artifact runs its own code and the user does not trust it.

    Raises:
        UsageError: If it does and `trusted` is false.
    """
    if target.runs_code and not trusted:
        raise UsageError(
            f"opening an artifact of '{name}' runs code from the author of the build. If you trust the author, add "
            "--trust-build (in Python: trust_build=True), or select other targets with -t"
        )


def code_digest(target: Target) -> str:
    """Return the hash of the code that exports, runs and judges a target's artifacts."""
    modules = [getattr(function, "__module__", type(function).__module__) for function in (target.export, target.load)]
    return package_digest(EDGEKIT, INTERPRETER, *modules)


def versions(target: Target) -> dict[str, str]:
    """Return the versions of the libraries that affect a target's artifacts, by distribution."""
    names = {
        *LIBRARIES,
        *(
            distribution.name
            for need in target.needs
            for distribution in _distributions().get(need.module.partition(".")[0], ())
        ),
    }
    # A local label (+cpu, +cu130) does not change artifacts.
    version_by_name = {name: metadata.version(name).partition("+")[0] for name in names}
    for need in target.needs:
        if need.environment:
            version_by_name |= environment.version_of(need.environment, need.module)
    return dict(sorted(version_by_name.items()))


@functools.cache
def _distributions() -> Mapping[str, list[metadata.Distribution]]:
    """Return import name -> distributions."""
    by_package: dict[str, list[metadata.Distribution]] = {}
    # `metadata.packages_distributions` reads all names, which takes half a second.
    for distribution in metadata.distributions():
        declared = (distribution.read_text("top_level.txt") or "").split()
        for module in set(declared or re.findall(r"^(\w+)[./]", distribution.read_text("RECORD") or "", re.MULTILINE)):
            by_package.setdefault(module, []).append(distribution)
    return by_package


def parse_options(name: str, target: Target, values: Mapping[str, object]) -> dict[str, OptionValue]:
    """Return the value of each of a target's options, parsed, or its default.

    Raises:
        UsageError: If an option is unknown, or its value is impossible.
    """
    declared = {option.name: option for option in target.options}
    for option in values:
        if option not in declared:
            possible = ", ".join(declared) or "none"
            raise UsageError(f"target '{name}' has no option '{option}'. Options: {possible}")
    return {o: d.parse(name, values[o]) if o in values else d.default for o, d in declared.items()}


def groups_of(targets: Mapping[str, Target]) -> dict[str, list[str]]:
    """Return the names of each group's targets; "all" is one of the groups."""
    groups: dict[str, list[str]] = {ALL: list(targets)}
    for name, target in targets.items():
        for group in target.groups:
            groups.setdefault(group, []).append(name)
    return groups


def select_targets(selection: Iterable[str], targets: Mapping[str, Target]) -> tuple[str, ...]:
    """Return target names from names and groups, without repetition, in the same order.

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
                f"unknown target '{name}'. {suggestion(name, possible)}Targets and groups: "
                f"{', '.join(sorted(set(possible)))}"
            )
        names_selected += members
    return tuple(dict.fromkeys(names_selected))


def sources_first(names: Iterable[str], targets: Mapping[str, Target]) -> tuple[str, ...]:
    """Return the selected targets and their sources, sources first.

    Raises:
        UsageError: If a target's source does not exist, or sources form a circle.
    """
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise UsageError(f"sources of targets form a circle: {' -> '.join((*path, name))}")
        if name not in targets:
            raise UsageError(f"target '{path[-1]}' has the source '{name}', which does not exist")
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
        # find_spec imports parent packages, which may be missing or broken.
        return util.find_spec(need.module) is not None
    except (ImportError, ValueError):
        return False
