"""The server as clients meet it: over HTTP in a process of its own where that matters, else in this process."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import edgekit
from edgekit.artifact.run_record import PartRecord, PartsRecord, write_parts
from edgekit.pipeline.outcome import Build
from edgekit.reference.vocabulary import read_vocabulary
from edgekit_provenance.signature import sign, signer_of
from edgekit_serve import process as supervision
from edgekit_serve.application import Limits
from tests.command import exit_code
from tests.keys import NO_LIBRARY, write_keys
from tests.manifests import resealed
from tests.plugins.apps import toy
from tests.plugins.serve.conftest import SECONDS, LocalServing, ProcessServing, Serving
from tests.processes import running, soon

Start = Callable[..., ProcessServing]
StartHere = Callable[..., LocalServing]
INFER = "/v2/models/toy/infer"
SLOW = bool(os.environ.get("EDGEKIT_SLOW"))
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc: install Linux")
SHAPES = {"images": (1, 3, 16, 16), "queries": (1, 24)}


def picture(seed: int = 0, size: tuple[int, int] = (16, 16), kind: str = "PNG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def huge(width: int, height: int) -> bytes:
    """A PNG whose header names a size that its data do not fill."""
    data = bytearray(picture())
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


def inputs(seed: int = 0, batch: int = 1) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {name: draw.random((batch, *shape[1:]), np.float32) for name, shape in SHAPES.items()}


def question(arrays: dict[str, np.ndarray], binary: bool) -> tuple[bytes, dict[str, str]]:
    listed, parts = [], []
    for name, array in arrays.items():
        tensor = {"name": name, "shape": [*array.shape], "datatype": "FP32"}
        data = array.tobytes()
        listed.append(
            tensor | ({"parameters": {"binary_data_size": len(data)}} if binary else {"data": array.tolist()})
        )
        parts.append(data)
    head = json.dumps({"id": "7", "inputs": listed, "parameters": {"binary_data_output": binary}}).encode()
    if not binary:
        return head, {}
    return b"".join((head, *parts)), {"Inference_Header_Content_Length": str(len(head))}


def test_a_picture_and_words_get_the_patches_that_the_artifact_finds(exported: Path, shared: Serving) -> None:
    sent = picture(3, (40, 20))
    status, record, reply = shared.form(image=sent, query=b"Red circle")
    assert status == 200
    words = read_vocabulary(exported / "model")
    assert words is not None
    pixels = np.asarray(Image.open(io.BytesIO(sent)).convert("RGB"))
    with edgekit.load(exported / "onnx") as artifact:
        right = artifact.run({"images": pixels, "queries": words.encode("red CIRCLE")[None]})
    assert np.array_equal(np.float32(record["outputs"]["relevance"]["data"]), right["relevance"][0])
    best = record["patches"][0]
    assert best["score"] == pytest.approx(right["relevance"].max())
    row, column = divmod(int(right["relevance"].argmax()), 4)
    assert best["box"] == [10 * column, 5 * row, 10 * column + 10, 5 * row + 5]
    assert reply.headers["Edgekit-Verdict"] == "verified"
    assert (record["model"], record["target"]) == ("toy", "onnx")
    status, record, _ = shared.form(image=sent, query=b"rad circle")
    assert (status, record) == (
        400,
        {"error": "the model does not know 'rad' in the query 'rad circle': did you mean 'red'?"},
    )


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_the_protocol_gives_what_the_artifact_gives(exported: Path, process: ProcessServing, binary: bool) -> None:
    from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

    client = InferenceServerClient(f"127.0.0.1:{process.port}")
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("toy", "onnx")
    shapes = {one["name"]: one["shape"] for one in client.get_model_metadata("toy")["inputs"]}
    assert shapes == {"images": [-1, 3, 16, 16], "queries": [-1, 24]}
    arrays = inputs(5, 2)
    with edgekit.load(exported / "onnx") as artifact:
        right = artifact.run(arrays)
    asked = []
    for name, array in arrays.items():
        asked.append(InferInput(name, array.shape, "FP32"))
        asked[-1].set_data_from_numpy(array, binary_data=binary)
    outputs = [InferRequestedOutput(name, binary_data=binary) for name in right]
    answer = client.infer("toy", asked, outputs=outputs)
    for name, values in right.items():
        assert np.array_equal(answer.as_numpy(name), values)
        assert answer.as_numpy(name).dtype == values.dtype
    client.close()


def test_statistics_and_versions_are_those_that_tritons_client_expects(process: ProcessServing) -> None:
    from tritonclient.http import InferenceServerClient
    from tritonclient.utils import InferenceServerException

    client = InferenceServerClient(f"127.0.0.1:{process.port}")
    (before,) = client.get_inference_statistics("toy", "onnx")["model_stats"]
    body, headers = question(inputs(1, 2), True)
    assert process.ask("POST", INFER, body, **headers)[0].status == 200
    assert process.ask("POST", INFER, b"{}")[0].status == 400
    for statistics in (client.get_inference_statistics(), client.get_inference_statistics("toy")):
        (after,) = statistics["model_stats"]
        assert (after["name"], after["version"]) == ("toy", "onnx")
        assert after["inference_count"] == before["inference_count"] + 2
        assert after["execution_count"] == before["execution_count"] + 1
        assert time.time() - after["last_inference"] / 1e3 < SECONDS
        for name, count in {"success": 1, "compute_infer": 1, "fail": 1}.items():
            assert after["inference_stats"][name]["count"] == before["inference_stats"][name]["count"] + count
            assert after["inference_stats"][name]["ns"] > before["inference_stats"][name]["ns"]
    assert client.get_model_metadata("toy", "onnx")["versions"] == ["onnx"]
    assert client.get_model_repository_index() == [{"name": "toy", "version": "onnx", "state": "READY"}]
    assert "statistics" in client.get_server_metadata()["extensions"]
    for name, version in (("other", ""), ("toy", "other")):
        with pytest.raises(InferenceServerException, match=r"no model|has no target"):
            client.get_inference_statistics(name, version)
    client.close()


KSERVE = """
import asyncio, sys
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferOutput, InferRequest, RESTConfig

