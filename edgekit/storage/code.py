"""Which code a function reaches by import: the part of an artifact's key that follows the source.

The reach is found in the source without running it. A definition reaches the names that it uses; a name that was
imported is followed into its module, so that two functions of one file may reach different modules. Of every module
that is reached the whole file counts, and of every library that is imported on the way its version.

What the analysis cannot see: names looked up by strings (`importlib`, `getattr`), which is why workers and passes are
given as functions, and methods of objects whose class is named nowhere on the way.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from edgekit.storage.files import digest_file, digest_text

ROOTS = ("edgekit", "edgekit_targets", "mil_interpreter")
"""Packages whose source counts; a plug-in's own package is added to them."""
FAMILIES = ("edgekit.arrcoc",)
"""Models are data here: a model folder's hash holds the code of its module."""


@dataclass(frozen=True)
class ReachedCode:
    """What a function reaches.

    Attributes:
        modules: sha256 of each module's file, by the module's name.
        libraries: Version of each distribution that is imported, by its name.
    """

    modules: Mapping[str, str]
    libraries: Mapping[str, str]

    @property
    def digest(self) -> str:
        """sha256 over the modules, without the libraries."""
        return digest_text("\n".join(f"{name} {sha256}" for name, sha256 in sorted(self.modules.items())))


def joined(codes: Iterable[ReachedCode]) -> ReachedCode:
    """What several functions reach together."""
    modules: dict[str, str] = {}
    libraries: dict[str, str] = {}
    for code in codes:
        modules |= code.modules
        libraries |= code.libraries
    return ReachedCode(dict(sorted(modules.items())), dict(sorted(libraries.items())))


def code_of(function: Callable[..., object]) -> ReachedCode:
    """The code that a top-level function reaches; a callable object has no name to start from: all of its module."""
    name = getattr(function, "__qualname__", "")
    return _reached(getattr(function, "__module__", type(function).__module__), "" if "." in name else name)


@functools.cache
def _reached(module: str, name: str) -> ReachedCode:
    ours = _Ours((*ROOTS, module.partition(".")[0]))
    seen: set[tuple[str, str]] = set()
    waiting = [(module, name)]
    modules: dict[str, str] = {}
    libraries: set[str] = set()
    while waiting:
        place = waiting.pop()
        if place in seen or place[0].startswith(FAMILIES):
            continue
        seen.add(place)
        source = ours.source(place[0])
        if source is None:
            libraries.add(place[0].partition(".")[0])
            continue
        modules[place[0]] = source.sha256
        waiting += ours.reach(source, place[1])
    return ReachedCode(dict(sorted(modules.items())), _versions(libraries - sys.stdlib_module_names))


@dataclass(frozen=True)
class _Statement:
    """What one statement at the top of a module uses.

    Attributes:
        imports: As in `_Source`, of the imports inside of it.
        names: Names that are used as they are.
        attributes: (name, attribute) for each name that is used by an attribute.
    """

    imports: Mapping[str, tuple[str, str]]
    names: frozenset[str]
    attributes: frozenset[tuple[str, str]]

    @property
    def used(self) -> frozenset[str]:
        """All names, used either way."""
        return self.names | {name for name, _ in self.attributes}


@dataclass(frozen=True)
class _Source:
    """One module: the statements that define each name, and (module, name) for each name that is imported."""

    sha256: str
    definitions: Mapping[str, tuple[_Statement, ...]]
    imports: Mapping[str, tuple[str, str]]

    def has(self, name: str) -> bool:
        """Whether a name is defined or imported here."""
        return name in self.definitions or name in self.imports


@dataclass(frozen=True)
class _Ours:
    """The packages whose source counts."""

    roots: tuple[str, ...]

    def source(self, module: str) -> _Source | None:
        """A module of ours; None for a library's, which is not even looked up: that could import it."""
        return _parsed(module) if module.partition(".")[0] in self.roots else None

    def reach(self, source: _Source, name: str) -> Iterator[tuple[str, str]]:
        """The (module, name) pairs elsewhere that one name of a module reaches; all names where it is ""."""
        seen: set[str] = set()
        waiting = [name] if name else [*source.definitions]
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            if one in source.imports and one not in source.definitions:
                yield self._imported(*source.imports[one])
            for statement in source.definitions.get(one, ()):
                yield from self._used(statement, {**source.imports, **statement.imports})
                waiting += statement.used & source.definitions.keys()

    def _used(self, statement: _Statement, imports: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Imported names that a statement uses; of a module of ours that is used by attribute, the attribute only."""
        for name, attribute in statement.attributes:
            if name in imports:
                module, inside = self._imported(*imports[name])
                yield (module, inside) if inside or self.source(module) is None else (module, attribute)
        for name in statement.names & imports.keys():
            yield self._imported(*imports[name])

    def _imported(self, module: str, name: str) -> tuple[str, str]:
        """What `from module import name` gives: a name of the module, or a module below it."""
        source = self.source(module)
        below = f"{module}.{name}" if name else module
        # A package that imports its own modules has their names by that import alone.
        own = source is not None and (not source.has(name) or source.imports.get(name) == (module, name))
        if name and own and self.source(below) is not None:
            return below, ""
        return module, name


@functools.cache
def _parsed(module: str) -> _Source | None:
    path = _path(module)
    if path is None:
        return None
    definitions: dict[str, list[_Statement]] = {}
    imports: dict[str, tuple[str, str]] = {}
    for statement in ast.parse(path.read_bytes()).body:
        if isinstance(statement, ast.If) and _is_type_checking(statement.test):
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imports |= _imports(statement)
        if names := set(_defined(statement)):
            uses = _statement(statement)
            for name in names:
                definitions.setdefault(name, []).append(uses)
    return _Source(digest_file(path), {name: tuple(found) for name, found in definitions.items()}, imports)


def _statement(statement: ast.stmt) -> _Statement:
    names, attributes, of_attributes = set(), set(), set()
    for node in ast.walk(statement):
        # An attribute comes before its own name: the walk goes from the outside in.
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.add((node.value.id, node.attr))
            of_attributes.add(id(node.value))
        elif isinstance(node, ast.Name) and id(node) not in of_attributes:
            names.add(node.id)
    return _Statement(_imports(statement), frozenset(names), frozenset(attributes))


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif not isinstance(statement, ast.Import | ast.ImportFrom):
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _imports(statement: ast.stmt) -> dict[str, tuple[str, str]]:
    """Local name -> (module, name in it), for every import in a statement; the name is "" for a module itself."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(statement):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                found[local] = (alias.name if alias.asname else local, "")
    return found


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _path(module: str) -> Path | None:
    try:
        spec = util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    path = Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None
    return path if path and path.is_file() else None


def _versions(imported: set[str]) -> dict[str, str]:
    names = sorted({one for name in imported for one in distributions_of(name)})
    return {name: metadata.version(name).partition("+")[0] for name in names}


def distributions_of(module: str) -> tuple[str, ...]:
    """The installed distributions that bring an importable name."""
    return tuple(sorted(set(_distributions().get(module.partition(".")[0], ()))))


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """Import name -> distributions; reading it takes a third of a second."""
    return metadata.packages_distributions()
