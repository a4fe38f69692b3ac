"""What a quantizing target tried: a table out of `recipes.json`, read with patience since options differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.report import formats

KNOWN = {"name", "p50_ms", "size", "measures", "passed", "chosen", "float_groups"}


@dataclass(frozen=True)
class Recipe:
    """One way of quantizing and what came of it, as text.

    Attributes:
        name: What it is called.
        options: All else that was said of it.
        p50: Latency.
        size: Of the file.
        measures: Its numbers.
        passed: Whether every limit held.
        chosen: Whether the artifact is made by it.
        float_groups: Parts of the model that stay in float.
    """

    name: str
    options: str
    p50: str
    size: str
    measures: str
    passed: bool
    chosen: bool
    float_groups: str

    @property
    def mark(self) -> str:
        """What became of it, in a word or two."""
        if self.chosen:
            return "chosen" if self.passed else "best, failed"
        return "passed" if self.passed else "failed"


def table(found: Sequence[Mapping[str, Any]]) -> tuple[Recipe, ...]:
    """Recipes as the report lists them: the chosen first, then those that passed, fastest first."""
    order = sorted(
        found, key=lambda r: (not r.get("chosen"), not r.get("passed"), _number(r.get("p50_ms")) or math.inf)
    )
    return tuple(_recipe(recipe) for recipe in order)


def _recipe(found: Mapping[str, Any]) -> Recipe:
    measures = found.get("measures")
    size = _number(found.get("size"))
    return Recipe(
        name=str(found.get("name", "unnamed")),
        options=", ".join(f"{name} {_said(value)}" for name, value in found.items() if name not in KNOWN),
        p50=formats.milliseconds(_number(found.get("p50_ms"))),
        size=formats.size(int(size) if size is not None else None),
        measures=", ".join(_measures(measures)) or formats.NONE,
        passed=found.get("passed") is True,
        chosen=found.get("chosen") is True,
        float_groups=_said(found.get("float_groups", "")),
    )


def _measures(found: object) -> list[str]:
    """Numbers by name, or a list of what `result.Measure` holds."""
    if isinstance(found, dict):
        return [f"{name} {formats.by_metric(str(name), _number(value))}" for name, value in found.items()]
    listed = [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
    return [
        f"{item.get('metric')} {formats.by_metric(str(item.get('metric')), _number(item.get('value')))}"
        for item in listed
    ]


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_said(item) for item in value)
    return str(value)


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)
