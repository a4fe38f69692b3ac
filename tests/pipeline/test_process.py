import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.errors import CheckpointError, ExportError
from edgekit.pipeline import process

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


def crash(progress: Progress) -> dict[str, object]:
    print("about to crash", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def leave(progress: Progress) -> dict[str, object]:
    os._exit(0)


def hang(progress: Progress, mark: str = "") -> dict[str, object]:
    if mark:
        Path(mark).write_text(str(os.getpid()))
    time.sleep(60)
    return {}


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


def test_a_worker_that_hangs_is_stopped() -> None:
    with pytest.raises(ExportError, match="stopped after 1 s"):
        process.call(hang, {}, timeout=1)


def test_an_interruption_as_the_clock_starts_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    workers: list[int] = []
    start = threading.Timer.start

    def interrupted(self: threading.Timer) -> None:
        start(self)
        workers.append(self.function.__self__.pid)  # type: ignore[attr-defined]  # the worker's `kill`
        assert self.daemon
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Timer, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        process.call(hang, {}, timeout=600)
    assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())
    assert [_running(worker) for worker in workers] == [False]


def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = f"import test_process; test_process.process.call(test_process.hang, {{'mark': {str(mark)!r}}})"
    path = {"PYTHONPATH": os.pathsep.join([HERE, *sys.path])}
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ | path) as parent:
        assert _soon(mark.exists)
        worker = int(mark.read_text())
        parent.kill()
    assert _soon(lambda: not _running(worker))


def _soon(condition: Callable[[], bool]) -> bool:
    for _ in range(300):
        if condition():
            return True
        time.sleep(0.1)
    return False


def _running(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().split()[2] != "Z"
