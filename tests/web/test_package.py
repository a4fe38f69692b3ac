"""The npm package: its types, its size, in Node, from another origin; with EDGEKIT_SLOW=1 in a Vite app and in Deno.

And what a bundle says of transformers.js, with that package.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edgekit.runtime.ort import OrtRuntime
from edgekit_targets.web import export as web
from tests.processes import printed
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
const [first] = await runner.run([{ image, query: "red circle" }, { image, query: "blue" }]);
const same = Math.max(...first.relevance.map((score, i) => Math.abs(score - relevance[i]))) < 1e-6;
const undecoded = await runner.run({ image: new Blob(), query: "red" }).catch((error) => error.code);
const { device, selfTest } = runner.info;
await runner.dispose();
console.log(JSON.stringify([device, selfTest.pass, rows, columns, relevance.length, undecoded, same]));"""
WITHOUT = """import { load } from "@edgekit/web";
await load(process.argv[2]).catch((error) => console.log(`${error.code}: ${error.message}`));"""
IN_TRANSFORMERS = """import { AutoModel, PretrainedConfig, Tensor, env } from "@huggingface/transformers";
const [folder, dtype] = process.argv.slice(2);
Object.assign(env, { localModelPath: folder, allowLocalModels: true, allowRemoteModels: false });
const config = new PretrainedConfig({ model_type: "edgekit" });
const model = await AutoModel.from_pretrained("web", { dtype, config });
const images = new Tensor("float32", new Float32Array(3 * 96 * 112).fill(0.25), [1, 3, 96, 112]);
const queries = new Tensor("float32", new Float32Array(768).fill(0.125), [1, 768]);
const { relevance } = await model({ images, queries });
console.log(JSON.stringify([...relevance.data]));"""
REGISTRY = ("onnxruntime-node@1.30.0", "deno@2.9.6", "@huggingface/transformers@4.3.1")
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
    printed(WEB, "node", "build_package.mjs")
    printed(WEB, "npm", "pack", "--silent", "--pack-destination", str(folder))
    scope = folder / "node_modules" / "@edgekit"
    with tarfile.open(next(folder.glob("*.tgz"))) as packed:
        packed.extractall(scope, filter="data")
    (scope / "package").rename(scope / "web")
    for runtime in ("onnxruntime-web", "onnxruntime-common"):
        (folder / "node_modules" / runtime).symlink_to(WEB / "node_modules" / runtime)
    (folder / "package.json").write_text('{ "type": "module" }')
    return folder


@pytest.mark.nightly
def test_it_is_small_and_its_types_and_exports_are_clean(app: Path) -> None:
    package = app / "node_modules" / "@edgekit" / "web"
    assert sum(f.stat().st_size for f in package.rglob("*") if f.is_file()) < LARGEST
    archive = str(next(app.glob("*.tgz")))
    # Packages of ES modules alone cannot be required; every other finding of attw fails.
    printed(app, str(TOOLS / "attw"), "--profile", "esm-only", archive)
    printed(app, str(TOOLS / "publint"), "--strict", archive)


@pytest.mark.nightly(but=("bundler",))
@pytest.mark.parametrize(
    "resolution", ["nodenext", *(pytest.param(name, marks=NIGHTLY) for name in ("bundler", "node16"))]
)
def test_it_compiles_strictly_however_modules_are_resolved(app: Path, resolution: str) -> None:
    shutil.copy(WEB / "tests" / "package" / "use.ts", app)
    options = {**STRICT, "module": RESOLUTIONS[resolution], "moduleResolution": resolution}
    project = app / "tsconfig.json"
    project.write_text(json.dumps({"compilerOptions": options, "files": ["use.ts"]}))
    printed(app, str(TOOLS / "tsc"), "-p", str(project))


