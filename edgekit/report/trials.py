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
    """One way of quantizing and what came of it, as text; `options` are all else that is known of it."""

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

    def order(trial: Mapping[str, Any]) -> tuple[bool, bool, float]:
        return not trial.get("chosen"), not trial.get("passed"), _number(trial.get("p50_ms")) or math.inf

    return tuple(_row(trial) for trial in sorted(trials, key=order))


def _row(trial: Mapping[str, Any]) -> TrialRow:
    measures = trial.get("measures")
    values = measures.items() if isinstance(measures, dict) else ()
    size = _number(trial.get("size"))
    return TrialRow(
        name=str(trial.get("name", "unnamed")),
        options=", ".join(f"{name} {_shown(value)}" for name, value in trial.items() if name not in KNOWN),
        p50=formats.milliseconds(_number(trial.get("p50_ms"))),
        size=formats.size(int(size) if size is not None else None),
        measures=", ".join(f"{n} {metric_info(n).format(_number(value))}" for n, value in values) or formats.NONE,
        passed=trial.get("passed") is True,
        chosen=trial.get("chosen") is True,
        float_groups=_shown(trial.get("float_groups", "")),
    )


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(_shown, value)) if isinstance(value, list) else str(value)


def _number(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None  # type: ignore[arg-type]  # it is a number
