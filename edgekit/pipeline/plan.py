"""Plan of a run: targets in order, their options, and the targets that a bundle implies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from edgekit import registry
from edgekit.artifact.option import OptionValue
from edgekit.errors import UsageError
from edgekit.model.sources.onnx import file_of
from edgekit.model.spec import ModelSpec
from edgekit.pipeline import run_log
from edgekit.target import Target

Options = Mapping[str, Mapping[str, object]]
"""Options of the user, by target and name."""


def plan_run(
    targets: Mapping[str, Target], selection: tuple[str, ...], options: Options
) -> tuple[tuple[str, ...], dict[str, dict[str, OptionValue]], dict[str, str]]:
    """Return a run's targets, sources first, with typed options, and the bundle of each implied target.

    Raises:
        EdgekitError: For an unknown target or option, an impossible value, or a library that is not installed.
    """
    if not isinstance(options, Mapping) or not all(isinstance(option, Mapping) for option in options.values()):
        raise UsageError("options must be given by target and name, for example {'onnx': {'opset': 21}}")
    for one in selection:
        if one not in targets and one in registry.available():
            # Raises with the reason if a selected plug-in is broken.
            registry.find(one)
    selected = registry.select_targets(selection, targets) if selection else _installed_targets(targets)
    parts = parts_of(selected, targets, options)
    order = registry.sources_first((*selected, *parts), targets)
    for target in order if selection else ():
        registry.require(target, targets[target])
    _check_options(options, order, targets)
    typed = {name: registry.parse_options(name, targets[name], options.get(name, {})) for name in order}
    return order, typed, parts


def fallback_of(
    target: Target, given: Mapping[str, object], options: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """Return the options of a target's second export; empty if it has none, or if the user gave one of them."""
    declared = {option.name: option for option in target.options}
    second = {name: declared[name].parse("", value) for name, value in target.fallback.items()}
    return {**options, **second} if second and not set(second) & set(given) else {}


def _check_options(options: Options, order: tuple[str, ...], targets: Mapping[str, Target]) -> None:
    for name in options:
        if name not in targets:
            # Raises with near names.
            registry.select_targets((name,), targets)
        if name not in order:
            raise UsageError(f"options given for target '{name}', which is not selected. Selected: {', '.join(order)}")


def made_from_onnx(targets: Mapping[str, Target]) -> dict[str, Target]:
    """Return the targets for an ONNX file: those that take one, and all downstream of them."""
    return _downstream_targets(targets, lambda target: target.reads.onnx)


def made_in_memory(targets: Mapping[str, Target], specs: Iterable[ModelSpec]) -> tuple[str, ...]:
    """Return the installed targets for models given in memory: none that needs a module's code."""
    captured = _downstream_targets(targets, lambda target: target.source == registry.PROGRAM)
    return _installed_targets(made_from_onnx(targets) if any(file_of(spec.module) for spec in specs) else captured)


def _downstream_targets(targets: Mapping[str, Target], first: Callable[[Target], bool]) -> dict[str, Target]:
    """Return the first targets and all that are exported from them."""
    chain: dict[str, Target] = {}
    for name in registry.sources_first(tuple(targets), targets):
        if first(targets[name]) or targets[name].source in chain:
            chain[name] = targets[name]
    return chain


def _installed_targets(targets: Mapping[str, Target]) -> tuple[str, ...]:
    left_out = run_log.missing_requirements(targets)
    return tuple(name for name in targets if name not in left_out and not targets[name].opt_in)


def parts_of(
    selected: Iterable[str], targets: Mapping[str, Target], options: Mapping[str, Mapping[str, object]]
) -> dict[str, str]:
    """Return the targets that the selected bundles imply, with the bundle's name; none that is selected itself.

    If the user selected a member of a group of alternatives (static and dynamic INT8), the group implies nothing.
    Targets that are not installed are left out, as the bundle leaves them out.

    Raises:
        UsageError: If an option of a bundle has an impossible value.
    """
    names = tuple(selected)
    bundles: dict[str, str] = {}
    for bundle, group in _groups(names, targets, options):
        installed = [name for name in group if name in targets and not registry.missing(targets[name])]
        if not set(group) & set(names):
            bundles |= {name: bundles.get(name, bundle) for name in installed}
    return bundles


def reserves_of(
    implied: Mapping[str, str], targets: Mapping[str, Target], options: Mapping[str, Mapping[str, object]]
) -> dict[str, str]:
    """Return the fallback targets, each with the target whose rejection triggers its export."""
    fallbacks: dict[str, str] = {}
    for _, group in _groups(dict.fromkeys(implied.values()), targets, options):
        members = [name for name in group if name in implied]
        fallbacks |= dict(zip(members[1:], members, strict=False))
    return fallbacks


def _groups(
    bundles: Iterable[str], targets: Mapping[str, Target], options: Mapping[str, Mapping[str, object]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each bundle with each of its groups of alternatives."""
    for bundle in bundles:
        bundle_options = registry.parse_options(bundle, targets[bundle], options.get(bundle, {}))
        yield from ((bundle, group) for group in targets[bundle].bundle.parts(bundle_options))
