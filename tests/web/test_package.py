"""The npm package: its types, its size, in Node, from another origin, and with EDGEKIT_SLOW=1 in a Vite app."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.conftest import PATIENCE
from tests.web.host import Host

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WEB = Path(__file__).parents[2] / "web"
TOOLS = WEB / "node_modules" / ".bin"
LARGEST = 300_000  # bytes, without runtimes and models
STRICT = {"noEmit": True, "strict": True, "exactOptionalPropertyTypes": True, "target": "es2022", "types": []}
RESOLUTIONS = {"bundler": "ESNext", "node16": "Node16", "nodenext": "NodeNext"}
NIGHTLY = pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes half a minute: set EDGEKIT_SLOW=1")
CORS = {"Access-Control-Allow-Origin": "*"}
PAGE = '<!doctype html><meta http-equiv="Content-Security-Policy" content="POLICY"><title>elsewhere</title>'
LOAD = """async (origin) => { const { load } = await import(`${origin}edgekit.js`);
  try {
    const runner = await load(origin, { device: "wasm", dtype: "fp32" });
    const { relevance } = await runner.run({ image: new ImageData(224, 224), query: "red circle" });
    return [runner.info.selfTest.pass, relevance.length];
  } catch (error) { return [error.code, error.message]; } }"""
IN_NODE = """import { load } from "@edgekit/web";
const runner = await load(process.argv[2], { dtype: "fp32" });
const image = { data: new Uint8Array(3 * 96 * 112).fill(100), height: 96, width: 112 };
const { rows, columns, relevance } = await runner.run({ image, query: "red circle" });
const undecoded = await runner.run({ image: new Blob(), query: "red" }).catch((error) => error.code);
const { device, selfTest } = runner.info;
await runner.dispose();
console.log(JSON.stringify([device, selfTest.pass, rows, columns, relevance.length, undecoded]));"""
APP = """import { load } from "@edgekit/web";
const show = (found) => { document.title = JSON.stringify(found); };
const nested = new Worker(new URL("./nested.js", import.meta.url), { type: "module" });
nested.onmessage = ({ data }) => show(data);
const runner = await load("/bundle/", { device: "wasm", dtype: "fp32" });
const { relevance } = await runner.run({ image: new ImageData(224, 224), query: "red" });
nested.postMessage(relevance.length);"""
NESTED = """import { load } from "@edgekit/web";
onmessage = async ({ data }) => {
  const runner = await load("/bundle/", { device: "wasm", dtype: "fp32" });
  const { relevance } = await runner.run({ image: new ImageData(224, 224), query: "red" });
  postMessage([data, relevance.length]);
};"""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, bundle: Path) -> Path:
    """A folder in which the packed package is installed."""
    if not (TOOLS / "attw").is_file():
        pytest.skip("the npm packages are not installed: npm ci --ignore-scripts in web/")
    folder = tmp_path_factory.mktemp("app")
    _run(WEB, "node", "build_package.mjs")
    _run(WEB, "npm", "pack", "--silent", "--pack-destination", str(folder))
    scope = folder / "node_modules" / "@edgekit"
    with tarfile.open(next(folder.glob("*.tgz"))) as packed:
        packed.extractall(scope, filter="data")
    (scope / "package").rename(scope / "web")
    for runtime in ("onnxruntime-web", "onnxruntime-common"):
        (folder / "node_modules" / runtime).symlink_to(WEB / "node_modules" / runtime)
    (folder / "package.json").write_text('{ "type": "module" }')
    return folder


def test_it_is_small_and_its_types_and_exports_are_clean(app: Path) -> None:
    package = app / "node_modules" / "@edgekit" / "web"
    assert sum(f.stat().st_size for f in package.rglob("*") if f.is_file()) < LARGEST
    archive = str(next(app.glob("*.tgz")))
    # Packages of ES modules alone cannot be required; every other finding of attw fails.
    _run(app, str(TOOLS / "attw"), "--profile", "esm-only", archive)
    _run(app, str(TOOLS / "publint"), "--strict", archive)


@pytest.mark.parametrize(
    "resolution",
    ["nodenext", *(pytest.param(name, marks=NIGHTLY) for name in ("bundler", "node16"))],
)
def test_it_compiles_strictly_however_modules_are_resolved(app: Path, resolution: str) -> None:
    shutil.copy(WEB / "tests" / "package" / "use.ts", app)
    options = {**STRICT, "module": RESOLUTIONS[resolution], "moduleResolution": resolution}
    project = app / "tsconfig.json"
    project.write_text(json.dumps({"compilerOptions": options, "files": ["use.ts"]}))
    _run(app, str(TOOLS / "tsc"), "-p", str(project))


def test_node_runs_a_bundle_and_a_server_may_import_both_entries(app: Path, bundle: Path) -> None:
    (app / "run.mjs").write_text(IN_NODE)
    found = json.loads(_run(app, "node", "run.mjs", str(bundle)).splitlines()[-1])
    assert found == ["wasm", True, 6, 7, 42, "IMAGE"]
    browsers = (app / "node_modules" / "@edgekit" / "web" / "lib" / "index.js").as_uri()
    assert (
        _run(app, "node", "-e", f"import('{browsers}').then((m) => console.log(typeof m.load))").strip() == "function"
    )


@pytest.fixture
def elsewhere(bundle: Path) -> Iterator[str]:
    """The bundle at an origin of its own, which lets others read it."""
    with Host({"/": bundle}, headers=CORS) as host:
        yield host.url


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        ("worker-src blob: ORIGIN", [True, 196]),
        ("worker-src 'self'", ["POLICY", "the page's content security policy forbids the worker from"]),
    ],
)
def test_from_another_origin(
    browser: Browser, elsewhere: str, tmp_path: Path, policy: str, found: list[bool | int | str]
) -> None:
    (tmp_path / "index.html").write_text(PAGE.replace("POLICY", policy.replace("ORIGIN", elsewhere.rstrip("/"))))
    with Host({"/": tmp_path}) as own:
        page = browser.new_context().new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(own.url)
        answer = page.evaluate(LOAD, elsewhere)
        page.context.close()
    assert answer[0] == found[0], answer
    assert str(answer[1]).startswith(str(found[1]))


@NIGHTLY
def test_in_a_vite_app_and_in_a_nested_worker(app: Path, bundle: Path, page: Page) -> None:
    (app / "index.html").write_text('<!doctype html><script type="module" src="./app.js"></script>')
    (app / "app.js").write_text(APP)
    (app / "nested.js").write_text(NESTED)
    config = "export default { worker: { format: 'es' }, build: { target: 'es2022' } }"
    (app / "vite.config.mjs").write_text(config)
    _run(app, "node", str(WEB / "node_modules" / "vite" / "bin" / "vite.js"), "build")
    with Host({"/": app / "dist", "/bundle/": bundle}) as host:
        page.goto(host.url)
        page.wait_for_function("() => document.title === '[196,196]'", timeout=PATIENCE)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a context of its own."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
