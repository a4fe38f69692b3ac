"""Facts of a verdict, as records: a code, numbers, the limit and the place. This file turns them into sentences.

Verdicts carry facts as reasons and notes; `result.json` stores the records, and `str(fact)` is the sentence. Programs
should check the code, never the words of a sentence.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from edgekit.artifact.metric import all_but, metric_info, plain

EVALUATION = "evaluation"
IN_BATCHES = "evaluation in batches"
"""The evaluation set again, several rows in one run."""


class Code(StrEnum):
    """Kind of a fact."""

    # Reasons why an artifact is not verified.
    LIMIT_EXCEEDED = "limit exceeded"
    ROWS_BEYOND = "rows beyond a limit"
    TOO_FEW_ROWS = "too few rows"
    TOO_FEW_TURNED = "too few rows turned"
    TOO_FEW_FOR_MEAN = "too few rows for a mean"
    ROWS_UNMOVED = "rows beyond a limit, whose task metric stays"
    NOT_FINITE = "not finite"
    WRONG_DTYPE = "wrong dtype"
    WRONG_SHAPE = "wrong shape"
    WRONG_AXES = "wrong number of axes"
    OUTPUT_MISSING = "output missing"
    BAD_COUNTS = "bad counts"
    BAD_RANKING = "bad ranking"
    BASE_MISSING = "base missing"
    NO_ANSWER = "no answer"
    TASK_METRIC_NOT_FINITE = "task metric not finite"
    REFERENCE_NOISE = "reference noise"
    REFERENCE_TOO_NOISY = "reference too noisy"
    NOTHING_COMPARED = "nothing compared"
    REAL_INPUTS_NEEDED = "real inputs needed"
    NO_LIMIT_APPLIES = "no limit applies"
    RUNTIME_MISSING = "runtime missing"
    HOST_LIMIT = "host limit"
    RUNTIME_FAILED = "runtime failed"
    EXPORTER_FAILURE = "exporter failure"
    OVER_BUDGET = "over budget"
    BUDGET_UNKNOWN = "budget unknown"
    WITHIN_BUDGET = "within budget"
    # Notes on an artifact, whatever its verdict.
    COUNTS_ROUNDED = "counts rounded"
    TIES_AT_K = "ties at K"
    TIES_WITHIN_K = "ties within K"
    LIMIT_WIDENED = "limit widened"
    NO_EVALUATION_SET = "no evaluation set"
    NO_TASK_METRIC = "no task metric"
    NOISE_WITHOUT_FP64 = "noise without fp64"
    ASKED = "asked"
    SAMPLED = "sampled"
    MADE_INPUTS = "made inputs"
    SLOWER = "slower"
    SPEED_UNKNOWN = "speed unknown"
    VARIANT_REPLACED = "variant replaced"
    FRESH_INPUTS = "fresh inputs"
    TEXT = "text"


class Fact(BaseModel):
    """One fact of a verdict.

    Attributes:
        code: Kind of the fact.
        batch: "evaluation", "stress" or the sizes of a grid shape; empty if it concerns all.
        output: Name of the output, or empty.
        metric: Name of the metric, or empty.
        value: Measured value; None without a finite number.
        limit: Limit of the value.
        row: The worst row, or empty.
        index: Position in the row, along the output's axes; -1 if that has no meaning.
        details: Further numbers and texts, by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    code: Code
    batch: str = ""
    output: str = ""
    metric: str = ""
    value: float | None = None
    limit: float | None = None
    # Older results and phones write `image` and `patch`.
    row: str = Field(default="", validation_alias=AliasChoices("row", "image"))
    index: int = Field(default=-1, validation_alias=AliasChoices("index", "patch"))
    details: dict[str, str | int | float] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        """Accept a sentence as a fact: phones write their reasons as sentences."""
        return {"code": Code.TEXT, "details": {"text": value}} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _require_values(self) -> Self:
        try:
            str(self)
        except (KeyError, TypeError) as error:
            raise ValueError(f"the details of '{self.code}' lack a value of its sentence ({error})") from error
        return self

    def __str__(self) -> str:
        needs_batch = self.code in _BY_BATCH and self.batch not in ("", EVALUATION)
        where = f" ({_BATCHES.get(self.batch, self.batch)})" if needs_batch else ""
        return _SENTENCES[self.code].format_map(_Words(self)) + where

    def as_record(self) -> dict[str, Any]:
        """Return the fields and the sentence."""
        return {**self.model_dump(mode="json"), "sentence": str(self)}


