"""`hf:ORG/NAME`: a repository in huggingface_hub's cache, or on a hub of this host."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from edgekit.errors import EdgekitError
from edgekit.model.parts import CompositeModel
from edgekit.model.sources import resolve, resolve_model
from tests.hub import REPOSITORY, Hub, serve_hub

pytest.importorskip("huggingface_hub", reason="no huggingface_hub: pip install huggingface_hub")

# The exporter's own.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
COMMIT = "0" * 40


def write_bert(folder: Path) -> Path:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50)
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def write_onnx(folder: Path) -> Path:
    (folder / "onnx").mkdir(parents=True)
    net = torch.nn.Linear(4, 2).eval()
    torch.onnx.export(
        net, (torch.zeros(2, 4),), folder / "onnx" / "model.onnx", dynamo=True, external_data=False, verbose=False,
        dynamic_shapes=({0: torch.export.Dim("batch", max=8)},),
    )  # fmt: skip
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of huggingface_hub, offline."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def store(cache: Path, name: str, write: Callable[[Path], Path]) -> None:
    """Lay a repository into the cache as huggingface_hub does."""
    folder = cache / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    write(folder / "snapshots" / COMMIT)


def test_a_cached_repository_of_transformers_is_named_after_itself(cache: Path) -> None:
    store(cache, "someone/tiny-bert", write_bert)
    spec = resolve_model("hf:someone/tiny-bert")
    assert spec.name == "tiny-bert"
    assert [i.name for i in spec.inputs][:1] == ["input_ids"]
    assert resolve_model(f"hf:someone/tiny-bert@{COMMIT}").outputs == spec.outputs
    composite = resolve("hf:someone/tiny-bert", task="text-classification")
    assert isinstance(composite, CompositeModel)
    assert composite.name == "tiny-bert"


def test_a_cached_repository_with_a_graph_is_an_onnx_file(cache: Path) -> None:
    store(cache, "onnx-community/net", write_onnx)
    spec = resolve_model("hf:onnx-community/net")
    assert (spec.name, len(spec.inputs), len(spec.outputs)) == ("net", 1, 1)


def test_pickled_weights_are_refused(cache: Path) -> None:
    def write(folder: Path) -> Path:
        folder.mkdir(parents=True)
        (folder / "pytorch_model.bin").write_bytes(b"pickle")
        (folder / "config.json").write_text("{}")
        return folder

    store(cache, "someone/old", write)
    with pytest.raises(EdgekitError, match="opens no pickled weights"):
        resolve("hf:someone/old")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hf:someone/none", "is not in the cache"),
        ("hf:none", "names no repository"),
        ("hf:a/b/c", "names no repository"),
        ("hf:someone/", "names no repository"),
        ("hf:some one/net", "names no repository"),
    ],
)
def test_what_cannot_be_is_one_sentence(name: str, words: str, cache: Path) -> None:
    with pytest.raises(EdgekitError, match=words):
        resolve(name)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with serve_hub(tmp_path / "hub") as application:
        yield application


def test_a_repository_is_fetched_without_pickles_and_once(hub: Hub, tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    hub.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert resolve_model(f"hf:{REPOSITORY}").name == "models"
    fetched = {path.name for path in (tmp_path / "hub").rglob("*") if path.is_file()}
    assert "model.safetensors" in fetched
    assert "pytorch_model.bin" not in fetched
    with pytest.raises(EdgekitError, match="does not exist, or is private"):
        resolve("hf:no/body")
    shutil.rmtree(folder)
    assert resolve_model(f"hf:{REPOSITORY}").name == "models"
