"""What a bundle brings with it: the targets whose artifacts belong into it, which a user need not name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from edgekit import registry
from edgekit.target import Target


def parts_of(
    selected: Iterable[str], targets: Mapping[str, Target], options: Mapping[str, Mapping[str, object]]
) -> dict[str, str]:
    """The targets that the selected bundles bring, each with the bundle's name; none that is selected itself.

    Of a group of parts that can stand in for each other (static and dynamic INT8) none is brought where the user chose
    one; what is not installed here is left out, as the bundle leaves it out.

    Raises:
        UsageError: If an option of a bundle has an impossible value.
    """
    chosen = tuple(selected)
    found: dict[str, str] = {}
    for bundle, group in _groups(chosen, targets, options):
        there = [name for name in group if name in targets and not registry.missing(targets[name])]
        if not set(group) & set(chosen):
            found |= {name: found.get(name, bundle) for name in there}
    return found


def reserves_of(
    brought: Mapping[str, str], targets: Mapping[str, Target], options: Mapping[str, Mapping[str, object]]
) -> dict[str, str]:
    """Parts that are made only where another one is wrong, each with that one: a later one of a group."""
    found: dict[str, str] = {}
    for _, group in _groups(dict.fromkeys(brought.values()), targets, options):
        there = [name for name in group if name in brought]
        found |= dict(zip(there[1:], there, strict=False))
    return found


def _groups(
    bundles: Iterable[str], targets: Mapping[str, Target], options: Mapping[str, Mapping[str, object]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each bundle with each group of parts that can stand in for each other."""
    for bundle in bundles:
        given = registry.parsed_options(bundle, targets[bundle], options.get(bundle, {}))
        yield from ((bundle, group) for group in targets[bundle].parts(given))