def fact(code: Code, **details: str | int | float) -> Fact:
    """Return a fact with details only."""
    return Fact(code=code, details=details)


class _Words(dict[str, Any]):
    """Values of the sentences' placeholders."""

    def __init__(self, fact: Fact) -> None:
        info = metric_info(fact.metric)
        # Records of earlier versions have no outcome, and no share of the rows that may be wrong.
        previous = fact.limit if fact.code is Code.TOO_FEW_TURNED and fact.limit else 0.01
        share = float(fact.details.get("share", previous))
        super().__init__({"outcome": "fails", **fact.details})
        self.update(
            output=fact.output,
            metric=fact.metric,
            value=info.format_beside(fact.value, fact.limit),
            limit=info.format_limit(fact.limit) if fact.limit is not None else "",
            tolerance=plain(fact.limit, 2),
            error=plain(fact.value, 2),
            what=f"{_METRICS.get(fact.metric, fact.metric)} of '{fact.output}'" if fact.output else fact.metric,
            place=_place(fact),
            unit=f" of its {info.unit}" if info.unit in ("spread", "peak") else "",
            bound="at least" if info.better == "higher" else "at most",
            needed=math.ceil(float(fact.details.get("beyond", 0)) / share - 1e-9),
            most=all_but(share),
        )


def _place(fact: Fact) -> str:
    """Return the row and the index in it; a task metric's mean has no row, and names the one that lost most."""
    if not fact.row:
        return ""
    # What is no row of the inputs: a channel, a class, or all of them; or a condition, such as "faint".
    if fact.row.startswith(("channel ", "class '")) or fact.row == "all inputs":
        return f" in {fact.row}"
    condition, _, channel = fact.row.partition(", ")
    if fact.metric.startswith("channel "):
        return f" in the inputs '{condition}', {channel}"
    if fact.batch == "changed inputs" and not channel:
        return f" in the inputs '{condition}'"
    if fact.row.startswith("photograph "):
        return f" in edgekit's {fact.row}"
    # The name of a row in a batch of one shape starts with its number there.
    number, _, name = fact.row.partition(": ")
    text = f"row '{name}', number {number} of its batch" if number.isdecimal() and name else f"row '{fact.row}'"
    row = f" in {text}" if fact.output else f", most in {text}"
    return row + (f", index {fact.index}" if fact.index >= 0 else "")


