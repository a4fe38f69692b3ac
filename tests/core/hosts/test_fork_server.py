"""Forked workers are what new processes would be: their environment, folder, limits and seeds are those of the call."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edgekit.errors import ExportError
from edgekit.hosts import fork_server, process
from tests.processes import running, soon

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks workers: install Linux")
HERE = str(Path(__file__).parent)
MODULES = ("numpy",)
Progress = Callable[[float, str], None]


@pytest.fixture(autouse=True)
def _server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server of this test's own."""
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setattr(fork_server, "_servers", [])
    yield
    for server in fork_server._servers:
        server.close()


def look(progress: Progress) -> dict[str, object]:
    import numpy as np

    umask = os.umask(0)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "origin": int(Path(f"/proc/{os.getppid()}/stat").read_text().split()[3]),  # who started its keeper
        "folder": str(Path.cwd()),
        "variable": os.environ.get("EDGEKIT_LOOK"),
        "other": os.environ.get("LOOK"),
        "umask": umask,
        "files": files,
        "seeds": [random.random(), float(np.random.rand())],
        "open": sorted(int(p.name) for p in Path("/proc/self/fd").iterdir()),
    }


def crash(progress: Progress) -> dict[str, object]:
    print("about to crash", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def hang(progress: Progress, mark: str) -> dict[str, object]:
    Path(mark).write_text(f"{os.getpid()} {os.getppid()}")
    time.sleep(60)
    return {}


def wait_for(progress: Progress, mark: str) -> dict[str, object]:
    Path(mark).with_suffix(".started").touch()
    return {"done": soon(Path(mark).exists)}


def asked(forked: bool = True) -> dict[str, object]:
    answer = process.call(look, {}, modules=MODULES)
    found = bool(fork_server._servers) and answer["origin"] != os.getpid()
    assert found == forked
    return answer


def test_a_worker_has_what_the_call_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_LOOK", "at me")
    found = asked()
    assert (found["folder"], found["variable"]) == (str(tmp_path), "at me")
    assert found["open"] == [0, 1, 2, 3, 4]  # 3 is its way to its parent, 4 the folder that it reads


def test_each_worker_draws_its_own_numbers() -> None:
    first, second = asked()["seeds"], asked()["seeds"]
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert not set(first) & set(second)


@pytest.mark.parametrize("changed", ["variable", "umask", "limit"])
def test_a_process_that_has_changed_gets_another_server(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = asked()
    first = fork_server._servers[-1]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    mask = os.umask(0)
    os.umask(mask)
    try:
        if changed == "variable":
            monkeypatch.setenv("LOOK", "other libraries")
        elif changed == "umask":
            os.umask(0o077)
        else:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        found = asked()
        assert fork_server._servers[-1] is not first
        second = fork_server._servers[-1]
        asked()
        assert fork_server._servers[-1] is second
    finally:
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {name for name in ("other", "umask", "files") if found[name] != before[name]} == {
        {"variable": "other", "umask": "umask", "limit": "files"}[changed]
    }


def test_a_variable_says_that_each_worker_is_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fork_server.VARIABLE, "0")
    asked(forked=False)
    assert fork_server._servers == []


def test_a_crash_is_named_and_the_next_worker_is_forked() -> None:
    with pytest.raises(ExportError, match=r"(?s)died \(SIGSEGV\).*about to crash"):
        process.call(crash, {}, modules=MODULES)
    asked()


def test_a_server_that_was_killed_is_replaced() -> None:
    asked()
    first = fork_server._servers[-1]
    first.process.kill()
    first.process.wait()
    asked()
    second = fork_server._servers[-1]
    assert second is not first


def test_a_server_that_dies_as_it_is_asked_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    asked()
    server = fork_server._servers[-1]
    os.kill(server.process.pid, signal.SIGSTOP)  # it takes the request, and answers nothing
    send = fork_server._send

    def sent(modules: Sequence[str], streams: list[int], memory: int) -> None:
        send(modules, streams, memory)
        threading.Timer(0.5, server.process.kill).start()

    monkeypatch.setattr(fork_server, "_send", sent)
    monkeypatch.setenv("EDGEKIT_LONG", "x" * 100_000)  # more than a pipe holds
    assert process.call(look, {}, modules=MODULES)["origin"] == os.getpid()


def test_a_server_ends_after_its_workers_where_another_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked()
    first, mark = fork_server._servers[-1], tmp_path / "go"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(process.call, wait_for, {"mark": str(mark)}, modules=MODULES)
        assert soon(lambda: mark.with_suffix(".started").exists())
        monkeypatch.setenv("LOOK", "other libraries")
        assert asked()["other"] == "other libraries"
        mark.touch()
        assert waiting.result() == {"done": True}
    assert soon(lambda: not running(first.process.pid))


def test_a_module_that_cannot_be_imported_is_left_to_the_worker() -> None:
    found = process.call(look, {}, modules=("numpy", "no_such_module"))
    assert found["origin"] != os.getpid()


def test_server_and_worker_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    code = (
        "import test_fork_server as t\n"
        f"print(t.process.call(t.look, {{}}, modules=t.MODULES)['origin'], t.fork_server._servers[-1].process.pid,"
        " flush=True)\n"
        f"t.process.call(t.hang, {{'mark': {str(mark)!r}}}, modules=t.MODULES)"
    )
    path = {"PYTHONPATH": os.pathsep.join([HERE, *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | path, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        _, server = parent.stdout.readline().split()
        assert soon(lambda: mark.exists() and len(mark.read_text().split()) == 2)
        parent.kill()
    started = [int(server), *map(int, mark.read_text().split())]
    assert soon(lambda: not any(running(pid) for pid in started))


def test_a_server_forked_off_a_command_serves_as_a_new_one(tmp_path: Path) -> None:
    """It has the command's modules, imports the others, and has nothing else of it: no file, signal or `__main__`."""
    (tmp_path / "held_open").touch()
    code = (
        "import json, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        f"held = open({str(tmp_path / 'held_open')!r})\n"
        "import test_fork_server as t\n"
        "assert 'wave' not in sys.modules\n"
        "t.fork_server.fork_here(('wave',))\n"
        "assert 'wave' in sys.modules\n"
        "server = t.fork_server._servers[-1]\n"
        "answers = [t.process.call(t.look_closer, {}, modules=('wave', 'aifc')) for _ in range(2)]\n"
        "assert t.fork_server._servers == [server]\n"
        "print(json.dumps([server.process.pid, answers]), flush=True)\n"
    )
    path = {"PYTHONPATH": os.pathsep.join([HERE, *sys.path])}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, env=os.environ | path, capture_output=True, text=True, check=True)
    server, answers = json.loads(done.stdout)
    for answer in answers:
        assert answer["origin"] == server
        assert answer["open"] == [0, 1, 2, 3, 4]
        assert answer["modules"] == ["aifc", "wave"]
        assert answer["main"] == "edgekit.hosts.fork_server"
        assert answer["terminates"]
    assert not running(server)


def look_closer(progress: Progress) -> dict[str, object]:
    modules = sorted({"wave", "aifc"} & sys.modules.keys())
    terminates = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    return look(progress) | {"modules": modules, "main": sys.modules["__main__"].__name__, "terminates": terminates}


def test_no_server_is_forked_off_a_process_with_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    try:
        fork_server.fork_here(())
        assert fork_server._servers == []
    finally:
        go.set()
        thread.join()
    monkeypatch.setitem(sys.modules, "torch", sys)
    fork_server.fork_here(())
    assert fork_server._servers == []
