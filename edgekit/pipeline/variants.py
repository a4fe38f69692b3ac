"""Variants of a bundle: one that its place rejects leaves the bundle, and what replaces it is judged.

A browser bundle holds several models. A model that was verified elsewhere may be wrong in a browser: then the bundle is
made again without it (`Manifest.left_out`), with the next best in its place, and only that is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from edgekit.artifact.fact import Code, fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.option import OptionValue
from edgekit.artifact.result import Result
from edgekit.pipeline.context import RunContext
from edgekit.pipeline.evaluate_step import (
    Finding,
    conclude,
    evaluate_in_place,
    previous,
    settled,
    unchanged,
    variant_target,
)
from edgekit.pipeline.export_step import make

Bring = Callable[[Collection[str]], None]
"""Told which targets a bundle rejects, before it is made again without them: makes what can stand in for them."""


def made_and_evaluated(
    context: RunContext, name: str, options: Mapping[str, OptionValue], bring: Bring
) -> tuple[Manifest, Result, bool]:
    """Make an artifact, if anything changed, and judge it, if anything changed.

    Args:
        context: The run.
        name: Of the target.
        options: Its options.
        bring: Called where variants are rejected.

    Returns:
        The manifest, the result, and whether nothing had to be done.
    """
    made = make(context, name, options)
    before = None if context.fresh else previous(context, name, made)
    if before is not None and unchanged(before):
        return made, before, True
    known = settled(context, name, made, before) if before is not None else []
    if made.bundle.left_out:  # another judge, reference or host: what was left out gets another chance
        made = make(replace(context, fresh=True), name, options)
    findings = _found(context, name, made, known)
    while rejected := _rejected(made, findings):
        bring(rejected)
        made = make(context, name, options, (*made.bundle.left_out, *rejected))
        findings = _found(context, name, made, findings)
    return made, conclude(context, name, made, findings), False


def _found(context: RunContext, name: str, made: Manifest, before: Sequence[Finding]) -> list[Finding]:
    """Judge where its variants run; what was found before counts where the same variant is still there, or none is."""
    findings = []
    for place in context.targets[name].places:
        known = next((f for f in before if f.verdict.place == place.name), None)
        target = variant_target(made, place)
        if known is None and place not in context.targets[name].places_of(made):
            continue
        if known is None:
            findings.append(evaluate_in_place(context, name, made, place))
        elif target in ("", known.variant_target):
            findings.append(known)
        else:
            findings.append(_replaced(evaluate_in_place(context, name, made, place), known))
    return findings


def _replaced(finding: Finding, before: Finding) -> Finding:
    """A finding that says which variant was rejected here before."""
    why = "; ".join(str(reason) for reason in before.verdict.reasons[:1])
    note = fact(Code.VARIANT_REPLACED, variant=before.variant_target, why=why)
    return replace(finding, verdict=finding.verdict.model_copy(update={"notes": (note, *finding.verdict.notes)}))


def _rejected(made: Manifest, findings: Sequence[Finding]) -> list[str]:
    """The targets of variants that were rejected and that the bundle can do without: all but the first."""
    spare = {variant.target for variant in made.bundle.variants[1:]}
    return sorted({f.variant_target for f in findings if f.verdict.status == "rejected"} & spare)