# Words for batches and metrics that a reader cannot know.
_BATCHES = {
    "real inputs": "all your inputs, and edgekit's photographs if it takes pictures",
    "resized inputs": "real inputs at other sizes",
    "changed inputs": "all changed inputs: other light, structure, words, ids or length",
    "random inputs": "all random and extreme inputs, and yours moved towards their ends",
}
_METRICS = {"usual error": "error, where the model answers as on real inputs,"}
_BY_BATCH = {
    Code.LIMIT_EXCEEDED,
    Code.ROWS_BEYOND,
    Code.TOO_FEW_ROWS,
    Code.TOO_FEW_TURNED,
    Code.TOO_FEW_FOR_MEAN,
    Code.ROWS_UNMOVED,
    Code.NOT_FINITE,
    Code.WRONG_DTYPE,
    Code.WRONG_SHAPE,
    Code.WRONG_AXES,
    Code.OUTPUT_MISSING,
    Code.BAD_COUNTS,
    Code.BAD_RANKING,
    Code.BASE_MISSING,
    Code.NO_ANSWER,
    Code.TASK_METRIC_NOT_FINITE,
}
# A sentence for each code. Placeholders are the fact's fields, its details, and the additions of `_Words`.
_SENTENCES = {
    Code.LIMIT_EXCEEDED: "{what} is {value}{unit}{place}, must be {bound} {limit}",
    Code.ROWS_BEYOND: "{what} must be {bound} {limit}, and is not in {beyond} of {rows} rows ({allowed} "
    "allowed): {value}{unit}{place}",
    Code.TOO_FEW_ROWS: "{what} must be {bound} {limit}, and is not in {beyond} of {rows} rows ({allowed} "
    "allowed): too few inputs to tell whether {most} are within the limit. {needed} would, if no others exceed it",
    Code.TOO_FEW_TURNED: "{what} is {value}, and must be {bound} {limit}: {beyond} more of {rows} rows are wrong, too "
    "few to tell. Give more evaluation rows: {needed}, if no others turn wrong",
    Code.TOO_FEW_FOR_MEAN: "{what} is {value}, and must be {bound} {limit}: up to {chance} may be chance in so few "
    "rows. Give more evaluation rows",
    Code.ROWS_UNMOVED: "{what} is not {bound} {limit} in {beyond} of {rows} rows, of which {allowed} are allowed; "
    "the task metric does not change in the rest of these rows",
    Code.NOT_FINITE: "output '{output}' of the {side} is not finite (NaN or Inf) in {wrong} of {all} values, "
    "first{place}",
    Code.WRONG_DTYPE: "output '{output}' of the {side} is {dtype}, not {expected}",
    Code.WRONG_SHAPE: "output '{output}' of the {side} has the shape {shape}, not {expected}",
    Code.WRONG_AXES: "output '{output}' of the {side} has the shape {shape}: the role '{role}' takes {expected} axes. "
    "Give it another role",
    Code.OUTPUT_MISSING: "output '{output}' of the {side} is missing",
    Code.BAD_COUNTS: "output '{output}' of the {side} is not an integer in [{low:g}, {high:g}] in {wrong} of {all} "
    "values, first{place}",
    Code.BAD_RANKING: "output '{output}' of the {side} has a repeated index or one outside of {places} in {wrong} of "
    "{all} values, first{place}",
    Code.BASE_MISSING: "output '{output}' is derived from '{base}', which is not an output with the role '{role}'",
    Code.NO_ANSWER: "the artifact returned no output: {error_text}",
    Code.TASK_METRIC_NOT_FINITE: "the task metric is not finite",
    Code.REFERENCE_NOISE: "the reference's own noise of '{output}' is '{noise}'. Record the reference again",
    Code.REFERENCE_TOO_NOISY: "the reference of '{output}' differs from itself by {error}, and {multiple:g} times that "
    "is more than {allowed}: the reference is too noisy to use",
    Code.NOTHING_COMPARED: "nothing was compared",
    Code.REAL_INPUTS_NEEDED: "the limits of '{tolerance_name}' need real inputs, and the model has no evaluation set. "
    "Add one with `--data FOLDER` (`data=` in Python): pictures, or .npz files with an array for each input",
    Code.NO_LIMIT_APPLIES: "no limit of '{tolerance_name}' applies to output '{output}'",
    Code.RUNTIME_MISSING: "{text}",
    Code.HOST_LIMIT: "{text}",
    Code.RUNTIME_FAILED: "{text}",
    Code.EXPORTER_FAILURE: "{text}",
    Code.OVER_BUDGET: "{name} is {measured}, over the budget of {allowed}",
    Code.BUDGET_UNKNOWN: "{name} was not measured, so the budget of {allowed} is not met",
    Code.WITHIN_BUDGET: "{name} is {measured}, within the budget of {allowed}",
    Code.COUNTS_ROUNDED: "counts in '{output}' differ by rounding only (score error at most {error}, tolerance "
    "{tolerance})",
    Code.TIES_AT_K: "the top K of '{output}' differ only in places whose scores are equal within {error} (tolerance "
    "{tolerance})",
    Code.TIES_WITHIN_K: "the order of '{output}' differs only where scores are equal within {error} (tolerance "
    "{tolerance})",
    Code.LIMIT_WIDENED: "the limit on {metric} of '{output}' is {limit} instead of {table}: {multiple:g} times the "
    "reference's own noise",
    Code.NO_EVALUATION_SET: "the model has no evaluation set, so no real inputs were judged",
    Code.NO_TASK_METRIC: "no task metric was judged: the evaluation set has no metric or no truth",
    Code.NOISE_WITHOUT_FP64: "the reference's own noise was measured without float64, which the model does not support",
    Code.ASKED: "{text}",
    Code.SAMPLED: "slow here, so judged on {images} of {all_images} evaluation images and {shapes} of {all_shapes} "
    "input shapes. To judge on all, use `-O {target}.images=all`",
    Code.MADE_INPUTS: "{outcome} only on made inputs ({inputs}); your own {name} is {before:.4g} -> {after:.4g} on "
    "{rows} inputs. {option}",
    Code.SLOWER: "Warning: {ratio:.2f}x the speed of {baseline}",
    Code.SPEED_UNKNOWN: "too noisy to say how fast it is beside {baseline}",
    Code.VARIANT_REPLACED: "'{variant}' was rejected here and left out: {why}",
    Code.FRESH_INPUTS: "{rows:,} fresh inputs in {runs:,} runs ({seconds:.0f} s, seed {seed})",
    Code.TEXT: "{text}",
}
