"""Driving the library from a test: load, run, wait for a condition, and serve other files than the bundle's."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

PATIENCE = 60  # seconds until what must come has come; a shared machine with two cores

LOAD = """async (options) => {
  const library = await import(new URL("edgekit.js", location.href).href);
  try {
    globalThis.runner = await library.load("./", options);
    return globalThis.runner.info;
  } catch (error) {
    return { code: error.code, name: error.name, message: error.message };
  }
}"""
STORED = """async () => {
  const { isCached } = await import(new URL("edgekit.js", location.href).href);
  while (!(await isCached("./", { device: "wasm" }))) await new Promise(requestAnimationFrame);
}"""
RUN = """async ([query, count]) => {
  const canvas = new OffscreenCanvas(320, 240);
  const context = canvas.getContext("2d");
  context.fillStyle = "#c82828";
  context.fillRect(40, 40, 120, 120);
  let result;
  for (let i = 0; i < count; i++) result = await globalThis.runner.run({ image: canvas, query });
  const { relevance, budgets, indices, rows, columns, known, present } = result;
  const { device, dtype, fallbacks } = globalThis.runner.info;
  return { relevance: [...relevance], budgets: [...budgets], indices: [...indices], rows, columns, known, present,
           device, dtype, fallbacks };
}"""


def load(page: Page, **options: object) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(LOAD, options)
    return found


def stored(page: Page) -> None:
    """Wait until the model is stored, which goes on after it was loaded."""
    page.evaluate(STORED)


def no_workers(page: Page) -> None:
    """Wait until the page has no worker left."""
    until(page, lambda: page.workers == [], "the page has no worker")


def fitting(files: Mapping[str, bytes], manifest: bytes) -> dict[str, bytes]:
    """Files, and the manifest with their sizes and hashes."""
    described = json.loads(manifest)
    for entry in described["files"]:
        if entry["path"] in files:
            data = files[entry["path"]]
            entry.update(size=len(data), sha256=hashlib.sha256(data).hexdigest())
    return {**files, "manifest.json": json.dumps(described).encode()}


def serve(page: Page, bundle: Path, files: dict[str, bytes]) -> None:
    """Serve other files, and a manifest whose hashes fit them."""
    for path, data in fitting(files, files.get("manifest.json") or (bundle / "manifest.json").read_bytes()).items():
        replace(page, path, lambda _, data=data: data)  # type: ignore[misc]


def replace(page: Page, path: str, change: Callable[[bytes], bytes]) -> None:
    def answer(route: Route) -> None:
        original = route.fetch()
        headers = {k: v for k, v in original.headers.items() if k not in ("content-encoding", "content-length")}
        route.fulfill(status=200, headers=headers, body=change(original.body()))

    page.route(f"**/{path}", answer)


def until(page: Page, condition: Callable[[], object], what: str) -> None:
    """Wait for a condition that only this process sees, as short as it takes."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"never came: {what}"
        page.wait_for_timeout(20)  # Playwright handles events only inside of its own calls


def prefix_worker(page: Page, script: str) -> None:
    replace(page, "assets/worker-*.js", lambda data: script.encode() + data)
