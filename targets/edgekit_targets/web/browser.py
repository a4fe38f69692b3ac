"""A web bundle in a real browser: headless Chromium, driven by Playwright, running the bundle's own library.

Without a GPU, WebGPU runs on SwiftShader. That is right for correctness, 65-90 times slower than WASM, and lacks 16-bit
floats.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import shutil
import threading
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.artifact.manifest import TensorInfo
from edgekit.artifact.store import MANIFEST, read_artifact
from edgekit.errors import ArtifactError, NotVerifiedHere, RuntimeMissingError, install_command
from edgekit.model.image_input import pixels_of
from edgekit.model.spec import Array
from edgekit.reference.vocabulary import read_vocabulary
from edgekit.runtime.protocol import Timings
from edgekit_targets.web.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
VARIABLE = "EDGEKIT_CHROMIUM"
QUIET = (
    # As root in containers Chromium starts in no other way.
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
CRASHES = ("Target crashed", "Page crashed", "has been closed")
"""Parts of Playwright's messages on a tab that died."""
SOFTWARE_GPU = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-unsafe-swiftshader")
SCRIPT = Path(__file__).with_name("browser.js")
NO_PLAYWRIGHT = f"Playwright is not installed. Run: {install_command('web')}"
# In ms for one run. SwiftShader takes minutes for the largest shapes of the grid.
PATIENCE = 900_000

EXACT = 1e-3
"""Largest difference of a value from a byte, in bytes. float32's rounding is far below."""
WARM_UPS, RUNS = 3, 30
TOGETHER, TOGETHER_BYTES = 16, 16 << 20
"""Most runs, and bytes of their inputs, that go to the page at once. Slow runs go one by one, to show progress."""


def _require_unpacked(bundle: Path, paths: Collection[str]) -> None:
    """Raise if a compressed file is not its plain sibling: servers send the one, some visitors get the other."""
    import brotli

    for suffix, unpack in ((".gz", gzip.decompress), (".br", brotli.decompress)):
        for path in sorted(path.removesuffix(suffix) for path in paths if path.endswith(suffix)):
            try:
                same = unpack((bundle / f"{path}{suffix}").read_bytes()) == (bundle / path).read_bytes()
            except (OSError, EOFError, zlib.error, brotli.error):
                same = False
            if not same:
                raise ArtifactError(f"'{path}{suffix}' does not unpack to '{path}': it was changed. Export it again")


