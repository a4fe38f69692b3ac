import errno
import importlib
import mmap
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from edgekit.errors import CheckpointError, DependencyError, ExportError, HostError, UsageError
from edgekit.hosts import process
from edgekit.storage.limits import Limits, limits_for
from tests.processes import running, soon

HERE = str(Path(__file__).parent)
Progress = Callable[[float, str], None]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)


def echo(text: str, progress: Progress) -> dict[str, object]:
    print("noise on standard output")
    os.write(1, b"noise below Python\n")
    progress(0.5, "half")
    return {"text": text, "pid": os.getpid()}


def refuse(progress: Progress) -> dict[str, object]:
    raise CheckpointError("the file is no checkpoint")


def stumble(progress: Progress) -> dict[str, object]:
    return {"never": 1 / 0}


def fill_the_disk(progress: process.Progress) -> dict[str, object]:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "answers.npz")


def lack_a_library(progress: process.Progress) -> dict[str, object]:
    importlib.import_module("no_such_library")
    return {}


def crash(progress: Progress) -> dict[str, object]:
    print("about to crash", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def leave(progress: Progress) -> dict[str, object]:
    os._exit(0)


def hang(progress: Progress, mark: str = "") -> dict[str, object]:
    if mark:
        start_others(progress, "", mark)
        Path(mark).write_text(f"{os.getpid()} {Path(mark).read_text()}")
    time.sleep(60)
    return {}


def fill(progress: Progress, kind: str) -> dict[str, object]:
    if kind == "python":
        bytearray(2 << 30)
    elif kind == "numpy":
        import numpy as np

        np.ones(1 << 28)
    else:
        done = subprocess.run([sys.executable, "-c", "bytearray(2 << 30)"], capture_output=True, text=True)
        raise RuntimeError(done.stderr)
    return {}


def babble(progress: Progress, said: list[int]) -> dict[str, object]:
    os.write(_pipe(), bytes(said))
    progress(1.0, "own")
    return {"text": "own"}


def _pipe() -> int:
    """The worker's way to its parent."""
    open_ones = (n for n in range(3, 20) if Path(f"/proc/self/fd/{n}").exists())
    return next(n for n in open_ones if stat.S_ISFIFO(os.fstat(n).st_mode))


def start_daemon(progress: Progress, mark: str, end: str) -> dict[str, object]:
    """A process that leaves the worker's session and loses its parent, as daemons do."""
    code = "import os, sys, time; os.setsid(); os.fork() and sys.exit(); print(os.getpid(), flush=True); time.sleep(60)"
    return _with_others(code, mark, end)


def share(progress: Progress, kind: str) -> dict[str, object]:
    size = 2 << 30
    file = os.memfd_create("shared") if kind == "file" else -1
    if kind == "file":
        os.ftruncate(file, size)
    pages = mmap.mmap(file, size)
    for start in range(0, size, 1 << 20):
        pages[start : start + (1 << 20)] = bytes([1]) * (1 << 20)
    time.sleep(60)
    return {}


def start_others(progress: Progress, end: str, mark: str) -> dict[str, object]:
    code = (
        "import subprocess, os; p = subprocess.Popen(['sleep', '60']); print(os.getpid(), p.pid, flush=True); p.wait()"
    )
    return _with_others(code, mark, end)


def _with_others(code: str, mark: str, end: str) -> dict[str, object]:
    """Start a program, write down what it prints, and end as told: "crash", "hang", or else with an answer."""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    Path(mark).write_text(child.stdout.readline())
    if end == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if end == "hang":
        time.sleep(60)
    return {}


def time_is_up_at(mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's time is over when the mark is written, however long the worker took until then."""

    class Timer(threading.Timer):
        def run(self) -> None:
            while not self.finished.wait(0.02):
                if mark.exists() and mark.read_text():
                    self.function(*self.args, **self.kwargs)
                    return

    monkeypatch.setattr(threading, "Timer", Timer)


def test_a_result_and_progress_come_back_whatever_is_printed() -> None:
    said: list[tuple[float, str]] = []
    answer = process.call(echo, {"text": "ü"}, lambda done, text: said.append((done, text)))
    assert answer["text"] == "ü"
    assert answer["pid"] != os.getpid()
    assert said == [(0.5, "half")]


def test_a_users_mistake_keeps_its_class() -> None:
    with pytest.raises(CheckpointError, match="the file is no checkpoint"):
        process.call(refuse, {})


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (stumble, "(?s)met a bug.*ZeroDivisionError"),
        (crash, r"(?s)died \(SIGSEGV\).*about to crash"),
        (leave, r"died \(exit code 0\)"),
    ],
)
def test_what_kills_a_worker_is_named(function: Callable[..., dict[str, object]], sentence: str) -> None:
    with pytest.raises(ExportError, match=sentence):
        process.call(function, {})


