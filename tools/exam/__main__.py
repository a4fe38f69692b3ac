"""The whole exam: `python -m tools.exam --out tools/exam/table.md`. An interrupted run goes on where it stopped."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from edgekit.storage.files import write_text
from tools.exam.examined import examined, prepare, side_by_side
from tools.exam.models import MODELS
from tools.exam.sitting import ROOT, Room
from tools.exam.table import FLAGGED, MISSED, total, written

CACHE = ROOT / "build" / "exam"


def main() -> int:
    """Run what was asked for; 1 where a fault was missed or a clean variant flagged."""
    parser = argparse.ArgumentParser(prog="python -m tools.exam", description=__doc__)
    parser.add_argument("--out", type=Path, help="where the table is written; none: it is printed")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of builds and of verdicts, which are kept")
    parser.add_argument("--only", choices=MODELS, action="append", help="one model; may be given more than once")
    parser.add_argument("--jobs", type=int, default=1, help="models, then artifacts, examined at once")
    asked = parser.parse_args()
    models = tuple(asked.only or MODELS)
    prepare()
    if asked.jobs > 1:
        outcomes, left_out = side_by_side(asked.cache, models, asked.jobs)
    else:
        left_out = []
        outcomes = list(examined(Room(asked.cache), asked.cache, models, left_out))
    text = written(outcomes, left_out)
    if asked.out is not None:
        write_text(asked.out, text)
        print(total(outcomes))
    else:
        print(text)
    return int(any(o.word in (MISSED, FLAGGED) for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
