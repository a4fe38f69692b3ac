"""`python -m runner` in an unpacked pack: answers all that it asks, and writes result.zip beside this folder.

Every artifact runs in a process of its own, so that a crash is the artifact's, and time to open and memory are those of
a fresh process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from .answering import answer, first_line
from .runtimes import MissingError

PACK, RESULT, ARCHIVE = "pack.json", "result.json", "result.zip"
HOME = Path(__file__).resolve().parents[1]
COMMAND_VARIABLE = "EDGEKIT_RUNNER_PYTHON"
"""What starts Python for one artifact, where that is not this Python: an emulator with its options."""
TIMEOUT = 3 * 3600
"""Seconds for one artifact in one place."""


def main() -> None:
    """Read the options, run everything, write the result."""
    parser = argparse.ArgumentParser(prog="python -m runner", description="Answers a pack's questions.")
    parser.add_argument("--place", action="append", help="only this place; repeat for more")
    parser.add_argument("--target", action="append", help="only this artifact; repeat for more")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    pack = json.loads((HOME / PACK).read_text())
    places = _chosen("place", given.place, list(pack["places"]))
    targets = _chosen("artifact", given.target, list(pack["artifacts"]))
    if given.one:
        _answer_one(pack, places[0], targets[0], given.one)
    else:
        _write(pack, [_apart(place, target) for place in places for target in targets])


def _chosen(what: str, given: list[str] | None, possible: list[str]) -> list[str]:
    for name in given or ():
        if name not in possible:
            raise SystemExit(f"no {what} '{name}' in this pack: it has {', '.join(possible)}")
    return given or possible


def _answer_one(pack: dict[str, Any], place: str, target: str, out: Path) -> None:
    try:
        found = answer(pack, HOME, place, target, out)
    except MissingError as missing:
        found = {"missing": str(missing)}
    except Exception as error:
        found = {"error": first_line(error)}
    out.mkdir(parents=True, exist_ok=True)
    (out / "run.json").write_text(json.dumps(found))


def _apart(place: str, target: str) -> tuple[str, str, Path, dict[str, Any]]:
    out = HOME / "answers" / place / target
    python = shlex.split(os.environ.get(COMMAND_VARIABLE, "")) or [sys.executable]
    command = [*python, "-m", "runner", "--one", str(out), "--place", place, "--target", target]
    print(f"{target} in {place} ...", flush=True)
    (out / "run.json").unlink(missing_ok=True)
    try:
        ended = subprocess.run(command, cwd=HOME, timeout=TIMEOUT, check=False, stdin=subprocess.DEVNULL)
        died = f"its process ended with code {ended.returncode}"
    except subprocess.TimeoutExpired:
        died = f"it took longer than {TIMEOUT} s"
    found: dict[str, Any] = {"error": died}
    if (out / "run.json").is_file():
        found = json.loads((out / "run.json").read_text())
    print("  " + str(found.get("missing") or found.get("error") or found["device"]), flush=True)
    return place, target, out / "answers.npz", found


def _write(pack: dict[str, Any], runs: list[tuple[str, str, Path, dict[str, Any]]]) -> None:
    """What was found, and the answers with their hashes. Written beside, then renamed."""
    records, temporary = [], HOME / f"{ARCHIVE}.part"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, target, path, found in runs:
            record = {"place": place, "target": target, **found}
            if "device" in found:
                record["answers"] = f"answers/{place}/{target}.npz"
                record["answers_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
                archive.write(path, record["answers"])
            records.append(record)
        whole: dict[str, Any] = {"schema_version": 1, "pack": pack, "runs": records}
        whole["sha256"] = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
        archive.writestr(RESULT, json.dumps(whole, indent=1, sort_keys=True))
    temporary.replace(HOME / ARCHIVE)
    print(f"{HOME / ARCHIVE}: bring it back and say `edgekit import {ARCHIVE}`")


if __name__ == "__main__":
    main()
