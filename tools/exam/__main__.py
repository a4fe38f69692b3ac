"""The whole exam: `python -m tools.exam --out tools/exam/table.md`. An interrupted run goes on where it stopped."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from edgekit.storage.environment import package_digest
from edgekit.storage.files import digest_file, write_text
from tools.exam.case import Case
from tools.exam.models import MODELS
from tools.exam.sitting import ENTRY, ROOT, Room
from tools.exam.table import FLAGGED, MISSED, Outcome, outcome, total, written

CACHE = ROOT / "build" / "exam"


def main() -> int:
    """Run what was asked for; 1 where a fault was missed or a clean variant flagged."""
    parser = argparse.ArgumentParser(prog="python -m tools.exam", description=__doc__)
    parser.add_argument("--out", type=Path, help="where the table is written; none: it is printed")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of builds and of verdicts, which are kept")
    parser.add_argument("--only", choices=MODELS, action="append", help="one model; may be given more than once")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(ROOT))
    left_out: list[str] = []
    outcomes = list(examined(Room(asked.cache), asked.cache, asked.only or MODELS, left_out))
    text = written(outcomes, left_out)
    if asked.out is not None:
        write_text(asked.out, text)
        print(total(outcomes))
    else:
        print(text)
    return int(any(o.word in (MISSED, FLAGGED) for o in outcomes))


def examined(room: Room, cache: Path, models: tuple[str, ...] | list[str], left_out: list[str]) -> Iterator[Outcome]:
    """Judge all cases of some models; `left_out` gathers the targets that cannot be examined."""
    began, judge = time.monotonic(), package_digest("edgekit")
    for model in models:
        for target, status in room.built(model).items():
            if status != "verified":
                left_out.append(f"{target} of {model}, which is {status} as exported.")
                continue
            source = room.folder / "builds" / model / "reference" / "outputs.safetensors"
            basis = (judge, digest_file(source), digest_file(room.folder / "builds" / model / target / ENTRY))
            for number, case in enumerate(room.paper(model, target).cases()):
                found = remembered(room, cache, case, basis)
                spent = time.monotonic() - began
                print(f"{spent:6.0f} s {model} {target} {number}: {found.word}: {case.name}", file=sys.stderr)
                yield found


def remembered(room: Room, cache: Path, case: Case, basis: tuple[str, ...]) -> Outcome:
    """The verdict on a case: of an earlier run where neither the judge nor the reference nor the file has changed."""
    key = json.dumps([*basis, case.model, case.target, case.name, case.threads])
    name = hashlib.sha256(key.encode() + case.graph).hexdigest()
    path = cache / "verdicts" / f"{name}.json"
    if path.is_file():
        found = Outcome.of_record(json.loads(path.read_text()))
        return Outcome(**{**vars(found), "kind": case.kind, "effect": case.effect})
    path.parent.mkdir(parents=True, exist_ok=True)
    made = outcome(case, room.judged(case))
    write_text(path, json.dumps(made.record(), sort_keys=True) + "\n")
    return made


if __name__ == "__main__":
    sys.exit(main())
