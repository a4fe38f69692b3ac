"""What became of every case, and the table of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from tools.exam.case import CLEAN, Case
from tools.exam.effect import Effect
from tools.exam.sitting import Said

CAUGHT, WITHIN, AT_LIMIT, MISSED, HARMLESS = "caught", "within tolerance", "at the limit", "missed", "harmless"
UNDECIDED = "undecided"
PASSED, FLAGGED = "passed", "flagged"
FAULT_COLUMNS = (CAUGHT, WITHIN, AT_LIMIT, UNDECIDED, MISSED, HARMLESS)
LISTED = 20
"""Faults within tolerance that are listed, largest effect first."""


@dataclass(frozen=True)
class Outcome:
    """One case and its verdict.

    Attributes:
        model: Of the case.
        target: Of the case.
        kind: Class of the fault, or CLEAN.
        name: Of the case.
        status: The verdict.
        reason: Its first sentence.
        effect: On the task; None of a clean variant.
    """

    model: str
    target: str
    kind: str
    name: str
    status: str
    reason: str
    effect: Effect | None

    @property
    def word(self) -> str:
        """What it counts as.

        A fault without any effect on the task is harmless, whatever the verdict. A clean variant must be verified.
        """
        if self.effect is None:
            return PASSED if self.status == "verified" else FLAGGED
        if self.effect.value == 0:
            return HARMLESS
        if self.status == "rejected":
            return CAUGHT
        if self.effect.times <= 1:
            return WITHIN
        if self.effect.value <= self.effect.limit + self.effect.chance:
            return AT_LIMIT
        return UNDECIDED if self.status == "not verified here" else MISSED

    def record(self) -> dict[str, object]:
        """What JSON can hold."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: dict[str, object]) -> Outcome:
        """From what `record` gave."""
        effect = record["effect"]
        return cls(**{**record, "effect": None if effect is None else Effect(**effect)})  # type: ignore[arg-type]


def outcome(case: Case, said: Said) -> Outcome:
    """A case and its verdict."""
    reason = said.reasons[0] if said.reasons else ""
    return Outcome(case.model, case.target, case.kind, case.name, said.status, reason, case.effect)


def written(outcomes: Sequence[Outcome], left_out: Sequence[str]) -> str:
    """The table in Markdown.

    Args:
        outcomes: All of them, in any order.
        left_out: Sentences about artifacts that could not be examined.
    """
    faults = [o for o in outcomes if o.kind != CLEAN]
    parts = [
        "# The judge's exam",
        "",
        "Made by `python -m tools.exam --out tools/exam/table.md`. A fault is **caught** where the"
        " artifact was rejected, **within tolerance** where it was not and its effect on the task is within the gate's"
        " limit for the role, **at the limit** where a share of wrong answers is over it by no more than two standard"
        " deviations of the share that the gate's own inputs show, **undecided** where it is further over and the"
        ' verdict is "not verified here", **missed** where it is verified, and **harmless** where nothing of the task'
        " changes, whatever the verdict. The effect is measured on 96 fresh"
        " inputs (960 where it is near its limit) against the unbroken artifact of the same precision.",
        "",
        total(outcomes),
        "",
        *(f"Not examined: {sentence}" for sentence in left_out),
        *([""] if left_out else []),
        *_counts("By model and target", outcomes, lambda o: f"{o.model}, {o.target}"),
        *_counts("By class of fault", faults, lambda o: o.kind),
        *_counts("By precision and class", faults, lambda o: f"{o.target}, {o.kind}"),
        *_listed("At the limit", (o for o in faults if o.word == AT_LIMIT), None),
        *_listed("Undecided", (o for o in faults if o.word == UNDECIDED), None),
        *_listed("Missed", (o for o in faults if o.word == MISSED), None),
        *_flagged(outcomes),
        *_listed(f"Within tolerance: the {LISTED} largest effects", (o for o in faults if o.word == WITHIN), LISTED),
    ]
    return "\n".join(parts) + "\n"


def total(outcomes: Sequence[Outcome]) -> str:
    """One sentence."""
    found = Counter(o.word for o in outcomes)
    faults = sum(found[word] for word in FAULT_COLUMNS)
    rejected = sum(o.word == HARMLESS and o.status == "rejected" for o in outcomes)
    return (
        f"{faults} faults: {found[CAUGHT]} caught, {found[WITHIN]} within tolerance,"
        f" {found[AT_LIMIT]} at the limit, {found[UNDECIDED]} undecided, {found[MISSED]} missed,"
        f" {found[HARMLESS]} harmless ({rejected} of them rejected)."
        f" {found[PASSED] + found[FLAGGED]} clean variants: {found[FLAGGED]} flagged."
    )


def _counts(title: str, outcomes: Sequence[Outcome], key: Callable[[Outcome], str]) -> list[str]:
    clean = any(o.kind == CLEAN for o in outcomes)
    columns = (*FAULT_COLUMNS, *((PASSED, FLAGGED) if clean else ()))
    heads = [word if word in FAULT_COLUMNS else f"clean {word}" for word in columns]
    lines = [f"## {title}", "", f"| | {' | '.join(heads)} |", "|---|" + "---:|" * len(columns)]
    for name in dict.fromkeys(key(o) for o in outcomes):
        found = Counter(o.word for o in outcomes if key(o) == name)
        lines.append(f"| {name} | {' | '.join(str(found[word]) for word in columns)} |")
    return [*lines, ""]


def _listed(title: str, outcomes: Iterable[Outcome], most: int | None) -> list[str]:
    found = sorted(outcomes, key=lambda o: -o.effect.times if o.effect else 0)[:most]
    if not found:
        return [f"## {title}", "", "None.", ""]
    lines = [f"## {title}", "", "| case | class | measure | effect | limit |", "|---|---|---|---:|---:|"]
    for o in found:
        if o.effect is not None:
            values = f"{o.effect.measure} | {o.effect.value:.2g} | {o.effect.limit:.2g}"
            lines.append(f"| {o.model} {o.target}: {o.name} | {o.kind} | {values} |")
    return [*lines, ""]


def _flagged(outcomes: Iterable[Outcome]) -> list[str]:
    found = [o for o in outcomes if o.word == FLAGGED]
    lines = [f"- {o.model} {o.target}: {o.name}: {o.status}, {o.reason}" for o in found]
    return ["## Clean variants flagged", "", *(lines or ["None."]), ""]
