"""What a bundle brings with it: the targets whose artifacts belong into it, which a user need not name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgekit import registry
from edgekit.target import Target


@dataclass(frozen=True)
class Part:
    """A target that a bundle brings.

    Attributes:
        bundle: The bundle's name.
        stands_in_for: The better ones of its group: where one of them is verified, this one is not needed.
    """

    bundle: str
    stands_in_for: tuple[str, ...]


def parts_of(
    selected: Iterable[str], targets: Mapping[str, Target], options: Mapping[str, Mapping[str, object]]
) -> dict[str, Part]:
    """The targets that the selected bundles bring, by name; none that is selected itself.

    Of a group of parts that can stand in for each other (static and dynamic INT8), the best first, none is brought
    where the user chose one; what is not installed here is left out, as the bundle leaves it out.

    Raises:
        UsageError: If an option of a bundle has an impossible value.
    """
    chosen = tuple(selected)
    found: dict[str, Part] = {}
    for bundle in chosen:
        given = registry.parsed_options(bundle, targets[bundle], options.get(bundle, {}))
        for group in targets[bundle].parts(given):
            there = [name for name in group if name in targets and not registry.missing(targets[name])]
            if not set(group) & set(chosen):
                for place, name in enumerate(there):
                    found.setdefault(name, Part(bundle, tuple(there[:place])))
    return found
