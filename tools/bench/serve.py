"""What a server adds to its artifact, and how many requests it answers: `edgekit serve`, beside other servers.

    python -m tools.bench.serve build/arr-coc-tiny [--peer litserve=PYTHON ...] [--soak MINUTES]
    python -m tools.bench.serve build/arr-coc-tiny --target torch-cuda --options '--device cuda --trust-build' \
        --options '--device cuda --trust-build --batch 16'

One request is one picture of the default size as bytes of float32, by the Open Inference Protocol in binary; to a
server that does not take it the same bytes in another body (`peers.py`), and all outputs come back as bytes. Clients
are threads of one process, or of one for each four cores, each with one connection that it keeps. `--peer` names a
Python with that server, onnxruntime and numpy, and may be given more than once; so does `--options`, which are those of
`edgekit serve`.

Columns: clients; requests a second; p50 and p99 in milliseconds; processor time of the server's processes a request, in
milliseconds, beside that of the bare artifact in a loop; resident memory of the server.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

import edgekit
from edgekit.cli.console import print_table
from tools.bench.peers import PEERS, Peer

CLIENTS = (1, 4, 16)
MANY = (1, 4, 16, 64)
"""Clients where options are given: a batch that requests are joined to needs them."""
SECONDS = 5.0
PEER_PORT = 8791
HEADS = ("server", "clients", "requests/s", "p50 ms", "p99 ms", "processor ms", "MB")


@dataclass(frozen=True)
class Asked:
    """What is sent, and where."""

    port: int
    path: str
    body: bytes
    headers: dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--target", default="onnx")
    parser.add_argument("--options", action="append", default=[], help="of edgekit serve; repeat to compare")
    parser.add_argument("--peer", action="append", default=[], help=f"NAME=PYTHON, one of {', '.join(PEERS)}")
    parser.add_argument("--soak", type=float, default=0.0, help="minutes of requests whose memory and p99 are shown")
    arguments = parser.parse_args()
    draw = np.random.default_rng(0)
    images, queries = draw.random((1, 3, 224, 224), np.float32), draw.random((1, 768), np.float32)
    rows: list[tuple[str, ...]] = [
        ("the artifact alone", "", *_alone(arguments.build / arguments.target, images, queries), "")
    ]
    field = b'--edge\r\nContent-Disposition: form-data; name="data"; filename="a"\r\n\r\n'
    raw = b"".join((field, images.tobytes(), queries.tobytes(), b"\r\n--edge--\r\n"))
    print_table(HEADS, rows)
    for options in arguments.options or [""]:
        with _edgekit(arguments.build, arguments.target, options) as (process, port):
            asked = _binary(port, arguments.target, {"images": images, "queries": queries})
            name = f"edgekit serve {options}".strip()
            rows += [(name, str(n), *_measured(asked, n, process)) for n in (MANY if options else CLIENTS)]
            print_table(HEADS, rows)
            if arguments.soak:
                _soak(asked, arguments.soak, process)
    for name, _, python in (one.partition("=") for one in arguments.peer):
        peer = PEERS[name]
        with _peer(python, peer, arguments.build / "onnx" / "model.onnx") as (process, port):
            asked = {
                "form": Asked(port, peer.path, raw, {"Content-Type": "multipart/form-data; boundary=edge"}),
                "raw": Asked(port, peer.path, images.tobytes() + queries.tobytes(), {}),
                "protocol": replace(_binary(port, "onnx", {"images": images, "queries": queries}), path=peer.path),
            }[peer.body]
            rows += [(peer.name, str(n), *_measured(asked, n, process)) for n in CLIENTS]
    print_table(HEADS, rows)


def _alone(folder: Path, images: np.ndarray, queries: np.ndarray) -> tuple[str, str, str, str]:
    inputs = {"images": images, "queries": queries}
    place = "cuda" if folder.name == "torch-cuda" else ""
    with edgekit.load(folder, place=place, trust_build=bool(place)) as artifact:
        for _ in range(20):
            artifact.run(inputs)
        times, start, used = [], time.perf_counter(), time.process_time()
        while time.perf_counter() - start < SECONDS:
            before = time.perf_counter()
            artifact.run(inputs)
            times.append(time.perf_counter() - before)
        used = (time.process_time() - used) / len(times)
    return _row(times, time.perf_counter() - start, used)


def _row(times: list[float], seconds: float, used: float) -> tuple[str, str, str, str]:
    p50, p99 = np.percentile(times, (50, 99)) * 1e3
    return f"{len(times) / seconds:.1f}", f"{p50:.2f}", f"{p99:.2f}", f"{used * 1e3:.2f}"


def _measured(asked: Asked, clients: int, process: int) -> tuple[str, ...]:
    _load(asked, clients, 1.0)
    before, start = _processor(process), time.perf_counter()
    times = _load(asked, clients, SECONDS)
    seconds = time.perf_counter() - start
    return *_row(times, seconds, (_processor(process) - before) / len(times)), f"{_memory(process) / 1e6:.0f}"


def _load(asked: Asked, clients: int, seconds: float) -> list[float]:
    """Times of all requests, in seconds; a failure ends the measurement. Clients get a quarter of the cores."""
    processes = max(1, min(clients, (os.cpu_count() or 1) // 4))
    shares = [clients // processes + (number < clients % processes) for number in range(processes)]
    if processes == 1:
        return _threads(asked, clients, seconds)
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return [one for times in pool.starmap(_threads, [(asked, n, seconds) for n in shares], 1) for one in times]


def _threads(asked: Asked, clients: int, seconds: float) -> list[float]:
    times: list[list[float]] = [[] for _ in range(clients)]
    failed: list[str] = []

    def client(own: list[float]) -> None:
        connection = HTTPConnection("127.0.0.1", asked.port, timeout=60)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end and not failed:
            before = time.perf_counter()
            connection.request("POST", asked.path, asked.body, asked.headers)
            response = connection.getresponse()
            data = response.read()
            own.append(time.perf_counter() - before)
            if response.status != 200:
                failed.append(f"{response.status}: {data[:300]!r}")
        connection.close()

    threads = [threading.Thread(target=client, args=(own,)) for own in times]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError(f"a request of {clients} clients failed: {failed[0]}")  # a pool loses SystemExit, and waits
    return [one for own in times for one in own]


def _soak(asked: Asked, minutes: float, process: int) -> None:
    """Memory and p99 of twenty parts of the time, by four clients."""
    done, part = 0, max(minutes * 3, 1.0)
    for _ in range(20):
        times = _load(asked, 4, part)
        done += len(times)
        p99 = np.percentile(times, 99) * 1e3
        print(f"{done} requests: {_memory(process) / 1e6:.1f} MB, p99 {p99:.1f} ms", flush=True)


def _binary(port: int, target: str, inputs: dict[str, np.ndarray]) -> Asked:
    tensors = [
        {"name": n, "shape": [*a.shape], "datatype": "FP32", "parameters": {"binary_data_size": a.nbytes}}
        for n, a in inputs.items()
    ]
    head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    body = b"".join((head, *(array.tobytes() for array in inputs.values())))
    path = f"/v2/models/arr-coc-tiny/versions/{target}/infer"
    return Asked(port, path, body, {"Inference-Header-Content-Length": str(len(head))})


@contextmanager
def _edgekit(build: Path, target: str, options: str) -> Iterator[tuple[int, int]]:
    command = [sys.executable, "-m", "edgekit", "serve", str(build), "-t", target, "--port", "0", *options.split()]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        found = next((found for line in process.stdout if (found := re.search(r":(\d+)  ", line))), None)
        if found is None:
            log.seek(0)
            raise SystemExit(f"the server did not start: {log.read()[-2000:]}")
        yield from _until_ready(process, int(found[1]), "/health/ready")


@contextmanager
def _peer(python: str, peer: Peer, model: Path) -> Iterator[tuple[int, int]]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "served.py"
        script.write_text(peer.program)
        command = [python, str(script), str(model.resolve()), str(PEER_PORT)]
        process = subprocess.Popen(
            command, cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield from _until_ready(process, PEER_PORT, peer.ready)
        finally:  # its workers too, which would keep the port
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _until_ready(process: subprocess.Popen[Any], port: int, path: str) -> Iterator[tuple[int, int]]:
    try:
        for _ in range(300):
            time.sleep(0.2)
            try:
                connection = HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", path)
                if connection.getresponse().status == 200:
                    break
            except OSError:
                continue
        yield process.pid, port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [pid, *(one for child in children.read_text().split() for one in _family(int(child)))]


def _processor(pid: int) -> float:
    """Seconds of processor time of a process and its children."""
    fields = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in _family(pid)]
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> int:
    """Resident bytes of the process of a family that has most."""
    pages = [int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in _family(pid)]
    return max(pages) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
