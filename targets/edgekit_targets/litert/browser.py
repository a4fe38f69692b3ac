"""A `.tflite` file in LiteRT.js, on WebAssembly in headless Chromium, which Playwright drives.

The npm package has a separate folder (`NAMED`, or `edgekit/litert-js` in the user's cache). No server runs: this module
answers a request of the page with the model, with a file of the package, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, NotVerifiedHere
from edgekit.model.spec import Array
from edgekit.runtime.input_shapes import arguments, require_names
from edgekit.storage.files import user_folder
from edgekit_targets.litert.answering import NARROW
from edgekit_targets.litert.runtime import JS
from edgekit_targets.web.browser import PATIENCE, SCRIPT, decode_tensor, launch, sent

if TYPE_CHECKING:
    from playwright.sync_api import Route

NAMED = "EDGEKIT_LITERT_JS"
PACKAGE, VERSION = "@litertjs/core", "2.5.3"
ORIGIN = "http://localhost/"
PAGE = """<!doctype html><script type="importmap">{"imports": {
  "@litertjs/core": "/@litertjs/core/dist/index.js",
  "@litertjs/wasm-utils": "/@litertjs/wasm-utils/dist/index.js"
}}</script>"""
OWN_SCRIPT = Path(__file__).with_name("litert.js")
TYPES = {".js": "text/javascript", ".wasm": "application/wasm"}


class LitertJsRuntime:
    """A `.tflite` file with one signature, the entry of an artifact, in a separate page.

    Raises:
        NotVerifiedHere: If LiteRT.js, Playwright or Chromium is missing. The message says what to install.
        ArtifactError: If LiteRT.js refuses the file.
    """

    def __init__(self, folder: Path, entry: str) -> None:
        self._manifest = read_artifact(folder)
        self._model, self._modules = folder / entry, modules()
        self._driver, self._browser = launch()
        try:
            self._page = self._browser.new_page()
            self._page.set_default_timeout(PATIENCE)
            for script in (SCRIPT, OWN_SCRIPT):
                self._page.add_init_script(path=script)
            self._page.route("**/*", self._answer)
            self._page.goto(ORIGIN)
            facts = self._evaluate("openModel", f"LiteRT.js refuses '{entry}'")
            require_names(self._manifest, entry, facts["inputs"], facts["outputs"])
        except BaseException:
            self.close()
            raise

    @property
    def device(self) -> str:
        """Browser and library."""
        return f"Chromium {self._browser.version}, WebAssembly, 1 thread, LiteRT.js {VERSION}"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch."""
        outputs = self._evaluate("answerModel", "LiteRT.js failed", sent(arguments(self._manifest, inputs, NARROW)))[
            "outputs"
        ]
        return {o.name: decode_tensor(outputs[o.name]).astype(o.dtype, copy=False) for o in self._manifest.outputs}

    def close(self) -> None:
        """End the browser."""
        self._browser.close()
        self._driver.stop()

    def _evaluate(self, script: str, what: str, argument: object = None) -> dict[str, Any]:
        from playwright.sync_api import Error

        try:
            answer: dict[str, Any] = self._page.evaluate(script, argument)
        # The error ended the page.
        except Error as error:
            raise ArtifactError(f"{what}: {error.message.splitlines()[0]}") from error
        if "error" in answer:
            raise ArtifactError(f"{what}: {answer['error'].strip().splitlines()[0]}")
        return answer

    def _answer(self, route: Route) -> None:
        path = route.request.url.removeprefix(ORIGIN)
        file = self._model if path == "model" else (self._modules / path).resolve()
        if not path:
            route.fulfill(body=PAGE, content_type="text/html")
        elif path == "model" or (file.is_relative_to(self._modules) and file.is_file()):
            route.fulfill(body=file.read_bytes(), content_type=TYPES.get(file.suffix, "application/octet-stream"))
        else:
            route.abort()


def modules() -> Path:
    """Return the folder `node_modules` that holds LiteRT.js.

    Raises:
        NotVerifiedHere: If the folder is missing or holds another version. The message has the command to install it.
    """
    folder = user_folder(JS, NAMED)
    command = f"npm install --ignore-scripts --prefix {folder} {PACKAGE}@{VERSION}"
    try:
        version = json.loads((folder / "node_modules" / PACKAGE / "package.json").read_text())["version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise NotVerifiedHere(f"LiteRT.js is not in '{folder}'. Run: {command}") from None
    if version != VERSION:
        raise NotVerifiedHere(f"'{folder}' has LiteRT.js {version}, not {VERSION}. Run: {command}")
    return (folder / "node_modules").resolve()