@pytest.mark.nightly
def test_node_runs_a_bundle_and_a_server_may_import_both_entries(app: Path, bundle: Path) -> None:
    (app / "run.mjs").write_text(IN_NODE)
    found = json.loads(printed(app, "node", "run.mjs", str(bundle)).splitlines()[-1])
    assert found == ["wasm", True, 6, 7, 42, "IMAGE", True]
    browsers = (app / "node_modules" / "@edgekit" / "web" / "lib" / "index.js").as_uri()
    kind = printed(app, "node", "-e", f"import('{browsers}').then((m) => console.log(typeof m.load))")
    assert kind.strip() == "function"


def test_node_without_a_runtime_says_what_to_install(app: Path, bundle: Path, tmp_path: Path) -> None:
    scope = tmp_path / "node_modules" / "@edgekit"
    shutil.copytree(app / "node_modules" / "@edgekit", scope)
    (tmp_path / "run.mjs").write_text(WITHOUT)
    told = printed(tmp_path, "node", "run.mjs", str(bundle))
    assert told.strip() == "BACKEND: no runtime is installed: npm install onnxruntime-node, or onnxruntime-web"


@pytest.fixture(scope="module")
def installed(app: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, and what npm installs of others without running their scripts."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "package.json").write_text('{ "type": "module" }')
    command = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", *REGISTRY)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install them here: {' '.join(command)} ({done.stderr.strip()[-200:]})")
    shutil.copytree(app / "node_modules" / "@edgekit", folder / "node_modules" / "@edgekit")
    return folder


@NIGHTLY
@pytest.mark.parametrize("runtime", ["onnxruntime-node", "onnxruntime-web"])
@pytest.mark.parametrize("program", ["node", "deno"])
def test_node_and_deno_run_a_bundle_on_either_runtime(
    installed: Path, bundle: Path, tmp_path: Path, program: str, runtime: str
) -> None:
    (tmp_path / "node_modules").mkdir()
    # A copy: a linked package would find what is installed beside the original.
    shutil.copytree(installed / "node_modules" / "@edgekit", tmp_path / "node_modules" / "@edgekit")
    for package in ("onnxruntime-common", runtime):
        (tmp_path / "node_modules" / package).symlink_to(installed / "node_modules" / package)
    (tmp_path / "package.json").write_text('{ "type": "module" }')
    (tmp_path / "run.mjs").write_text(f'import process from "node:process";\n{IN_NODE}')
    deno = next((installed / "node_modules" / "@deno").glob("*/deno"))
    command = ("node",) if program == "node" else (str(deno), "run", "-A", "--no-remote")
    found = json.loads(printed(tmp_path, *command, "run.mjs", str(bundle)).splitlines()[-1])
    device = "cpu" if runtime == "onnxruntime-node" else "wasm"
    assert found == [device, True, 6, 7, 42, "IMAGE", True]


@NIGHTLY
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "q8"])
def test_transformers_js_opens_a_bundles_folder(installed: Path, bundle: Path, dtype: str) -> None:
    assert bundle.name == "web"
    (installed / "open.mjs").write_text(IN_TRANSFORMERS)
    said = printed(installed, "node", "open.mjs", f"{bundle.parent}/", dtype).splitlines()[-1]
    with closing(OrtRuntime(bundle / web.PATHS[dtype])) as model:
        images, queries = np.full((1, 3, 96, 112), 0.25, np.float32), np.full((1, 768), 0.125, np.float32)
        expected = model.run({"images": images, "queries": queries})["relevance"]
    assert json.loads(said) == pytest.approx(expected[0].tolist(), abs=1e-5)


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
    printed(app, "node", str(WEB / "node_modules" / "vite" / "bin" / "vite.js"), "build")
    with Host({"/": app / "dist", "/bundle/": bundle}) as host:
        page.goto(host.url)
        page.wait_for_function("() => document.title === '[196,196]'", timeout=PATIENCE)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a context of its own."""
    context = browser.new_context()
    yield context.new_page()
    context.close()
