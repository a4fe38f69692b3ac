"""Runner of an unpacked pack, `python -m edgekit.evaluate`: runs all inputs, and writes result.zip into its folder.

It needs Python 3.10, numpy and a runtime. Every artifact runs in a separate process, so that a crash counts against
that artifact only, and start-up time and memory are those of a fresh process.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import HostError, NotVerifiedHere, RuntimeMissingError, out_of_memory
from edgekit.evaluate.engine import InputBatch, Timing, evaluate, first_line, start_up
from edgekit.evaluate.rows import Array

PACK, RESULT, ARCHIVE = "pack.json", "result.json", "result.zip"
HOME = Path(__file__).resolve().parents[2]
# Command that starts Python for one artifact if that is not this Python: an emulator with its options.
COMMAND_VARIABLE = "EDGEKIT_RUNNER_PYTHON"
# Most seconds for one artifact in one place.
TIMEOUT = 3 * 3600


def main() -> None:
    """Parse the options, run everything, write the result."""
    parser = argparse.ArgumentParser(
        prog="python -m edgekit.evaluate", description="Run a pack's artifacts on its inputs."
    )
    parser.add_argument("--place", action="append", help="only this place; repeat for more")
    parser.add_argument("--target", action="append", help="only this artifact; repeat for more")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    pack = json.loads((HOME / PACK).read_text())
    places = _select_targets("place", options.place, list(pack["places"]))
    targets = _select_targets("artifact", options.target, list(pack["artifacts"]))
    if options.one:
        _write_run(pack, places[0], targets[0], options.one)
    else:
        _write_result(pack, [_run_apart(place, target) for place in places for target in targets])


def _select_targets(what: str, names: list[str] | None, possible: list[str]) -> list[str]:
    for name in names or ():
        if name not in possible:
            raise SystemExit(f"unknown {what} '{name}' in this pack. Possible values: {', '.join(possible)}")
    return names or possible


def _write_run(pack: dict[str, Any], place: str, target: str, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    try:
        record = _run(pack, place, target, out)
    except RuntimeMissingError as missing:
        record = {"missing": f"{missing}. Install it there with {pack['places'][place]['install']}"}
    except NotVerifiedHere as missing:
        record = {"missing": str(missing)}
    except (HostError, OSError, MemoryError) as missing:
        record = {"missing": first_line(missing)}
    except Exception as error:
        line = first_line(error)
        record = {"missing" if out_of_memory(line) else "error": line}
    (out / "run.json").write_text(json.dumps(record))


def _run(pack: dict[str, Any], place: str, target: str, out: Path) -> dict[str, Any]:
    """Run all inputs; write answers.npz, and return the record without the outputs."""
    where, artifact = pack["places"][place], pack["artifacts"][target]
    folder = HOME / "artifacts" / target
    for name, digest in artifact["files"].items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise SystemExit(f"'{target}/{name}' is damaged. Copy the pack again")

    def load() -> Any:
        module, _, opener = where["opener"].partition(":")
        return getattr(importlib.import_module(module), opener)(folder / artifact["entry"], where["settings"])

    questions = [_questions(batch) for batch in pack["batches"]]
    started = start_up(load, next(questions[0].runs()))
    timing = Timing(pack["seconds"]) if where["timed"] else None
    with closing(load()) as runtime:
        # The progress of one artifact is not shown.
        answers, record = evaluate(runtime, questions, pack["row_axes"], timing, lambda share, text: None)
        record["device"] += f", {runtime.hardware}"
    np.savez(out / "answers.npz", **answers)  # type: ignore[arg-type]  # numpy's stubs take no names from a dictionary
    return {**record, "start_up": started}


def _questions(batch: dict[str, Any]) -> InputBatch:
    def runs() -> Iterator[dict[str, Array]]:
        with np.load(HOME / "questions" / f"{batch['name']}.npz", allow_pickle=False) as stored:
            for run in range(batch["runs"]):
                yield {name: stored[f"{run}/{name}"] for name in batch["inputs"]}

    return InputBatch(batch["name"], runs, batch["rows_a_run"], batch["repeated"])


def _run_apart(place: str, target: str) -> tuple[str, str, Path, dict[str, Any]]:
    out = HOME / "answers" / place / target
    python = shlex.split(os.environ.get(COMMAND_VARIABLE, "")) or [sys.executable]
    command = [*python, "-m", "edgekit.evaluate", "--one", str(out), "--place", place, "--target", target]
    print(f"{target} in {place} ...", flush=True)
    (out / "run.json").unlink(missing_ok=True)
    try:
        ended = subprocess.run(command, cwd=HOME, timeout=TIMEOUT, check=False, stdin=subprocess.DEVNULL)
        # SIGKILL: Linux sends it when memory runs out.
        killed = ended.returncode == -9
        record = {"missing" if killed else "error": f"its process ended with code {ended.returncode}"}
    except subprocess.TimeoutExpired:
        record = {"missing": f"it took longer than {TIMEOUT} s"}
    if (out / "run.json").is_file():
        record = json.loads((out / "run.json").read_text())
    print("  " + str(record.get("missing") or record.get("error") or record["device"]), flush=True)
    return place, target, out / "answers.npz", record


def _write_result(pack: dict[str, Any], runs: list[tuple[str, str, Path, dict[str, Any]]]) -> None:
    """Write all records, and the outputs with their hashes."""
    # Written under another name and renamed, so that result.zip is always complete.
    records, temporary = [], HOME / f"{ARCHIVE}.part"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, target, path, run in runs:
            record = {"place": place, "target": target, **run}
            if "device" in run:
                record["answers"] = f"answers/{place}/{target}.npz"
                record["answers_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
                archive.write(path, record["answers"])
            records.append(record)
        whole: dict[str, Any] = {"schema_version": 1, "pack": pack, "runs": records}
        whole["sha256"] = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
        archive.writestr(RESULT, json.dumps(whole, indent=1, sort_keys=True))
    temporary.replace(HOME / ARCHIVE)
    print(f"{HOME / ARCHIVE}: copy it back and run `edgekit import {ARCHIVE}`")


if __name__ == "__main__":
    main()
