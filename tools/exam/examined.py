"""All cases of some models, one after the other or several processes side by side. Verdicts are kept."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from edgekit.storage.environment import package_digest
from edgekit.storage.files import digest_file, write_text
from tools.exam.case import PRECISIONS, Case
from tools.exam.sitting import ENTRY, ROOT, Room
from tools.exam.table import Outcome, outcome


def prepare() -> None:
    """Set up this process: cases are judged with one thread, and models are found by their names."""
    torch.set_num_threads(1)
    sys.path.insert(0, str(ROOT))


def side_by_side(cache: Path, models: Sequence[str], jobs: int) -> tuple[list[Outcome], list[str]]:
    """Judge all cases in several processes: first export each model, then judge artifacts.

    Returns:
        The outcomes, and the targets that cannot be examined.
    """
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), prepare, max_tasks_per_child=1) as pool:
        built = dict(zip(models, pool.map(_build, [cache] * len(models), models), strict=True))
        pairs = [(model, target) for model, targets in built.items() for target in targets]
        judged = list(pool.map(_judge, [cache] * len(pairs), *zip(*pairs, strict=True)))
    return [o for outcomes, _ in judged for o in outcomes], [each for _, left_out in judged for each in left_out]


def _build(cache: Path, model: str) -> tuple[str, ...]:
    return tuple(Room(cache).built(model))


def _judge(cache: Path, model: str, target: str) -> tuple[list[Outcome], list[str]]:
    """Judge an artifact in a copy of the build: a build belongs to one process at a time."""
    left_out: list[str] = []
    own = cache / "rooms" / f"{model}-{target}"
    shutil.copytree(cache / "builds" / model, own / "builds" / model, dirs_exist_ok=True)
    return list(examined(Room(own), cache, (model,), left_out, (target,))), left_out


def examined(
    room: Room, cache: Path, models: Sequence[str], left_out: list[str], targets: Collection[str] = tuple(PRECISIONS)
) -> Iterator[Outcome]:
    """Judge all cases of some models; `left_out` gathers the targets that cannot be examined."""
    began, judge = time.monotonic(), package_digest("edgekit")
    for model in models:
        for target, status in room.built(model).items():
            if target not in targets:
                continue
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
    found = Outcome.of_record(remember(path, lambda: outcome(case, room.judged(case)).record()))
    return Outcome(**{**vars(found), "kind": case.kind, "effect": case.effect})


def remember(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the record in a file, which is made and written if it is not there."""
    if not path.is_file():
        record = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(record, sort_keys=True) + "\n")
    kept: dict[str, Any] = json.loads(path.read_text())
    return kept