async def main(url, folder):
    arrays = dict(np.load(folder + "/inputs.npz"))
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await client.is_server_ready(url)
    for binary in (False, True):
        asked = []
        for name, array in arrays.items():
            asked.append(InferInput(name, list(array.shape), "FP32"))
            asked[-1].set_data_from_numpy(array, binary_data=binary)
        request = InferRequest("toy", asked, parameters={"binary_data_output": binary})
        answer = await client.infer(url, request, model_name="toy")
        np.savez(f"{folder}/{binary}.npz", **{one.name: one.as_numpy() for one in answer.outputs})

asyncio.run(main(*sys.argv[1:]))
"""


def test_kserves_client_gets_what_the_artifact_gives(exported: Path, process: ProcessServing, tmp_path: Path) -> None:
    python = os.environ.get("EDGEKIT_KSERVE")
    if python is None:
        pytest.skip("needs kserve: pip install kserve in an environment of its own; EDGEKIT_KSERVE names its Python")
    arrays = inputs(5, 2)
    np.savez(tmp_path / "inputs.npz", **arrays)  # type: ignore[arg-type]
    url = f"http://127.0.0.1:{process.port}"
    subprocess.run([python, "-c", KSERVE, url, str(tmp_path)], check=True, timeout=120)
    with edgekit.load(exported / "onnx") as artifact:
        right = artifact.run(arrays)
    for binary in (False, True):
        with np.load(tmp_path / f"{binary}.npz") as answers:
            for name, values in right.items():
                assert np.array_equal(answers[name].reshape(values.shape), values)


def test_what_is_refused_is_a_sentence_and_is_counted(exported: Path, serve_here: StartHere) -> None:
    server = serve_here(exported, limits=Limits(body=1 << 20, pixels=1_000_000))
    before = server.refused("large")
    large = b"x" * (2 << 20)
    assert server.ask("POST", INFER, large)[0].status == 413
    assert server.form(image=huge(1200, 900), query=b"red")[:2] == (
        413,
        {"error": "the picture has 1200 x 900 pixels. The limit is 1000000"},
    )
    assert server.form(image=huge(14_000, 14_000), query=b"red")[:2] == (
        413,
        {"error": "the field 'image' is a picture of too many pixels. The limit is 1000000"},
    )
    unknown = (
        "/predict?target=other",
        f"{INFER}?target=other",
        "/v2/models/other/infer",
        "/v2/models/toy/versions/other/infer",
    )
    for path in (*unknown, "/nothing"):
        response, data = server.ask("POST", path, b"{}")
        assert response.status == 404
        assert json.loads(data)["error"]
    assert server.form(image=picture())[1] == {"error": "the field 'query' is missing. Send words"}
    assert "unknown field 'more'" in server.form(image=picture(), query=b"red", more=b"1")[1]["error"]
    assert "is not a picture" in server.form(image=b"\x89PNG nothing", query=b"red")[1]["error"]
    body, _ = question(
        {"images": np.zeros((1, 3, 16, 20), np.float32), "queries": np.zeros((1, 24), np.float32)}, False
    )
    response, data = server.ask("POST", INFER, body)
    assert response.status == 400
    assert "input 'images' is [1, 3, 16, 20]" in json.loads(data)["error"]
    for length in ("²", "-1", "9" * 5000):
        assert server.ask("POST", INFER, body, Inference_Header_Content_Length=length)[0].status == 400
    assert not server.events("fault")
    assert server.refused("large") == before + 3
    assert server.form(image=picture(), query=b"red")[0] == 200


def test_a_slow_client_and_a_large_body_are_refused(process: ProcessServing) -> None:
    slow_before, large_before = process.refused("slow"), process.refused("large")
    assert process.ask("POST", INFER, b"x" * (2 << 20))[0].status == 413
    begun = {
        f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode(): b"408",
        b"": b"headers did not arrive",
        b"GET / HTTP/1.1\r\nHo": b"headers did not arrive",
    }
    with ExitStack() as stack:  # all at once: each takes the server's five seconds
        connections = []
        for sent in begun:
            connection = socket.create_connection(("127.0.0.1", process.port), timeout=SECONDS)
            connections.append(stack.enter_context(connection))
            connection.sendall(sent)
        for slow, said in zip(connections, begun.values(), strict=True):
            told = b""
            while said not in told:
                told += (part := slow.recv(1000))
                assert part, told
    assert (process.refused("slow"), process.refused("large")) == (slow_before + 3, large_before + 1)
    assert process.form(image=picture(), query=b"red")[0] == 200


HEAD = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("begin", "again", "said"),
    [
        (HEAD, b"X: a\r\n", b"431 Request Header Fields Too Large"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: a\r\n", b"431 Request Header Fields Too Large"),
        (b"GET /" + b"a" * 65536, b"a" * 100, b"431 Request Header Fields Too Large"),
        (b"", HEAD + b"\r\n", b"more than 16 requests wait"),
    ],
    ids=["headers", "trailers", "address", "requests"],
)
def test_what_is_sent_without_end_is_refused(begin: bytes, again: bytes, said: bytes, process: ProcessServing) -> None:
    """A connection that sends more than it may is closed, before the server keeps megabytes of it."""
    with socket.create_connection(("127.0.0.1", process.port), timeout=SECONDS) as connection:
        sent, answer = 0, b""
        with suppress(ConnectionError):
            connection.sendall(begin)
            while sent < 64 << 20:
                connection.sendall(again * 5000)
                sent += 5000 * len(again)
        with suppress(ConnectionError):
            while part := connection.recv(65536):
                answer += part
    assert sent < 64 << 20
    assert said in answer or not answer, answer[-300:]  # an answer is lost where the kernel resets the connection
    assert process.ask("GET", "/health/live")[0].status == 200


def test_hostile_bodies_are_refused_and_nothing_falls(exported: Path, shared: Serving) -> None:
    draw = random.Random(7)
    codes = set()
    for number in range(2000 if SLOW else 200):
        binary = bool(number % 2)
        body, headers = question(inputs(number), binary)
        data = bytearray(body)
        for _ in range(draw.choice((1, 3, 30))):
            at = draw.randrange(max(len(data), 1))
            match draw.randrange(4):
                case 0:
                    data[at : at + 1] = bytes([draw.randrange(256)])
                case 1:
                    del data[at:]
                    data += b"}"
                case 2:
                    data[at:at] = draw.choice((b"[" * 5000, b"-1", b"1e999", b"NaN", b'"', b"null", b"99999999999999"))
                case 3:
                    del data[at : at + draw.randrange(40)]
        response, answer = shared.ask("POST", INFER, bytes(data), **headers)
        codes.add(response.status)
        assert response.status in (200, 400), answer
        assert response.status == 200 or json.loads(answer)["error"]
    assert codes == {200, 400}
    assert not shared.events("fault")
    assert not shared.events("crash")
    assert shared.form(image=picture(), query=b"red")[0] == 200


@pytest.mark.nightly
def test_a_crash_starts_it_again_new_requests_wait_and_it_ends_when_told(exported: Path, serve: Start) -> None:
    server = serve(exported)
    (child,) = server.children()
    os.kill(child, signal.SIGSEGV)
    status, _, _ = server.form(image=picture(), query=b"red")  # the socket outlived the process
    assert status == 200
    assert soon(lambda: [event["reason"] for event in server.events("crash")] == ["SIGSEGV"])
    assert server.children() != [child]
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(server.form, image=picture(n), query=b"red") for n in range(4)]
        statuses = [one.result()[0] for one in asked]
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(SECONDS) == 0
    assert statuses == [200] * 4


def test_a_newer_build_takes_over_without_a_lost_request(build: Path, serve_here: StartHere) -> None:
    server = serve_here(build, reload=0.2)
    body, headers = question(inputs(1), True)
    asked = [server.ask("POST", INFER, body, **headers)]
    made = threading.Thread(target=_export_another, args=(build.parent,))
    made.start()
    ends = time.monotonic() + 4 * SECONDS
    while not server.events("reload") and time.monotonic() < ends:  # from before it is made until after it is taken
        asked.append(server.ask("POST", INFER, body, **headers))
    made.join()
    asked.append(server.ask("POST", INFER, body, **headers))
    reloads = [(event["outcome"], event.get("error")) for event in server.events("reload")]
    assert reloads == [("done", None)]
    assert {response.status for response, _ in asked} == {200}
    (_, before), (_, after) = asked[0], asked[-1]
    assert before != after
    assert {data for _, data in asked} == {before, after}


def _export_another(output: Path) -> None:
    edgekit.export(lambda: toy.spec(2.0), targets=["onnx"], output=output, progress="none").raise_for_verdict()


def _has_reloaded(server: ProcessServing, times: int) -> bool:
    return len(server.events("reload")) >= times


@pytest.mark.skipif(not SLOW, reason="takes ten minutes: set EDGEKIT_SLOW=1")
@pytest.mark.timeout(3600)
def test_a_hundred_reloads_under_load_lose_no_request(build: Path, serve: Start, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    edgekit.export(lambda: toy.spec(2.0), targets=["onnx"], output=changed, progress="none").raise_for_verdict()
    others = [build, changed / "toy"]
    place = tmp_path / "served"
    place.symlink_to(others[0])
    server = serve(place, "--reload", "0.2")
    body, headers = question(inputs(1), True)
    codes: list[list[int]] = [[] for _ in range(4)]
    ending = threading.Event()

    def client(own: list[int]) -> None:
        while not ending.is_set():
            own.append(server.ask("POST", INFER, body, **headers)[0].status)

    clients = [threading.Thread(target=client, args=(own,)) for own in codes]
    for one in clients:
        one.start()
    try:
        for number in range(1, 101):
            link = tmp_path / "next"
            link.symlink_to(others[number % 2])
            link.replace(place)
            assert soon(partial(_has_reloaded, server, number))
    finally:
        ending.set()
        for one in clients:
            one.join()
    assert {event["outcome"] for event in server.events("reload")} == {"done"}
    assert {code for own in codes for code in own} == {200}
    print(f"{sum(map(len, codes))} requests, 100 reloads")


def test_a_newer_build_that_is_not_verified_is_refused_and_the_older_one_goes_on(
    build: Path, serve_here: StartHere
) -> None:
    server = serve_here(build)
    toy.judge(build / "onnx", "rejected", "max abs 0.3")
    server.renew()
    assert server.events("reload")[0]["outcome"] == "refused"
    assert "is rejected in 'cpu'" in server.events("reload")[0]["error"]
    assert server.form(image=picture(), query=b"red")[0] == 200


def test_what_is_not_verified_is_served_on_request_only_and_says_so(
    build: Path, serve_here: StartHere, answering: None, capfd: pytest.CaptureFixture[str]
) -> None:
    toy.judge(build / "onnx", "rejected", "max abs 0.3")
    assert exit_code("serve", build, "--port", "0", "-t", "onnx", "--trust-build") == 2
    assert "Only verified artifacts are served" in capfd.readouterr().err
    server = serve_here(build, ("onnx",), unverified=True)
    reply = server.form(image=picture(), query=b"red")[2]
    assert reply.headers["Edgekit-Verdict"] == "rejected; allowed by --allow-unverified"


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the command be the process that answers, which a supervisor starts otherwise."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr("edgekit_serve.process.inherited_socket", lambda: (listener, lambda: None))
        yield


@pytest.fixture(scope="module")
def signed(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A signed build, and its public key."""
    folder = tmp_path_factory.mktemp("signed")
    private, public = write_keys(folder, "release")
    build = Path(shutil.copytree(exported, folder / "toy"))
    sign(Build((), build, "CPU"), signer_of(private))
    return build, public