class BrowserRuntime:
    """One variant of a bundle on one device of headless Chromium.

    Args:
        bundle: An artifact of the target `web`.
        device: "wasm" or "webgpu".
        dtype: "fp32", "fp16" or "q8".

    Raises:
        NotVerifiedHere: If Playwright, Chromium, the variant or a GPU adapter (even in software) is missing.
        ArtifactError: If the bundle does not start, or fell back to another variant or device.
    """

    def __init__(self, bundle: Path, device: str, dtype: str) -> None:
        self._made = read_artifact(bundle)
        if dtype not in {variant.name for variant in self._made.bundle.variants}:
            raise NotVerifiedHere(f"the bundle has no {dtype} variant. Export its target in the same run")
        _require_unpacked(bundle, {file.path for file in self._made.files})
        self._vocabulary = read_vocabulary(bundle)
        # It closes open resources if a later step fails.
        with contextlib.ExitStack() as stack:
            self._server = stack.enter_context(Server(bundle))
            driver, self._browser = launch(SOFTWARE_GPU if device == "webgpu" else ())
            stack.callback(driver.stop)
            stack.callback(self._browser.close)
            self._page = open_page(self._browser, self._server.url)
            self._info = self._load(device, dtype)
            self._open = stack.pop_all()

    @property
    def device(self) -> str:
        """Browser, device, threads and runtime."""
        info = self._info
        where = f"WebAssembly, {info['threads']} thread{'s' * (info['threads'] != 1)}"
        if info["device"] == "webgpu":
            adapter = info["adapter"] or {}
            adapter_name = (
                adapter.get("description") or adapter.get("architecture") or adapter.get("vendor") or "unnamed"
            )
            where = f"WebGPU ({adapter_name})"
        return f"Chromium {self._browser.version}, {where}, onnxruntime-web {info['version']}"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch, with the library's `run` if its inputs fit a user's, else with raw tensors.

        Raises:
            ArtifactError: If the run failed, or the library had to leave the judged device.
        """
        return self._read(self._call("answer", [self._request(inputs)])[0])

    def run_many(self, runs: Iterable[Mapping[str, Array]]) -> Iterator[dict[str, Array] | Exception]:
        """Compute answers as `run` does, on WASM with two of the library's runners, each with its worker and session.

        A GPU in software uses all cores for one run.
        """
        quick = self._info["device"] == "wasm"
        if quick and (os.cpu_count() or 1) > self._info["threads"]:
            self._call("openAnother")
        for some in _windows(runs, TOGETHER if quick else 1):
            try:
                results = self._call("answer", [self._request(inputs) for inputs in some])
            # The page is gone, and with it all answers.
            except Exception as error:
                yield from (error for _ in some)
                continue
            for answer in results:
                try:
                    yield self._read(answer)
                except ArtifactError as error:
                    yield error

    def benchmark(self, inputs: Mapping[str, Array], seconds: float) -> Timings:
        """Yield times of runs in the page, and of a first and a second visit. Nothing on a GPU in software."""
        if self._info["device"] == "webgpu":
            return Timings(notes=("not timed: the GPU is a piece of software here",))
        self._page.evaluate("closeOthers")
        request = sent(inputs)
        seconds_taken = self._page.evaluate("clock", [request, seconds, WARM_UPS, RUNS])
        context = self._browser.new_context()
        visits = []
        for _ in range(2):
            page = open_page(context, self._server.url)
            visits.append(page.evaluate("visit", [self._info["device"], self._info["dtype"], PATIENCE, request]))
            page.close()
        context.close()
        first, second = visits
        note = f"from local disk to the first answer: {first:.0f} ms at the first visit, {second:.0f} ms at the second"
        return Timings(tuple(seconds_taken), (note,))

    def close(self) -> None:
        """Stop the browser and the server."""
        self._open.close()

    def _call(self, function: str, requests: Sequence[Mapping[str, object]] = ()) -> list[dict[str, Any]]:
        """Call a function of the page. A tab or a GPU that dies is the host's fault: the page is opened again, once.

        Raises:
            NotVerifiedHere: If it dies again.
        """
        why = ""
        for _ in range(2):
            if why:
                with contextlib.suppress(Exception):
                    self._page.close()
                self._page = open_page(self._browser, self._server.url)
                self._load(self._info["device"], self._info["dtype"])
            try:
                answers: list[dict[str, Any]] = self._page.evaluate(function, requests) or []
            except Exception as error:
                why = str(error).partition("\n")[0]
                if not any(word in why for word in CRASHES):
                    raise
                continue
            why = next((answer["lost"] for answer in answers if answer.get("lost")), "")
            if not why:
                return answers
        raise NotVerifiedHere(f"the browser's tab or GPU died twice ({why})")

    def _request(self, inputs: Mapping[str, Array]) -> dict[str, object]:
        values = user_input(self._made.inputs, inputs)
        if values is None:
            return {"inputs": sent(inputs)}
        height, width, _ = values.pixels.shape
        rgba = np.concatenate([values.pixels, np.full((height, width, 1), 255, np.uint8)], 2)
        query = None if values.query is None else base64.b64encode(values.query.astype("<f4").tobytes()).decode()
        pixels = base64.b64encode(rgba.tobytes()).decode()
        # As users ask: in words, where the vector is that of words.
        words = self._vocabulary.of(values.query) if self._vocabulary and values.query is not None else ()
        return {"picture": {"rgba": pixels, "width": width, "height": height, "query": query, "words": list(words)}}

    def _read(self, answer: Mapping[str, Any]) -> dict[str, Array]:
        if "error" in answer:
            raise ArtifactError(f"the browser cannot run the bundle: {answer['error']}")
        if (answer["device"], answer["dtype"]) != (self._info["device"], self._info["dtype"]):
            raise ArtifactError(
                f"the browser left {self._info['device']} for {answer['device']} in the test. Try again"
            )
        outputs = {name: decode_tensor(tensor) for name, tensor in answer["outputs"].items()}
        for output in self._made.outputs if answer.get("present") is not None else ():
            largest = float(outputs[output.name].max())
            if output.threshold is not None and answer["present"] != (largest >= output.threshold):
                raise ArtifactError(
                    f"the bundle's library answers present: {answer['present']}, but the largest '{output.name}' is "
                    f"{largest:g} and the threshold {output.threshold:g}: the bundle was changed. Export it again"
                )
        return {output.name: outputs[output.name].astype(output.dtype, copy=False) for output in self._made.outputs}

    def _load(self, device: str, dtype: str) -> dict[str, Any]:
        answer = self._page.evaluate("openBundle", [device, dtype, PATIENCE])
        if "error" in answer:
            raise ArtifactError(f"the bundle does not start in the browser: {answer['error']}")
        info: dict[str, Any] = answer["info"]
        if (info["device"], info["dtype"]) != (device, dtype):
            reason = "; ".join(f["reason"] for f in info["fallbacks"]) or "no reason was given"
            if device == "webgpu" and "adapter" in reason:
                raise NotVerifiedHere(f"this browser has no WebGPU adapter, not even a software one ({reason})")
            raise ArtifactError(f"the browser does not run {dtype} on {device}: {reason}")
        return info


@dataclass
class Driver:
    """Playwright, which a thread can have only once. It ends with the last browser that it drives."""

    playwright: Playwright
    thread: int
    users: int = 0

    def stop(self) -> None:
        """Stop it if no other browser uses it."""
        self.users -= 1
        if not self.users:
            del _drivers[self.thread]
            self.playwright.stop()


_drivers: dict[int, Driver] = {}
"""Drivers by thread."""


def launch(flags: tuple[str, ...] = ()) -> tuple[Driver, Browser]:
    """Start headless Chromium.

    Raises:
        RuntimeMissingError: If Playwright or Chromium is missing. The message says what to install.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise RuntimeMissingError(NO_PLAYWRIGHT) from None
    thread = threading.get_ident()
    driver = _drivers.get(thread) or _drivers.setdefault(thread, Driver(sync_playwright().start(), thread))
    driver.users += 1
    playwright = driver.playwright
    try:
        path = find_chromium() or _own(playwright)
        return driver, playwright.chromium.launch(executable_path=path, args=[*QUIET, *flags])
    except Error as error:
        driver.stop()
        raise RuntimeMissingError(
            f"Chromium does not start ({error.message.splitlines()[0]}). Check the file '{find_chromium()}'"
        ) from error
    except NotVerifiedHere:
        driver.stop()
        raise


