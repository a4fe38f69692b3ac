"""Inputs of integers that take not every value of their range: sorted offsets, lengths, positions in another input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.model.adapter import to_tensors
from edgekit.model.evaluation_set import evaluation_of
from edgekit.model.overrides import NOTHING, with_facts
from edgekit.model.records import INVARIANTS
from edgekit.model.spec import Array, Input, ModelSpec


def free_integers(spec: ModelSpec) -> list[Input]:
    """Return the inputs of integers that are not images and may have any value in their range."""
    return [i for i in spec.inputs if np.dtype(i.dtype).kind in "iu" and i.kind == "tensor" and not i.is_constrained]


def constraint_hint(spec: ModelSpec) -> str:
    """Return what to declare if a model fails on drawn integers; empty if it has none."""
    names = " and ".join(f"'{i.name}'" for i in free_integers(spec))
    if not names:
        return ""
    return (
        f". If {names} cannot have every value, say so with --inputs NAME:below=AXIS for positions, "
        "NAME:at-most=AXIS for lengths, or NAME:sorted for offsets"
    )


def with_constraints_of_rows(spec: ModelSpec) -> ModelSpec:
    """Return a model that fails on drawn integers with the constraints that all of its evaluation rows hold.

    The model stays as it is if it takes drawn integers, if the user has said a constraint, or if none helps.
    """
    free = free_integers(spec)
    if not free or len(free) < sum(np.dtype(i.dtype).kind in "iu" for i in spec.inputs) or _takes_drawn_values(spec):
        return spec
    evaluation = evaluation_of(spec)
    if evaluation is None:
        return spec
    overrides, notes = spec.words or NOTHING, []
    for i in free:
        facts = _constraints_in(np.asarray(evaluation.inputs[i.name]), i, spec)
        if facts:
            overrides = overrides.with_facts(i.name, facts)
            constraints = {fact.replace("_", "-"): value for fact, value in facts.items() if fact in INVARIANTS}
            text = ", ".join(f"{fact}={value}" for fact, value in constraints.items())
            notes.append(f"drawn values of '{i.name}' hold {text}, as all rows of the evaluation set do")
    inputs = tuple(with_facts(i, overrides.inputs.get(i.name, {})) for i in spec.inputs)
    constrained = replace(spec, inputs=inputs, words=overrides, notes=(*spec.notes, *notes))
    return constrained if notes and _takes_drawn_values(constrained) else spec


def _constraints_in(rows: Array, i: Input, spec: ModelSpec) -> dict[str, str | float]:
    """Return the facts of an input that all rows hold, with the range that follows from a bound."""
    facts: dict[str, str | float] = {}
    if rows.ndim > 1 and rows.shape[-1] > 1 and (np.diff(rows.astype(np.int64)) >= 0).all():
        facts["sorted"] = "ascending"
    sizes = {name: axis.default for name, axis in spec.axes.items() if name not in i.shape[:1]}
    # The nearest size is the likeliest bound.
    bounds = sorted((size, name) for name, size in sizes.items() if size >= rows.max())
    for size, name in bounds[:1]:
        below = rows.max() < size and rows.min() <= 0
        largest = spec.axes[name].maximum - below
        facts |= {"below" if below else "at_most": name, "low": float(rows.min()), "high": float(largest)}
    return facts


def _takes_drawn_values(spec: ModelSpec) -> bool:
    import torch

    smallest, largest = ({name: axis.sizes[end] for name, axis in spec.axes.items()} for end in (0, -1))
    rows = [spec.constant_inputs(1.0), *(spec.random(0, sizes) for sizes in ({}, smallest, largest))]
    try:
        with torch.no_grad():
            for row in rows:
                spec.module(*to_tensors(spec, row))
    # Whatever the module raises, it does not take the values.
    except Exception:
        return False
    return True
