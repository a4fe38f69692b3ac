"""The live camera and videos: every frame that is shown has the map that `runner.run` gives for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edgekit_targets.web import browser as chromium
from tests.web.conftest import DESKTOP, PATIENCE, ready
from tests.web.test_page import AXE, answered, focused, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from edgekit.model.spec import Array

HEIGHT, WIDTH, FRAMES = 120, 160, 12
RATE = re.compile(r"^\d+\.\d frames/s, median [\d.]+ ms")
KEPT = 3  # frames that are asked again

# Keeps what the page sends to its worker, what comes back, and what the map then looks like.
RECORD = """globalThis.asked = []; globalThis.most = 0; let flying = 0;
const post = Worker.prototype.postMessage;
const look = () => { const canvas = document.querySelector("#map-a canvas");
  return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data; };
Worker.prototype.postMessage = function (message, ...rest) {
  const image = message.op === "run" ? message.questions[0].image : null;
  if (image instanceof ImageBitmap) {
    const frame = new OffscreenCanvas(image.width, image.height);
    const pen = frame.getContext("2d");
    pen.drawImage(image, 0, 0);
    const pixels = pen.getImageData(0, 0, image.width, image.height).data.join();
    const one = { frame, moved: pixels !== globalThis.before };
    globalThis.before = pixels;
    globalThis.asked.push(one);
    globalThis.most = Math.max(globalThis.most, ++flying);
    const listen = ({ data }) => {
      if (data.id !== message.id || "loaded" in data) return;
      flying--;
      this.removeEventListener("message", listen);
      one.relevance = data.response[0].relevance;
      if (globalThis.looking && one.moved && !document.querySelector("#live-bar").hidden) one.shown = look();
    };
    this.addEventListener("message", listen);
  }
  return post.call(this, message, ...rest);
};"""
# What the library answers to kept frames, each another than the one before it, and the frames as files.
AGAIN = """async (count) => {
  const kept = globalThis.asked.filter((one) => one.shown).slice(-count);
  const { load } = await import(new URL("edgekit.js", location.href).href);
  const runner = await load("./", { device: "wasm", dtype: "q8" });
  const found = [];
  for (const { frame, relevance } of kept) {
    const size = runner.fittingSize(frame);
    const again = await runner.run({ image: frame, query: document.querySelector("#query").value, size });
    const file = new Uint8Array(await (await frame.convertToBlob()).arrayBuffer());
    found.push({ shown: [...relevance], right: [...again.relevance], file: [...file] });
  }
  await runner.dispose();
  globalThis.kept = kept;
  return found;
}"""
APART = """(at) => { const canvas = document.querySelector("#map-a canvas");
  const now = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return globalThis.kept.map(({ shown }) => shown.length === now.length
    ? shown.reduce((most, value, i) => Math.max(most, Math.abs(value - now[i])), 0) : 256); }"""
# A video of a moving disc, recorded from a canvas, as the bytes of a file.
CLIP = """async () => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [160, 120];
  const context = canvas.getContext("2d");
  const recorder = new MediaRecorder(canvas.captureStream(30), { mimeType: "video/webm" });
  const parts = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  const stopped = new Promise((done) => { recorder.onstop = done; });
  recorder.start();
  const start = performance.now();
  await new Promise((done) => { const draw = () => {
    const at = (performance.now() - start) / 500;
    context.fillStyle = "#dde";
    context.fillRect(0, 0, 160, 120);
    context.fillStyle = "#c82828";
    context.fillRect(20 + 80 * at, 40, 40, 40);
    if (at < 1) requestAnimationFrame(draw); else done();
  }; draw(); });
  recorder.stop();
  await stopped;
  return [...new Uint8Array(await new Blob(parts).arrayBuffer())];
}"""
HIDE = """(hidden) => { Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange")); }"""
STATE = """() => { const video = document.querySelector("#live-video");
  return { paused: video.paused, seen: video.srcObject?.getTracks().map(({ enabled }) => enabled) ?? null }; }"""


@pytest.fixture(scope="module")
def camera(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium with a camera that shows a disc on its way across the picture."""
    film = tmp_path_factory.mktemp("film") / "film.y4m"
    film.write_bytes(y4m())
    fake = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    flags = [*chromium.QUIET, *fake, f"--use-file-for-fake-video-capture={film}"]
    opened = browser.browser_type.launch(executable_path=chromium.find_chromium() or None, args=flags)
    yield opened
    opened.close()


@pytest.fixture
def filmed(camera: Browser, url: str) -> Iterator[Page]:
    """The page after its first answer, in a browser with a camera."""
    desktop: dict[str, Any] = DESKTOP
    context = camera.new_context(reduced_motion="reduce", bypass_csp=True, **desktop)
    context.set_default_timeout(PATIENCE)
    context.add_init_script(RECORD)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{url}?device=wasm&dtype=q8")
    ready(page)
    yield page
    context.close()
    assert errors == []


def y4m() -> bytes:
    """A film in YUV 4:2:0."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    parts = [f"YUV4MPEG2 W{WIDTH} H{HEIGHT} F30:1 Ip A1:1 C420jpeg\n".encode()]
    for frame in range(FRAMES):
        disc = (rows - 60) ** 2 + (columns - 20 - 10 * frame) ** 2 < 25**2
        planes: list[Array] = [
            np.where(disc, 90, 200),
            np.where(disc, 100, 128)[::2, ::2],
            np.where(disc, 220, 128)[::2, ::2],
        ]
        parts += [b"FRAME\n", *(plane.astype(np.uint8).tobytes() for plane in planes)]
    return b"".join(parts)


def running(page: Page) -> None:
    """Wait until the rate of a live picture is shown."""
    page.locator("#live-rate", has_text=RATE).wait_for()


def check_frames(page: Page, button: str = "") -> None:
    """Compare frames that were shown with what the library and the page answer to the same pictures."""
    page.evaluate("() => { globalThis.looking = true; }")
    page.wait_for_function("(count) => asked.filter((one) => one.shown).length >= count", arg=KEPT)  # the picture moves
    assert page.evaluate("() => globalThis.most") == 1, "one frame at a time"
    page.get_by_role("button", name="Stop").press("Enter")
    assert not button or focused(page) == button, "where it was before"
    found = page.evaluate(AGAIN, KEPT)
    assert len(found) == KEPT
    for at, one in enumerate(found):
        assert one["shown"] == one["right"]
        asked = page.evaluate("() => asked.length")
        page.set_input_files("#file", {"name": "frame.png", "mimeType": "image/png", "buffer": bytes(one["file"])})
        page.wait_for_function("(before) => asked[before]?.relevance", arg=asked)
        page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        apart = page.evaluate(APART)
        assert apart[at] <= 2, "the frame and its own map stood on the page"


@pytest.mark.nightly
def test_every_frame_of_the_camera_has_its_own_map(filmed: Page) -> None:
    filmed.locator("#start-camera").focus()
    filmed.keyboard.press("Enter")
    running(filmed)
    assert focused(filmed) == "live-stop"
    assert filmed.get_by_role("group", name="Live picture").get_by_role("button").all_inner_texts() == ["Stop"]
    assert filmed.get_attribute("#answer-line", "aria-live") == "off", "not with every frame"
    filmed.locator("#live-said", has_text="“red circle”").wait_for(state="attached")
    assert filmed.locator('[data-sample][aria-pressed="true"]').count() == 0
    filmed.add_script_tag(path=str(AXE))
    assert violations(filmed) == []
    check_frames(filmed, "start-camera")
    assert filmed.get_attribute("#answer-line", "aria-live") == "polite"


@pytest.mark.nightly
def test_a_live_picture_is_asked_what_the_field_says(filmed: Page) -> None:
    filmed.click("#start-camera")
    running(filmed)
    filmed.fill("#query", "green")
    answered(filmed, "green")
    filmed.fill("#query", "xyzzy")
    filmed.locator("#answer-line", has_text="No answer").wait_for()
    silent = filmed.evaluate("() => asked.length")
    filmed.evaluate(
        "() => new Promise((shown) => document.querySelector('#live-video').requestVideoFrameCallback(shown))"
    )
    assert filmed.evaluate("() => asked.length") == silent
    assert "“" not in (filmed.get_attribute("#map-a canvas", "aria-label") or "")
    filmed.evaluate("() => { globalThis.track = document.querySelector('#live-video').srcObject.getTracks()[0]; }")
    filmed.get_by_role("button", name="Sample: striped").click()  # another picture: it ends the live one
    answered(filmed, "striped")
    assert filmed.locator("#live-bar").is_hidden()
    assert filmed.evaluate("() => track.readyState") == "ended"
    filmed.click("#start-camera")
    running(filmed)
    filmed.locator("#compare label", has_text="fp32").click()  # compares one picture
    filmed.locator("#difference", has_text="largest score difference").wait_for()
    assert filmed.locator("#live-bar").is_hidden()


def test_nobody_is_filmed_unseen(filmed: Page, url: str) -> None:
    filmed.click("#start-camera")
    running(filmed)
    filmed.evaluate(HIDE, True)
    assert filmed.evaluate(STATE) == {"paused": True, "seen": [False]}
    filmed.evaluate(HIDE, False)
    shown = filmed.evaluate("() => asked.length")
    filmed.wait_for_function("(before) => asked.length > before + 2", arg=shown)
    assert filmed.evaluate(STATE) == {"paused": False, "seen": [True]}
    filmed.evaluate(
        """() => { const [track] = document.querySelector("#live-video").srcObject.getTracks();
          addEventListener("pagehide", () => localStorage.setItem("track", track.readyState)); }"""
    )
    filmed.goto(f"{url}manifest.json")
    assert filmed.evaluate("() => localStorage.getItem('track')") == "ended"


@pytest.mark.nightly
def test_a_video_is_answered_frame_by_frame(filmed: Page) -> None:
    clip = bytes(filmed.evaluate(CLIP))
    filmed.set_input_files("#file", {"name": "clip.webm", "mimeType": "video/webm", "buffer": clip})
    running(filmed)
    check_frames(filmed)
    filmed.set_input_files("#file", {"name": "bad.mp4", "mimeType": "video/mp4", "buffer": clip[100:900]})
    filmed.locator("#notice", has_text="This browser cannot play bad.mp4").wait_for()
    assert filmed.locator("#live-bar").is_hidden()
    transfer = """(bytes) => { const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(bytes)], "clip.webm", { type: "video/webm" })); return data; }"""
    filmed.dispatch_event("body", "drop", {"dataTransfer": filmed.evaluate_handle(transfer, list(clip))})
    running(filmed)
    assert filmed.locator("#notice").is_hidden()


@pytest.mark.nightly
def test_without_a_camera_a_sentence_says_why(page: Page, url: str) -> None:
    page.click("#start-camera")
    page.locator("#notice", has_text=re.compile("Access to the camera was denied|No camera was found")).wait_for()
    page.context.grant_permissions(["camera"])
    page.click("#start-camera")
    page.locator("#notice", has_text="No camera was found: open a picture instead.").wait_for()
    assert page.locator("#live-bar").is_hidden()
    page.route(
        "http://plain.test/**",
        lambda route: route.fulfill(
            response=route.fetch(url=url + route.request.url.removeprefix("http://plain.test/"))
        ),
    )
    page.goto("http://plain.test/")
    page.locator("#strip [data-sample]").first.wait_for()
    page.click("#start-camera")
    page.locator("#notice", has_text="The camera is available only on https or localhost.").wait_for()
