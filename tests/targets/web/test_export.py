import gzip
import lzma
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, ExportError, NotVerifiedHere
from edgekit.hosts import process
from edgekit.model.sources import resolve_model
from edgekit.pipeline import plan, run, worker
from edgekit.reference import golden
from edgekit.testing import SMALL, QuietListener, TargetContract
from edgekit_targets.web import export as web
from edgekit_targets.web import server as static
from edgekit_targets.web import site
from tests.manifests import read_result

PAGE = Path(__file__).parents[3] / "web" / "index.html"


class TestWeb(TargetContract):
    name = "web"
    options: Mapping[str, str] = MappingProxyType({"variants": "fp32"})  # the others are not made then

    def test_the_bundle_is_complete(self, builds: Path) -> None:
        folder = builds / "small" / "web"
        made = read_artifact(folder)
        sizes = {file.path: file for file in made.files}
        wasm = sizes["ort/ort-wasm-simd-threaded.wasm"]
        assert wasm.gzip is not None
        assert wasm.brotli is not None
        assert wasm.brotli < wasm.gzip < wasm.size
        expected = ("index.html", "edgekit.js", "sw.js", "_headers", "vercel.json", ".htaccess", "samples.json")
        assert not [path for path in expected if path not in sizes]
        assert "licences/onnxruntime/LICENSE" in sizes
        assert not [path for path in sizes if "asyncify" in path or "jsep" in path]
        assert max(file.size for file in made.files) <= site.LARGEST
        assert made.bundle.golden == golden.JSON
        assert [(v.name, v.target) for v in made.bundle.variants] == [("fp32", "onnx")]
        assert {v.place for v in made.verdicts} == {"wasm-fp32", "webgpu-fp32"}
        found = read_result(folder)
        assert found.size == made.size == sum(file.size for file in made.files)
        assert found.first_visit == made.first_visit == made.bundle.variants[0].first_visit
        assert 2_300_000 < made.bundle.variants[0].first_visit < found.size / 4
        assert "EDGEKIT_BUNDLE" not in (folder / "sw.js").read_text()

    @pytest.mark.nightly
    def test_a_variant_that_the_browser_rejects_leaves_the_bundle(
        self, build: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """fp16 is missing then; dynamic INT8 is made, replaces static INT8, and is judged in its place."""
        real, judged, nonsense = process.call, list[str](), set[str]()

        def call(
            function: Callable[..., dict[str, object]], arguments: dict[str, Any], *rest: object, **more: object
        ) -> dict[str, object]:
            if function is worker.run_artifact and arguments["request"]["target"] == "web":
                made = read_artifact(Path(str(arguments["request"]["folder"])))
                judged.append(
                    next(
                        (v.target for v in made.bundle.variants if f"wasm-{v.name}" == arguments["request"]["place"]),
                        "",
                    )
                )
                if judged[-1] in nonsense:
                    raise ArtifactError("the browser says nonsense")
                raise NotVerifiedHere("no browser today")
            return real(function, arguments, *rest, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(process, "call", call)
        wanted = ("web",)  # brings all that belongs into it
        recipe = {"onnx-int8-static": {"method": "percentile"}}
        outcomes = run.export(resolve_model(SMALL), wanted, build, recipe, QuietListener())
        assert {*outcomes} == {"onnx", "onnx-fp16", "onnx-int8-static", "web"}
        assert [name for name in judged if "int8" in name] == ["onnx-int8-static"]
        shutil.rmtree(build / "web")
        judged.clear()
        nonsense |= {"onnx-fp16", "onnx-int8-static"}
        first = run.export(resolve_model(SMALL), wanted, build, recipe, QuietListener())
        made_for_web = ("onnx-fp16", "onnx-int8-static", "onnx-int8-dynamic")
        folder = build / "web"
        made = read_artifact(folder)
        assert {v.name: v.target for v in made.bundle.variants} == {"fp32": "onnx", "q8": "onnx-int8-dynamic"}
        assert not [file.path for file in made.files if "fp16" in file.path]
        assert not made.rejected
        assert sorted(made.bundle.left_out) == ["onnx-fp16", "onnx-int8-static"]
        assert next(v for v in made.verdicts if v.place == "wasm-fp16").reason == (
            "rejected and left out: the browser says nonsense"
        )
        assert [name for name in judged if "int8" in name] == ["onnx-int8-static", "onnx-int8-dynamic"]
        dynamic = build / "onnx-int8-dynamic" / "model.onnx"
        assert (folder / web.PATHS["q8"]).read_bytes() == dynamic.read_bytes()
        assert first["web"].status == "rejected"
        assert {o.target: o.part_of for o in first.values() if o.part_of} == dict.fromkeys(made_for_web, "web")
        assert "wasm-fp16: the browser says nonsense" in first["web"].sentences
        again = run.export(resolve_model(SMALL), wanted, build, recipe, QuietListener())
        assert again["web"].reused


def test_hosts_are_told_the_policy_of_the_page(tmp_path: Path) -> None:
    site.write_headers(tmp_path)
    assert static.POLICY in PAGE.read_text()
    for name in ("_headers", "vercel.json", ".htaccess", "deploy/nginx.conf"):
        text = (tmp_path / name).read_text()
        assert static.POLICY in text
        assert "require-corp" in text


def test_a_wheels_page_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "site" / "ort").mkdir(parents=True)
    (tmp_path / "site" / "ort" / "a.wasm.xz").write_bytes(lzma.compress(b"abc"))
    (tmp_path / "site" / "ort" / "a.asyncify.wasm.xz").write_bytes(lzma.compress(b"abc"))
    site.copy(tmp_path / "site", tmp_path / "out")
    assert {p.name: p.read_bytes() for p in (tmp_path / "out" / "ort").iterdir()} == {"a.wasm": b"abc"}


def test_without_node_the_page_of_a_checkout_cannot_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "CHECKOUT", tmp_path)
    monkeypatch.setattr(site, "PACKAGED", tmp_path / "packaged")
    assert "Reinstall edgekit from a wheel" in site.unavailable_reason()
    (tmp_path / "package.json").write_text("{}")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "npm is not installed" in site.unavailable_reason()
    with pytest.raises(ExportError, match=r"npm is not installed\. Install Node 20"):
        site.find()
    assert plan._installed_targets({"web": web.TARGET}) == ()


