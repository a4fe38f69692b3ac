"""A seeded sample of the exam: no fault passes that the table does not list, and no clean variant is flagged."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.tools.conftest import EXAMINED, Drawn
from tools.exam.case import PRECISIONS, SHARE, Case
from tools.exam.effect import Effect
from tools.exam.examined import examined, remembered, side_by_side
from tools.exam.models import MODELS
from tools.exam.sitting import ROOT, Room, Said
from tools.exam.table import CAUGHT, FLAGGED, HARMLESS, MISSED, PASSED, UNDECIDED, WITHIN, outcome, total, written

FAULTS, CLEAN = 2, 1
"""Cases of each graph that the sample takes."""
SAMPLE_SEED = 7
TABLE = ROOT / "tools" / "exam" / "table.md"


def sample(drawn: tuple[Drawn, ...]) -> list[Case]:
    draw, cases = np.random.Generator(np.random.PCG64(SAMPLE_SEED)), []
    for each in drawn:
        cases += [each.paper.fault_case(each.faults[i]) for i in draw.permutation(len(each.faults))[:FAULTS]]
        cases += [each.paper.clean_case(each.clean[i]) for i in draw.permutation(len(each.clean))[:CLEAN]]
    return cases


@pytest.mark.nightly
def test_a_sample_is_judged_rightly(room: Room, drawn: tuple[Drawn, ...]) -> None:
    known = TABLE.read_text().split("## Missed")[1].split("\n## ")[0]
    outcomes = [outcome(case, room.judged(case)) for case in sample(drawn)]
    assert len(outcomes) == (FAULTS + CLEAN) * len(EXAMINED) * len(PRECISIONS)
    assert [o for o in outcomes if o.word == FLAGGED] == []
    assert [o for o in outcomes if o.word == MISSED and f"| {o.model} {o.target}: {o.name} |" not in known] == []
    assert sum(o.word == CAUGHT for o in outcomes) >= len(outcomes) // 3


@pytest.mark.nightly
def test_there_are_enough_faults_and_clean_variants_of_every_class(drawn: tuple[Drawn, ...]) -> None:
    faults = [(each.paper.spec.name, each.paper.target, f.kind, f.name) for each in drawn for f in each.faults]
    clean = [(each.paper.spec.name, each.paper.target, c.name) for each in drawn for c in each.clean]
    assert len(faults) >= 20 * len(drawn)
    assert len(clean) >= 4 * len(drawn)
    assert {kind for *_, kind, _ in faults} == set(SHARE)
    assert {word: n for word, n in Counter(f[:2] + f[3:] for f in faults).items() if n > 1} == {}
    assert {word: n for word, n in Counter(clean).items() if n > 1} == {}


@pytest.mark.nightly
def test_the_same_graph_gives_the_same_files(drawn: tuple[Drawn, ...]) -> None:
    one = drawn[0]
    first, second = (
        [one.paper.fault_case(fault).graph for fault in itertools.islice(one.paper.drawn(), 0, None, 4)]
        for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == len(first)


@pytest.mark.nightly
def test_a_worker_of_its_own_gives_the_same_verdict(room: Room, drawn: tuple[Drawn, ...]) -> None:
    one = drawn[0]
    case = one.paper.fault_case(next(fault for fault in one.faults if fault.kind == "weights"))
    said = room.judged(case)
    assert (said.status, said.code) == ("rejected", 3)
    assert Room(room.folder, workers=True).judged(case) == said


@pytest.mark.nightly
def test_processes_side_by_side_come_to_the_same_outcomes(tmp_path: Path) -> None:
    left_out: list[str] = []
    outcomes, others = side_by_side(tmp_path, ("kelvin",), 2)
    assert outcomes == list(examined(Room(tmp_path), tmp_path, ("kelvin",), left_out))
    assert others == left_out
    assert {o.target for o in outcomes} >= {"onnx", "onnx-fp16"}


@pytest.mark.nightly
def test_an_attribute_that_changes_no_answer_has_no_effect(drawn: tuple[Drawn, ...]) -> None:
    paper = next(each.paper for each in drawn if (each.paper.spec.name, each.paper.target) == ("classifier", "onnx"))
    (fault,) = (f for f in paper.pool() if f.name.endswith("ArgMax last of ties"))
    case = paper.fault_case(fault)
    assert case.graph != paper.sound
    assert case.effect is not None
    assert case.effect.value == 0
    assert outcome(case, Said("verified", (), 0)).word == HARMLESS


@pytest.mark.nightly
def test_a_verdict_is_asked_for_once(room: Room, drawn: tuple[Drawn, ...], tmp_path: Path) -> None:
    case = drawn[-1].paper.clean_case(drawn[-1].clean[0])
    first = remembered(room, tmp_path, case, ("judge",))
    (kept,) = (tmp_path / "verdicts").iterdir()
    kept.write_text(kept.read_text().replace('"verified"', '"rejected"'))
    assert first.word == PASSED
    assert remembered(room, tmp_path, case, ("judge",)).word == FLAGGED
    assert remembered(room, tmp_path, case, ("another judge",)).word == PASSED


@pytest.mark.parametrize(
    ("value", "status", "word"),
    [
        (0.0, "rejected", HARMLESS),
        (0.0, "verified", HARMLESS),
        (0.001, "rejected", CAUGHT),
        (0.5, "rejected", CAUGHT),
        (0.01, "verified", WITHIN),
        (0.02, "verified", MISSED),
        (0.02, "not verified here", UNDECIDED),
    ],
)
def test_what_a_fault_counts_as(value: float, status: str, word: str) -> None:
    case = Case("classifier", "onnx", "weights", "some", b"", Effect("labels", value, 0.01))
    assert outcome(case, Said(status, (), 0)).word == word


@pytest.mark.parametrize(
    ("status", "word"), [("verified", PASSED), ("rejected", FLAGGED), ("not verified here", FLAGGED)]
)
def test_what_a_clean_variant_counts_as(status: str, word: str) -> None:
    assert outcome(Case("classifier", "onnx", "clean", "some", b""), Said(status, (), 0)).word == word


def test_the_table_counts_and_names_what_was_missed_and_flagged() -> None:
    effects = {
        "grave": (0.9, "verified"),
        "mild": (0.001, "verified"),
        "unlucky": (0.015, "verified"),
        "rare": (0.9, "not verified here"),
        "found": (0.9, "rejected"),
        "none": (0.0, "rejected"),
    }
    outcomes = [
        outcome(
            Case("classifier", "onnx", "weights", name, b"", Effect("labels", value, 0.01, 0.006)), Said(status, (), 0)
        )
        for name, (value, status) in effects.items()
    ]
    outcomes.append(outcome(Case("classifier", "onnx", "clean", "other", b""), Said("rejected", ("too far off",), 3)))
    said = (
        "6 faults: 1 caught, 1 within tolerance, 1 at the limit, 1 undecided, 1 missed,"
        " 1 harmless (1 of them rejected)."
    )
    text = written(outcomes, ["onnx of nobody, which is rejected as exported."])
    assert total(outcomes) == f"{said} 1 clean variants: 1 flagged."
    assert said in text
    assert "| classifier onnx: grave | weights | labels | 0.9 | 0.01 |" in text
    assert "- classifier onnx: other: rejected, too far off" in text
    assert "Not examined: onnx of nobody" in text
    assert "| classifier, onnx | 1 | 1 | 1 | 1 | 1 | 1 | 0 | 1 |" in text


def test_the_committed_table_is_of_a_whole_run_and_the_docs_say_its_totals() -> None:
    text = TABLE.read_text()
    assert "Not examined" not in text
    assert all(f"| {model}, {target} |" in text for model in MODELS for target in PRECISIONS)
    said = next(line for line in text.splitlines() if " faults: " in line)
    assert said in " ".join((ROOT / "docs" / "judge.md").read_text().split())
