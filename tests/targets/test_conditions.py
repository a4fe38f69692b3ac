"""The other conditions of `test_is_byte_identical` are other ones: workers run the copy, on another day."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import pytest

from edgekit.hosts import process
from tests.targets.conftest import DAYS


def test_workers_run_the_other_checkout(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import edgekit

    monkeypatch.syspath_prepend(str(checkout))
    found = process.call(where, {})
    assert found["edgekit"] == str(checkout / "edgekit" / "__init__.py") != edgekit.__file__


@pytest.mark.skipif(sys.platform != "linux", reason="shifts the clock by LD_PRELOAD: install Linux")
def test_workers_live_on_another_day(another_day: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if another_day is None:
        pytest.skip("no 'gcc' on PATH: apt-get install gcc")
    monkeypatch.setenv("LD_PRELOAD", str(another_day))
    shifted = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=DAYS)
    assert abs(float(str(process.call(where, {})["now"])) - shifted.timestamp()) < 3600


def where(progress: object) -> dict[str, object]:
    import time

    import edgekit

    return {"edgekit": edgekit.__file__, "now": time.time()}