def test_a_file_that_hosts_refuse_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "model.onnx").open("wb") as file:
        file.truncate(site.LARGEST + 1)
    with pytest.raises(ExportError, match=r"'model\.onnx' has 25\.0 MiB, and common static hosts refuse"):
        site.compress(tmp_path, lambda done: None)


def test_compressed_bytes_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brotli = pytest.importorskip("brotli", reason="no brotli: pip install -e '.[web]'")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "a.js").write_text("let a = 1;" * 20_000)
    (folder / "b.png").write_bytes(b"0" * 2000)
    site.compress(folder, lambda done: None)
    assert brotli.decompress((folder / "a.js.br").read_bytes()) == (folder / "a.js").read_bytes()
    assert not (folder / "b.png.br").exists()
    for kept in (tmp_path / "cache" / "edgekit" / "compressed").iterdir():  # a damaged one is made again
        data = bytearray(kept.read_bytes())
        data[len(data) // 2] ^= 1
        kept.write_bytes(data)
    site.compress(folder, lambda done: None)
    assert brotli.decompress((folder / "a.js.br").read_bytes()) == (folder / "a.js").read_bytes()
    assert gzip.decompress((folder / "a.js.gz").read_bytes()) == (folder / "a.js").read_bytes()
    for library in (brotli, gzip):
        monkeypatch.setattr(library, "compress", lambda *_, **__: pytest.fail("compressed again"))
    site.compress(folder, lambda done: None)
