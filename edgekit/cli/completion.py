"""Shell completion: names of models, targets and groups, options and their values."""

from __future__ import annotations

from collections.abc import Callable


def model_names(incomplete: str) -> list[str]:
    """Return presets; the shell itself completes paths."""
    from edgekit.model.sources import presets

    return [name for name in presets() if name.startswith(incomplete)]


def place_names(incomplete: str) -> list[str]:
    """Return runtimes and targets' own places; hosts are unknown."""
    from edgekit.hosts.catalogue import place_names as known

    return [name for name in known() if name.startswith(incomplete)]


def target_names(incomplete: str) -> list[str]:
    """Return names of targets."""
    from edgekit import registry

    return [name for name in registry.available() if name.startswith(incomplete)]


def selections(incomplete: str) -> list[str]:
    """Return names of targets and of groups."""
    from edgekit import registry

    targets, _ = registry.loadable()
    return [name for name in dict.fromkeys((*targets, *registry.groups_of(targets))) if name.startswith(incomplete)]


def option_values(incomplete: str) -> list[str]:
    """Return `TARGET.NAME=VALUE` with known values."""
    from edgekit import registry
    from edgekit.artifact.option import as_text

    targets, _ = registry.loadable()
    possible = []
    for name, target in targets.items():
        for option in target.options:
            values = ("yes", "no") if option.kind == "flag" else tuple(as_text(choice) for choice in option.choices)
            possible += [f"{name}.{option.name}={value}" for value in values or (as_text(option.default),)]
    return [value for value in possible if value.startswith(incomplete)]


def among(*values: str) -> Callable[[str], list[str]]:
    """Return a completer for these words."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


def int8_values(option: str) -> Callable[[str], list[str]]:
    """Return a completer for an option of the target of `edgekit quantize`."""

    def complete(incomplete: str) -> list[str]:
        from edgekit import api, registry

        [declared] = [candidate for candidate in registry.find(api.INT8).options if candidate.name == option]
        return among(*map(str, declared.choices))(incomplete)

    return complete
