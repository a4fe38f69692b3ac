"""The same page in other engines: Firefox, and WebKitGTK, which lacks what Safari lacks (JSPI, WebGPU, shared memory).

They are started as by a user, without a driver: a script that this test adds to the page sends back what it shows, and
what the library's `runner.run` answers there to a picture, which is compared with what ONNX Runtime answers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.runtime.ort import OrtRuntime
from edgekit_arrcoc import queries
from edgekit_targets.web import server as static
from edgekit_targets.web.export import PATHS

PATIENCE = 120  # seconds until an engine must have sent its report

REPORT = """
const text = (id) => document.querySelector(id).textContent;
// What a user's page does: load the bundle, run it on a file and on a canvas.
const run = async () => {
  const { load } = await import("./edgekit.js");
  const runner = await load("./", { device: "wasm", dtype: "q8" });
  const image = await (await fetch("./samples/001.png")).blob();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [224, 224];
  canvas.getContext("2d").drawImage(await createImageBitmap(image), 0, 0);
  const query = "large blue star";
  const [file, drawn] = await runner.run([{ image, query }, { image: canvas, query }]);
  const { device, dtype } = runner.info;
  await runner.dispose();
  return { device, dtype, file: [...file.relevance], drawn: [...drawn.relevance], indices: [...file.indices] };
};
const send = (found) => fetch("./report", { method: "POST", body: JSON.stringify(found) });
const watch = setInterval(() => {
  const notice = document.querySelector("#notice");
  if (!text("#savings").includes("%") && notice.hidden) return;
  clearInterval(watch);
  void run().catch((error) => ({ error: String(error) })).then((answer) => send({
    answer, status: text("#status-text"), saved: text("#savings"), notice: notice.hidden ? "" : notice.textContent,
    passed: document.querySelectorAll('#self-test [data-pass="true"]').length,
    fallbacks: [...document.querySelectorAll("#fallbacks li")].map((li) => li.textContent),
    facts: text("#backend-info"), jspi: "Suspending" in WebAssembly, shared: typeof SharedArrayBuffer !== "undefined",
    agent: navigator.userAgent,
  }));
}, 200);
addEventListener("error", (event) => void send({ error: event.message }));
addEventListener("unhandledrejection", (event) => void send({ error: String(event.reason) }));
"""

pytestmark = pytest.mark.engines


class Listener:
    """Serves a bundle whose page sends a report of what it shows."""

    def __init__(self, bundle: Path) -> None:
        self.report: dict[str, Any] = {}
        self.arrived = threading.Event()
        listener = self

        class Handler(static._Handler):
            files = static.tabulate(bundle)
            names = frozenset({static.LOCAL})

            def do_GET(self) -> None:  # noqa: N802 - the library's name
                path = self.path.partition("?")[0]
                if path == "/":
                    page = (bundle / "index.html").read_bytes()
                    self._send(page.replace(b"</body>", b'<script src="./report.js"></script></body>'), "text/html")
                elif path == "/report.js":
                    self._send(REPORT.encode(), "text/javascript")
                else:
                    super().do_GET()

            def do_POST(self) -> None:  # noqa: N802 - the library's name
                listener.report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                listener.arrived.set()
                self._send(b"", "text/plain")

            def _send(self, data: bytes, kind: str) -> None:
                self.send_response(HTTPStatus.OK)
                for name, value in static.HEADERS.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def running(command: list[str], home: Path) -> Iterator[None]:
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "MOZ_HEADLESS": "1", "LIBGL_ALWAYS_SOFTWARE": "1"}
    environment |= {"WEBKIT_DISABLE_COMPOSITING_MODE": "1", "WEBKIT_FORCE_SANDBOX": "0", "NO_AT_BRIDGE": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            yield
        finally:
            subprocess.run(["pkill", "-s", str(process.pid)], check=False)  # its session: an engine is many processes
            process.wait(20)


def ask(bundle: Path, command: list[str], home: Path, path: str = "") -> dict[str, Any]:
    with Listener(bundle) as listener, running([*command, listener.url + path], home):
        assert listener.arrived.wait(PATIENCE), f"'{command[0]}' sent no report"
    return listener.report


def check_answer(bundle: Path, answer: dict[str, Any]) -> None:
    """Compare what `runner.run` gave with what ONNX Runtime gives for the same pixels."""
    pixels = np.asarray(Image.open(bundle / "samples" / "001.png").convert("RGB"), np.float32)
    query = queries.vocabulary().encode("large blue star")
    with closing(OrtRuntime(bundle / PATHS["q8"])) as runtime:
        right = runtime.run({"images": pixels.transpose(2, 0, 1)[None] / np.float32(255), "queries": query[None]})
    assert (answer.get("device"), answer.get("dtype")) == ("wasm", "q8"), answer
    np.testing.assert_allclose(answer["file"], right["relevance"][0], atol=1e-4)
    np.testing.assert_allclose(answer["drawn"], right["relevance"][0], atol=1e-4)
    assert sorted(answer["indices"]) == sorted(right["indices"][0].tolist())


def firefox(home: Path) -> list[str]:
    found = shutil.which("firefox-esr") or shutil.which("firefox")
    if not found:
        pytest.skip("there is no Firefox: apt-get install firefox-esr")
    return [found, "--headless", "--no-remote", "--profile", str(home)]


def webkit() -> list[str]:
    found = next(iter(sorted(Path("/usr/lib").glob("*/webkit2gtk-4*/MiniBrowser"))), None)
    if not found or not shutil.which("xvfb-run"):
        pytest.skip("there is no WebKitGTK: apt-get install webkit2gtk-driver xvfb")
    return ["xvfb-run", "--auto-servernum", str(found)]


def test_firefox_runs_the_page(bundle: Path, tmp_path: Path) -> None:
    report = ask(bundle, firefox(tmp_path), tmp_path)
    assert report.get("notice") == "", report
    assert "Firefox" in report["agent"]
    assert report["status"].startswith("WASM · int8 · ")
    assert (report["passed"], report["fallbacks"]) == (2, [])
    check_answer(bundle, report["answer"])


def test_firefox_without_a_gpu_says_so(bundle: Path, tmp_path: Path) -> None:
    report = ask(bundle, firefox(tmp_path), tmp_path, "?device=webgpu&dtype=fp32")
    assert report["status"].startswith("WASM · fp32 · ")
    assert "this browser provides no GPU adapter" in report["fallbacks"][0]


def test_webkit_runs_the_page_without_what_it_lacks(bundle: Path, tmp_path: Path) -> None:
    report = ask(bundle, webkit(), tmp_path)
    assert report.get("notice") == "", report
    assert "AppleWebKit" in report["agent"]
    assert "Chrome" not in report["agent"]
    assert not report["jspi"]
    assert report["status"].startswith("WASM · int8 · ")
    assert (report["passed"], report["fallbacks"]) == (2, [])
    check_answer(bundle, report["answer"])