def find_chromium() -> str:
    """Return a Chromium of the system: one that the environment names, or one on the path. Empty without one."""
    configured = os.environ.get(VARIABLE, "")
    return configured or next((path for name in NAMES if (path := shutil.which(name))), "")


def open_page(browser: Browser | BrowserContext, url: str) -> Page:
    """Return a page of the bundle's origin that runs nothing by itself."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.add_init_script(path=SCRIPT)
    page.goto(url + MANIFEST)
    return page


def _own(playwright: Playwright) -> str:
    path = playwright.chromium.executable_path
    if not Path(path).is_file():
        raise RuntimeMissingError(
            "Chromium is missing. Install it (`apt-get install chromium`, `brew install chromium`, "
            f"`playwright install chromium`), or name one in {VARIABLE}"
        )
    return path


def _windows(runs: Iterable[Mapping[str, Array]], most: int) -> Iterator[list[Mapping[str, Array]]]:
    """Yield the runs in their order, in groups of at least one and at most so many, within TOGETHER_BYTES."""
    some: list[Mapping[str, Array]] = []
    size = 0
    for inputs in runs:
        own = sum(array.nbytes for array in inputs.values())
        if some and (len(some) == most or size + own > TOGETHER_BYTES):
            yield some
            some, size = [], 0
        some.append(inputs)
        size += own
    if some:
        yield some


def sent(inputs: Mapping[str, Array]) -> dict[str, dict[str, object]]:
    """Return arrays by name, as `decode` in the page takes them."""

    def encode(array: Array) -> dict[str, object]:
        data = base64.b64encode(array.tobytes()).decode()
        return {"dtype": str(array.dtype), "shape": list(array.shape), "data": data}

    return {name: encode(array) for name, array in inputs.items()}


@dataclass(frozen=True)
class UserInput:
    """A user's inputs to the library: a picture [H, W, 3] uint8 in RGB, and perhaps a query [Q] float32."""

    pixels: Array
    query: Array | None


def user_input(declared: Sequence[TensorInfo], inputs: Mapping[str, Array]) -> UserInput | None:
    """Return a user's inputs to the library for one run's inputs, or None if no user could give them.

    A library takes one picture at a time, whose values are bytes, and a query if the model has one. Raw tensors alone
    would not test the library's own preprocessing and its reading of the outputs.
    """
    if sorted(tensor.kind for tensor in declared) not in (["image"], ["image", "query"]):
        return None
    image = next(tensor for tensor in declared if tensor.kind == "image")
    array = inputs[image.name]
    if array.shape[:2] != (1, 3) or array.dtype != np.float32:
        return None
    pixels = pixels_of(array[0], image.low, image.high, EXACT)
    if pixels is None:
        return None
    query = next((inputs[tensor.name][0] for tensor in declared if tensor.kind == "query"), None)
    return UserInput(pixels, query)


def decode_tensor(tensor: Mapping[str, Any]) -> Array:
    """Return an array from the page's description."""
    data = base64.b64decode(tensor["data"])
    return np.frombuffer(data, tensor["dtype"]).reshape(tensor["shape"]).copy()