def flip_last_bit(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))


@NO_LIBRARY
@pytest.mark.parametrize("file", ["onnx/model.onnx", "onnx/manifest.json", "reference/outputs.safetensors"])
@pytest.mark.parametrize("change", [flip_last_bit, Path.unlink, None], ids=["changed", "missing", "extra"])
def test_with_a_key_nothing_is_opened_unless_every_file_is_the_signed_one(
    signed: tuple[Path, Path],
    tmp_path: Path,
    answering: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    file: str,
    change: Callable[[Path], None] | None,
) -> None:
    opened: list[object] = []
    monkeypatch.setattr("edgekit_serve.models.load", lambda *arguments, **options: opened.append(arguments))
    build = Path(shutil.copytree(signed[0], tmp_path / "toy"))
    if change is None:
        (build / file).with_name("conftest.py").write_text("")
    else:
        change(build / file)
    assert exit_code("serve", build, "--port", "0", "--key", signed[1], "--trust-build") == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert opened == []


@NO_LIBRARY
def test_with_a_key_the_parts_of_a_model_are_the_signed_ones(
    exported: Path, tmp_path: Path, answering: None, capfd: pytest.CaptureFixture[str]
) -> None:
    private, public = write_keys(tmp_path, "release")
    whole, part = tmp_path / "whole", PartRecord(folder="toy", calls=1)
    shutil.copytree(exported, whole / "toy")
    record = PartsRecord(name="whole", driver="here:Driver", inputs=1, parts={"first": part}, targets={})
    write_parts(whole, record)
    for folder in (whole / "toy", whole):
        sign(Build((), folder, "CPU"), signer_of(private))
    write_parts(whole, record.model_copy(update={"parts": {"first": part, "second": part}}))
    assert exit_code("serve", whole, "--port", "0", "--key", public, "--trust-build") == 2
    assert "parts.json" in capfd.readouterr().err


