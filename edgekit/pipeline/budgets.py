"""Outcomes held to a user's budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from edgekit.judge.budget import Budget, over_budget, parse_budgets
from edgekit.pipeline.outcome import OVER, PlacedFact, TargetOutcome
from edgekit.target import Precision, Target


def parsed(budgets: Sequence[str], targets: Mapping[str, Target]) -> tuple[Budget, ...]:
    """Budgets as a user gave them.

    Raises:
        UsageError: If one is no budget, or selects what is not known.
    """
    groups = {group for target in targets.values() for group in target.groups}
    return parse_budgets(budgets, {*targets, *groups, *get_args(Precision)})


def held(
    outcomes: Mapping[str, TargetOutcome], targets: Mapping[str, Target], budgets: Sequence[Budget]
) -> dict[str, TargetOutcome]:
    """The outcomes with what is over budget; a rejected artifact stays a rejected one."""
    return {name: _held(outcome, targets[name], budgets) for name, outcome in outcomes.items()}


def _held(outcome: TargetOutcome, target: Target, budgets: Sequence[Budget]) -> TargetOutcome:
    if outcome.result is None:
        return outcome
    names = {outcome.target, *target.groups, outcome.result.precision}
    over = tuple(PlacedFact(place, fact) for place, fact in over_budget(budgets, names, outcome.result))
    status = OVER if over and not outcome.bad else outcome.status
    return replace(outcome, over=over, status=status)
