"""`test_is_byte_identical` of every target makes its second artifact under other conditions than the first.

Another folder (the test's own doing), another checkout of edgekit at another path, another day, and another umask.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.hosts import fork_server

ROOT = Path(__file__).parents[2]
DAYS = -400  # back: a clock that runs ahead would make other processes' temporary files look forgotten
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *told) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, told);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) told->tv_sec += SHIFT;
    return code;
}
int gettimeofday(struct timeval *told, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    told->tv_sec = now.tv_sec, told->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
"""


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another copy of edgekit and its targets; the browser page is shared, since building it takes npm."""
    copy = tmp_path_factory.mktemp("another checkout")
    for name in ("edgekit", "targets/edgekit_targets"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("checkpoints", "__pycache__"))
    (copy / "web").symlink_to(ROOT / "web")
    return copy


@pytest.fixture(scope="session")
def another_day(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """A library that shifts the clock of a process that loads it; None where there is no compiler."""
    if shutil.which("gcc") is None:
        return None
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(CLOCK.replace("SHIFT", f"({DAYS} * 86400L)"))
    made = folder / "clock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", made, folder / "clock.c", "-ldl"], check=True)
    return made


@pytest.fixture(scope="session")
def servers() -> Iterator[list[Any]]:
    """The fork server that was started under those conditions: PyTorch is imported there once for all targets."""
    started: list[Any] = []
    yield started
    for server in started:
        server.close()


@pytest.fixture
def conditions(
    checkout: Path, another_day: Path | None, servers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """What the workers of `test_is_byte_identical` meet; the first artifact was made before."""
    monkeypatch.syspath_prepend(str(checkout))
    monkeypatch.syspath_prepend(str(checkout / "targets"))
    if another_day is not None:
        monkeypatch.setenv("LD_PRELOAD", str(another_day))
    monkeypatch.setenv("PYTHONHASHSEED", "7")  # as the test itself does: a server is of one environment
    monkeypatch.setattr(fork_server, "_servers", servers)
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def elsewhere(request: pytest.FixtureRequest) -> None:
    """Those conditions where they belong."""
    if request.node.name == "test_is_byte_identical":
        request.getfixturevalue("conditions")