@NO_LIBRARY
def test_a_signed_build_is_served_to_who_has_its_key(signed: tuple[Path, Path], serve: Start) -> None:
    assert serve(signed[0], "--key", signed[1]).form(image=picture(), query=b"red")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere",), "nowhere"),
        (("--device", "tpu"), "unknown device 'tpu'. Use cpu or cuda"),
        (("--timeout", "inf"), "86400"),
        (("--max-body", "99999999999999999999"), "4096"),
        (("--host", "nowhere.invalid"), "cannot listen on nowhere.invalid:0"),
    ],
)
def test_a_mistake_ends_the_command_with_a_sentence(
    arguments: tuple[str, ...], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("serve", *arguments, "--port", "0", "--trust-build") == 2
    assert sentence in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("{build}", "-t", "web"), "web"),
        (("{build}", "--device", "cuda"), "no verified artifact that runs in this process on cuda"),
        (("{build}", "{build}"), "two builds hold a 'onnx' of 'toy'"),
    ],
)
def test_what_cannot_be_served_ends_the_process_that_answers_with_a_sentence(
    exported: Path, answering: None, arguments: tuple[str, ...], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    filled = [word.format(build=exported) for word in arguments]
    assert exit_code("serve", *filled, "--port", "0", "--trust-build") == 2
    assert sentence in capfd.readouterr().err


def test_a_damaged_file_is_not_served(build: Path, answering: None, capfd: pytest.CaptureFixture[str]) -> None:
    file = build / "onnx" / "model.onnx"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert exit_code("serve", build, "--port", "0", "--trust-build") == 2
    assert "model.onnx" in capfd.readouterr().err


def test_an_artifact_that_answers_otherwise_on_this_host_is_not_served(
    build: Path, tmp_path: Path, answering: None, capfd: pytest.CaptureFixture[str]
) -> None:
    _export_another(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "toy" / "onnx" / "model.onnx", build / "onnx" / "model.onnx")
    resealed(build / "onnx")
    assert exit_code("serve", build, "--port", "0") == 2
    assert "returns different outputs on this host" in capfd.readouterr().err


@LINUX
def test_the_process_that_answers_loads_no_pytorch(process: ProcessServing) -> None:
    (child,) = process.children()
    assert "libtorch" not in Path(f"/proc/{child}/maps").read_text()


def test_a_build_of_another_model_in_its_place_is_refused(build: Path, serve_here: StartHere, tmp_path: Path) -> None:
    other = Path(shutil.copytree(build, tmp_path / "other"))
    resealed(other / "onnx", name="other")
    server = serve_here(build)
    build.rename(tmp_path / "before")
    other.rename(build)
    server.renew()
    assert ["of 'other'" in event["error"] for event in server.events("reload")] == [True]
    assert server.form(image=picture(), query=b"red")[1]["model"] == "toy"
    build.rename(tmp_path / "after")
    (tmp_path / "before").rename(build)
    server.renew()
    assert server.form(image=picture(), query=b"red")[0] == 200


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_a_stopped_process_is_replaced(exported: Path, serve: Start) -> None:
    server = serve(exported)
    (child,) = server.children()
    os.kill(child, signal.SIGSTOP)
    assert server.form(image=picture(), query=b"red")[0] == 200
    assert [event["reason"] for event in server.events("crash")] == ["it hangs"]
    assert server.children() != [child]


LIVES = """
import os, signal, sys
from pathlib import Path
from edgekit_serve.process import inherited_socket
listener, live = inherited_socket()
live()
if not Path(sys.argv[1]).exists():
    Path(sys.argv[1]).touch()
    os.kill(os.getpid(), signal.SIGSTOP)
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""


def test_a_process_without_signs_of_life_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reasons: list[object] = []
    monkeypatch.setattr(supervision, "SILENCE", 0.1)
    monkeypatch.setattr(supervision, "log", lambda event, reason: reasons.append(reason))
    with supervision.listening("127.0.0.1", 0) as listener:
        assert supervision.supervise(listener, [sys.executable, "-c", LIVES, str(tmp_path / "first")]) == 0
    assert reasons == ["it hangs"]


STARTS = """
import os, signal, sys
from pathlib import Path
from edgekit_serve.process import inherited_socket
listener, live = inherited_socket()
action = sys.argv[2 + int(Path(sys.argv[1]).read_text())]
if action == "serve and crash":
    live()
    os.kill(os.getpid(), signal.SIGKILL)
if action == "fail":
    sys.exit(3)
if action == "ignore SIGTERM":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
if action != "hang":
    os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""


@pytest.mark.parametrize(
    ("actions", "code", "events"),
    [
        (["hang"], 1, [("end", "it did not start within 0.1 s")]),
        (
            ["serve and crash", "hang", "end the server"],
            0,
            [("crash", "SIGKILL"), ("crash", "it did not start within 0.1 s")],
        ),
        (["ignore SIGTERM"], 0, []),
        (["serve and crash", "fail"], 0, [("crash", "SIGKILL"), ("crash", "exit code 3")]),
    ],
    ids=["never started", "had served", "SIGTERM is ignored", "SIGTERM in the pause before the next start"],
)
def test_a_process_that_does_not_start_holds_up_nobody(
    actions: list[str], code: int, events: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[str, str]] = []
    runs = tmp_path / "runs"
    runs.write_text("0")

    def log(event: str, reason: str) -> None:
        logged.append((event, reason))
        runs.write_text(str(len(logged)))
        if reason == "exit code 3":
            os.kill(os.getpid(), signal.SIGTERM)
        # Only the process that hangs may have a short time, so that a slow host does not matter.
        hangs = actions[len(logged) : len(logged) + 1] == ["hang"]
        monkeypatch.setattr(supervision, "START", 0.1 if hangs else SECONDS)

    monkeypatch.setattr(supervision, "log", log)
    monkeypatch.setattr(supervision, "START", 0.1 if actions[0] == "hang" else SECONDS)
    monkeypatch.setattr(supervision, "SILENCE", 0.1 if actions == ["ignore SIGTERM"] else SECONDS)
    monkeypatch.setattr(supervision, "PAUSE", 600.0 if "fail" in actions else 0.0)
    with supervision.listening("127.0.0.1", 0) as listener:
        command = [sys.executable, "-c", STARTS, str(runs), *actions]
        assert supervision.supervise(listener, command) == code
    assert logged == events


@LINUX
def test_sigterm_ends_a_server_that_is_still_starting(exported: Path) -> None:
    command = [sys.executable, "-m", "edgekit", "serve", str(exported), "--port", "0", "--trust-build"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        server = ProcessServing(process)
        assert soon(lambda: bool(server.children()))
        (child,) = server.children()
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, output, running(child)) == (0, "", False)


@LINUX
def test_requests_that_arrived_before_the_end_are_answered(exported: Path, serve: Start) -> None:
    server = serve(exported)
    (child,) = server.children()
    with ExitStack() as stack:
        clients = [HTTPConnection("127.0.0.1", server.port, SECONDS) for _ in range(300)]
        for client in clients:
            stack.callback(client.close)
        for client in clients[:150]:  # connections of which the server knows
            client.request("GET", "/v2/models/toy")
            client.getresponse().read()
        os.kill(child, signal.SIGSTOP)  # all further requests wait in the kernel when the server is told to end
        for client in clients:
            client.request("GET", "/v2/models/toy")
        server.process.send_signal(signal.SIGTERM)
        assert soon(lambda: _is_pending(child, signal.SIGTERM))
        os.kill(child, signal.SIGCONT)
        assert [client.getresponse().status for client in clients] == [200] * 300
    assert server.process.wait(SECONDS) == 0


def _is_pending(process: int, number: int) -> bool:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return any(line.startswith("ShdPnd") and int(line.split()[1], 16) >> (number - 1) & 1 for line in lines)


@pytest.mark.nightly
def test_who_answers_ends_with_who_listens(exported: Path, serve: Start) -> None:
    server = serve(exported)
    (child,) = server.children()
    server.process.kill()
    assert soon(lambda: not running(child))


def test_pictures_of_every_kind(exported: Path, shared: Serving) -> None:
    grey = np.linspace(0, 65535, 256).reshape(16, 16)
    seen = {}
    for name, image in {
        "8 bits": Image.fromarray(np.floor(grey / 257 + 0.5).astype(np.uint8)),
        "16 bits": Image.fromarray(grey.astype(np.uint16)),
        "palette": Image.fromarray(np.floor(grey / 257 + 0.5).astype(np.uint8)).convert("P"),
    }.items():
        file = io.BytesIO()
        image.save(file, "PNG")
        status, record, _ = shared.form(image=file.getvalue(), query=b"red")
        assert status == 200, name
        seen[name] = record["outputs"]["relevance"]["data"]
    assert seen["16 bits"] == seen["8 bits"] == seen["palette"]
    for image, kind, sentence in (
        (Image.fromarray(grey.astype(np.float32)), "TIFF", "32-bit numbers"),
        (Image.new("RGB", (16, 16)), "ICO", "is not a picture"),
    ):
        file = io.BytesIO()
        image.save(file, kind)
        status, record, _ = shared.form(image=file.getvalue(), query=b"red")
        assert status == 400
        assert sentence in record["error"]


def test_a_form_of_another_encoding_holds_up_nobody(shared: Serving) -> None:
    field = b'--edge\r\nContent-Disposition: form-data; name="query"\r\n\r\n' + b"-aaa" * 75_000 + b"\r\n"
    body = field * 8 + b"--edge--\r\n"
    start = time.monotonic()
    response, data = shared.ask(
        "POST", "/predict", body, Content_Type="multipart/form-data; boundary=edge; charset=punycode"
    )
    assert response.status == 400
    assert json.loads(data)["error"] == "a field of the form occurs twice"
    assert time.monotonic() - start < 20  # a minute and more, decoded as punycode


def test_a_client_that_leaves_is_no_fault(process: ProcessServing) -> None:
    with socket.create_connection(("127.0.0.1", process.port), timeout=SECONDS) as client:
        client.sendall(f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode())
    assert soon(lambda: any(event["code"] == 499 for event in process.events("request")))
    assert not process.events("fault")
