"""What a quantizing target tried: a table out of `trials.json`, read tolerantly since options differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.artifact.metric import metric_info
from edgekit.report import formats
from edgekit.report.rows import trials_of

KNOWN = {"name", "p50_ms", "size", "measures", "passed", "chosen", "float_groups"}


@dataclass(frozen=True)
class TrialRow:
    """One way of quantizing and what came of it, as text.

    Attributes:
        name: What it is called.
        options: All else that is known of it.
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


def read_trials(build: Path, target: str) -> tuple[TrialRow, ...]:
    """What a quantizing target of a build tried, as the report lists it."""
    return trial_rows(trials_of(build, target))


def trial_rows(trials: Sequence[Mapping[str, Any]]) -> tuple[TrialRow, ...]:
    """Trials as the report lists them: the chosen first, then those that passed, fastest first."""
    order = sorted(
        trials, key=lambda r: (not r.get("chosen"), not r.get("passed"), _number(r.get("p50_ms")) or math.inf)
    )
    return tuple(_trial(trials) for trials in order)


def _trial(trial: Mapping[str, Any]) -> TrialRow:
    measures = trial.get("measures")
    size = _number(trial.get("size"))
    return TrialRow(
        name=str(trial.get("name", "unnamed")),
        options=", ".join(f"{name} {_shown(value)}" for name, value in trial.items() if name not in KNOWN),
        p50=formats.milliseconds(_number(trial.get("p50_ms"))),
        size=formats.size(int(size) if size is not None else None),
        measures=", ".join(_measures(measures)) or formats.NONE,
        passed=trial.get("passed") is True,
        chosen=trial.get("chosen") is True,
        float_groups=_shown(trial.get("float_groups", "")),
    )


def _measures(measures: object) -> list[str]:
    """Numbers by name, or a list of what `result.Measure` holds."""
    if isinstance(measures, dict):
        return [f"{name} {metric_info(str(name)).format(_number(value))}" for name, value in measures.items()]
    listed = [item for item in measures if isinstance(item, dict)] if isinstance(measures, list) else []
    return [
        f"{item.get('metric')} {metric_info(str(item.get('metric'))).format(_number(item.get('value')))}"
        for item in listed
    ]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value)
    return str(value)


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)
