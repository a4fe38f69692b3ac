"""The share of checking in a verify: `python -m tools.bench.hashing [BUILD]`.

Runs `edgekit verify` of a build in this process, and sums what passes through edgekit's door (every file hashed, every
record read and held against its hash of itself) and through the ONNX pre-check, in this process and in its workers. A
worker reads its artifact and the reference again, so that it checks them again. Both are processor time, so that other
work on the host does not count; set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgekit.artifact import store
from edgekit.storage import verified_io

LOG = "EDGEKIT_BENCH_DOOR"
DOOR = (
    (verified_io, "check_file"),
    (verified_io, "read_file"),
    (verified_io, "read_bytes"),
    (verified_io, "seal_of"),
    (store, "external_files"),
)


def main() -> None:
    """Verify, and print the share."""
    from edgekit.pipeline import run
    from edgekit.testing import QuietListener

    parser = argparse.ArgumentParser(description="The share of checking in a verify.")
    parser.add_argument("build", nargs="?", type=Path, default=Path("build/arr-coc-tiny"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        os.environ[LOG] = str(log)
        Path(folder, "sitecustomize.py").write_text("from tools.bench import hashing\nhashing.measure()\n")
        sys.path.insert(0, folder)  # workers get this process's path
        measure()
        before, began = _processor(), time.perf_counter()
        found = run.verify(asked.build, QuietListener())
        seconds = time.perf_counter() - began
        whole = _processor() - before
        rows = [line.split() for line in log.read_text().splitlines()]
    checked = sum(float(seconds) for _, seconds in rows)
    for outcome in found.outcomes:
        print(f"{outcome.target}: {outcome.status}")
    own = sum(float(seconds) for process, seconds in rows if int(process) == os.getpid())
    workers = len({process for process, _ in rows}) - 1
    print(f"verify {seconds:.0f} s, {whole:.1f} s of processor time")
    print(f"checking {checked:.2f} s of processor time ({own:.2f} s here, the rest in {workers} workers)")
    print(f"share {checked / whole:.2%}")


def _processor() -> float:
    """Seconds of processor time of this process and of its workers that ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def measure() -> None:
    """Write down the seconds that each call of the door takes, in this process."""
    for module, name in DOOR:
        timed = _timed(getattr(module, name))
        for holder in [m for m in sys.modules.values() if getattr(m, name, None) is getattr(module, name)]:
            setattr(holder, name, timed)


depth = 0  # a call inside another one is counted with it


def _timed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **more: Any) -> Any:
        global depth
        depth += 1
        began = time.process_time() if depth == 1 else 0.0
        try:
            return function(*arguments, **more)
        finally:
            depth -= 1
            if depth == 0:
                with Path(os.environ[LOG]).open("a") as log:
                    log.write(f"{os.getpid()} {time.process_time() - began}\n")

    return call


if __name__ == "__main__":
    main()