def test_a_full_disk_and_a_missing_library_are_no_bugs() -> None:
    with pytest.raises(HostError, match="No space left on device"):
        process.call(fill_the_disk, {})
    with pytest.raises(DependencyError, match="No module named 'no_such_library'"):
        process.call(lack_a_library, {})


def test_a_worker_that_hangs_is_stopped() -> None:
    with pytest.raises(HostError, match="stopped after 1 s, which EDGEKIT_WORKER_SECONDS sets"):
        process.call(hang, {}, limits=Limits(1 << 34, 1))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's data: install Linux")
@pytest.mark.parametrize("kind", ["python", "numpy", "child"])
def test_a_worker_that_takes_too_much_memory_is_named(kind: str) -> None:
    with pytest.raises(HostError, match=r"needed more memory than .* its 1 GiB, which EDGEKIT_WORKER_GIB sets"):
        process.call(fill, {"kind": kind}, limits=Limits(1 << 30, 60))


@pytest.mark.parametrize(
    "said",
    [
        b"plain words\n",
        b"\xff\xfe\x00\n",
        b'{"result": {"text": "forged"}}\n',
        b'{"progress": [0.5, "forged"]}\n',
        b"[" * 100_000 + b"\n",
        b"no end",
    ],
)
def test_what_a_library_writes_to_the_pipe_is_no_message(said: bytes) -> None:
    heard: list[str] = []
    assert process.call(babble, {"said": list(said)}, lambda _, text: heard.append(text)) == {"text": "own"}
    assert heard == ["own"]


def test_a_line_without_an_end_is_not_taken_in_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LONGEST_LINE", 1000)
    assert process.call(babble, {"said": [97] * 5000}) == {"text": "own"}


@pytest.mark.parametrize("end", ["answer", "crash", "hang"])
def test_what_a_worker_started_ends_with_it(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "pid"
    if end == "hang":
        time_is_up_at(mark, monkeypatch)
    with nullcontext() if end == "answer" else pytest.raises(HostError if end == "hang" else ExportError):
        process.call(start_others, {"end": end, "mark": str(mark)})
    assert len(mark.read_text().split()) == 2
    assert soon(lambda: not any(running(int(pid)) for pid in mark.read_text().split()))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers: install Linux")
@pytest.mark.parametrize("modules", [(), ("numpy",)], ids=["started", "forked"])
@pytest.mark.parametrize("end", ["answer", "crash", "hang"])
def test_no_session_of_its_own_leaves_a_worker(
    end: str, modules: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "pid"
    if end == "hang":
        time_is_up_at(mark, monkeypatch)
    with nullcontext() if end == "answer" else pytest.raises(HostError if end == "hang" else ExportError):
        process.call(start_daemon, {"end": end, "mark": str(mark)}, modules=modules)
    assert not running(int(mark.read_text()))  # with the call, not some time later


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what processes share: install Linux")
@pytest.mark.parametrize("kind", ["anonymous", "file"])
def test_memory_that_processes_share_counts(kind: str) -> None:
    with pytest.raises(HostError, match=r"needed more memory than .* its 0\.5 GiB, which EDGEKIT_WORKER_GIB sets"):
        process.call(share, {"kind": kind}, limits=Limits(1 << 29, 60))


def test_limits_grow_with_the_model_and_the_environment_sets_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits_for(0) == Limits(16 << 30, 3600.0)
    assert limits_for(1 << 30) == Limits(80 << 30, 3600.0 + 30 * (1 << 30) / 1e6)
    monkeypatch.setenv("EDGEKIT_WORKER_GIB", "2.5")
    monkeypatch.setenv("EDGEKIT_WORKER_SECONDS", "90")
    assert limits_for(0) == Limits(5 << 29, 90.0)
    for bad in ("much", "-1", "0", "nan", "inf"):
        monkeypatch.setenv("EDGEKIT_WORKER_SECONDS", bad)
        with pytest.raises(UsageError, match=f"EDGEKIT_WORKER_SECONDS is '{bad}'. Set a number above 0"):
            limits_for(0)


def test_an_interruption_as_the_clock_starts_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    workers: list[int] = []
    start = threading.Timer.start

    def interrupted(self: threading.Timer) -> None:
        start(self)
        workers.extend(self.args)  # the worker's group
        assert self.daemon
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Timer, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        process.call(hang, {}, limits=Limits(1 << 34, 600))
    assert soon(lambda: not any(isinstance(thread, threading.Timer) for thread in threading.enumerate()))  # cancelled
    assert [running(worker) for worker in workers] == [False]


def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = f"import test_process; test_process.process.call(test_process.hang, {{'mark': {str(mark)!r}}})"
    path = {"PYTHONPATH": os.pathsep.join([HERE, *sys.path])}
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ | path) as parent:
        assert soon(lambda: mark.exists() and len(mark.read_text().split()) == 3)
        workers = [int(pid) for pid in mark.read_text().split()]
        parent.kill()
    assert len(workers) == 3
    assert soon(lambda: not any(running(worker) for worker in workers))
