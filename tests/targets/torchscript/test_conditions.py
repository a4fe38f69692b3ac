"""The other conditions of `test_is_byte_identical` are other ones: workers run the copy, on another day."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.hosts import process
from edgekit.pipeline.worker import EXPORT_MODULES
from tests.targets.conftest import DAYS


@pytest.mark.usefixtures("conditions")
def test_a_forked_worker_runs_the_other_checkout_on_another_day(checkout: Path, another_day: Path | None) -> None:
    found = process.call(where, {}, modules=EXPORT_MODULES)  # as the pipeline calls it
    assert found["modules"] == [str(checkout / "edgekit" / name) for name in ("__init__.py", "pipeline/worker.py")]
    assert (found["umask"], found["seed"]) == (0o077, hash_of("a"))
    if another_day is None:
        pytest.skip("no 'gcc' on PATH: apt-get install gcc")
    shifted = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=DAYS)
    assert abs(float(str(found["now"])) - shifted.timestamp()) < 3600


def hash_of(text: str) -> int:
    """Its hash in a process with the seed of those conditions."""
    code = f"print(hash({text!r}))"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def where(progress: object) -> dict[str, object]:
    import os
    import time

    import edgekit
    from edgekit.pipeline import worker

    return {"modules": [edgekit.__file__, worker.__file__], "now": time.time(), "umask": os.umask(0), "seed": hash("a")}
