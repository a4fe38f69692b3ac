from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import onnx
import pytest

from edgekit.errors import ArtifactError, UsageError
from edgekit.model.sources import resolve_model
from edgekit.pipeline import run
from edgekit.testing import SMALL, QuietListener, small_model
from edgekit_inspect import attribution
from tests.plugins.inspect.test_broken_modules import broken, noisy


@pytest.fixture(scope="module")
def build(small_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = Path(shutil.copytree(small_build, tmp_path_factory.mktemp("build") / "small"))
    targets, options = ("onnx-int8-dynamic", "onnx-int8-static"), {"onnx-int8-static": {"search": "none"}}
    run.export(resolve_model(SMALL), targets, root, options, QuietListener())
    return root


@pytest.mark.parametrize("number", range(3))
def test_the_perturbed_module_is_named(number: int, build: Path) -> None:
    graph = onnx.load(build / "onnx" / "model.onnx")
    weights = {i.name for i in graph.graph.initializer}
    linears = [n for n in graph.graph.node if n.op_type in ("Gemm", "MatMul") and n.input[1] in weights]
    linear = linears[number % len(linears)]
    rows = [small_model().random(seed) for seed in range(3)]
    parts = attribution.attribute(graph, broken(graph, linear.input[1], noisy), rows)
    worst = max(parts, key=lambda part: part.introduced)
    assert worst.module == linear.name.rpartition("/")[0]
    assert worst.noise_in == 0.0
    assert [part.introduced for part in parts if part != worst] == [0.0] * (len(parts) - 1)


def test_the_same_graph_has_no_noise(build: Path) -> None:
    graph = onnx.load(build / "onnx" / "model.onnx")
    parts = attribution.attribute(graph, graph, [small_model().random(1)])
    assert parts
    assert all(part.noise_out == 0.0 for part in parts)


@pytest.mark.parametrize("name", ["onnx-fp16", "onnx-int8-dynamic", "onnx-int8-static"])
def test_artifacts_are_explained_and_drawn(name: str, build: Path, tmp_path: Path) -> None:
    found = attribution.explain(build / name, images=2)
    assert 0 < max(part.noise_out for part in found.parts) < (0.02 if name == "onnx-fp16" else 0.5)
    data, plot = attribution.write_attribution(found, tmp_path)
    parts = json.loads(data.read_text())["parts"]
    assert [(p["module"], p["introduced"], p["carried"]) for p in parts] == [
        (p.module, p.introduced, p.propagated_noise) for p in found.parts
    ]
    texts = re.findall(r">([^<>]+)</text>", plot.read_text())
    assert all(part.module in texts for part in found.parts if part.module)


def test_what_cannot_be_explained_is_refused(build: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fp16 and INT8 ONNX artifacts can be explained, against 'onnx'"):
        attribution.explain(build / "onnx")
    with pytest.raises(ArtifactError):
        attribution.explain(tmp_path / "nowhere")
    copy = Path(shutil.copytree(build, tmp_path / "small"))
    (copy / "onnx" / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(ArtifactError):
        attribution.explain(copy / "onnx-fp16")
