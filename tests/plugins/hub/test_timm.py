"""Models of timm by folder or name: mean and deviation inside, nothing downloaded; the real timm, where it is there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgekit.errors import DependencyError, ModelError
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.folder import load_model, save_model
from edgekit.model.sources import resolve_model
from edgekit.model.sources.checkpoint import weights_digest

NAME, MEAN, DEVIATION = "test_vit.r160_in1k", (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)


@pytest.fixture
def timm() -> Any:
    return pytest.importorskip("timm", reason="no timm: pip install timm", exc_type=ImportError)


@pytest.fixture
def folder(timm: Any, tmp_path: Path) -> Path:
    """What timm itself writes, of its smallest transformer with seeded weights and five classes."""
    torch.manual_seed(0)
    model = timm.create_model("test_vit", num_classes=5)
    model.pretrained_cfg.update(mean=MEAN, std=DEVIATION)
    names = {"label_names": list("abcde"), "label_descriptions": {"a": "ant"}}
    timm.models.save_for_hf(model, tmp_path / "Tiny ViT", model_config=names, safe_serialization=True)
    return tmp_path / "Tiny ViT"


def test_a_folder_becomes_a_model_that_takes_pictures_as_they_are(folder: Path, timm: Any, tmp_path: Path) -> None:
    spec = resolve_model(f"timm:{folder}")
    assert spec.name == "tiny-vit"
    assert [(i.name, i.shape, i.kind, i.fit) for i in spec.inputs] == [
        ("images", ("batch", 3, 160, 160), "image", "crop")
    ]
    assert [(o.name, o.role, o.classes) for o in spec.outputs] == [("logits", "logits", ("ant", "b", "c", "d", "e"))]
    images = np.random.default_rng(0).random((2, 3, 160, 160), np.float32)
    torch.manual_seed(0)
    own = timm.create_model("test_vit", num_classes=5).eval()
    mean, deviation = (torch.tensor(values).reshape(1, 3, 1, 1) for values in (MEAN, DEVIATION))
    with torch.no_grad():
        wanted = own((torch.from_numpy(images) - mean) / deviation).numpy()
        given = named_outputs(spec, spec.module(*to_tensors(spec, {"images": images})))["logits"]
    np.testing.assert_allclose(given, wanted, atol=1e-5)
    save_model(spec, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert weights_digest(again) == weights_digest(spec)
    assert again.outputs == spec.outputs


def test_a_name_is_taken_from_the_cache_and_refused_where_that_has_no_weights(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    fetch = f"Fetch them with `hf download timm/{NAME} config.json model.safetensors`"
    with pytest.raises(ModelError, match=f"the weights of '{NAME}' are not on this machine.*{fetch}"):
        resolve_model(f"timm:{NAME}")
    stored = tmp_path / "hub" / f"models--timm--{NAME}"
    (stored / "refs").mkdir(parents=True)
    (stored / "refs" / "main").write_text("0" * 40)
    (stored / "snapshots").mkdir()
    folder.rename(stored / "snapshots" / ("0" * 40))
    assert resolve_model(f"timm:{NAME}").name == "test-vit.r160-in1k"


def test_what_cannot_be_is_said_in_a_sentence(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"mean '\w*resnet"):
        resolve_model("timm:resnet17")
    config = json.loads((folder / "config.json").read_text())
    for change, sentence in (
        ({"in_chans": 1}, "1 channels. It must be 3"),
        ({"num_classes": 6}, "holds other weights"),
    ):
        described = {**config, "model_args": {**config["model_args"], **change}}
        (folder / "config.json").write_text(json.dumps(described))
        with pytest.raises(ModelError, match=sentence):
            resolve_model(f"timm:{folder}")
    arguments = {key: value for key, value in config["model_args"].items() if key != "num_classes"}  # as of older timms
    (folder / "config.json").write_text(json.dumps({**config, "num_classes": 6, "model_args": arguments}))
    with pytest.raises(ModelError, match="holds other weights than"):
        resolve_model(f"timm:{folder}")
    (folder / "model.safetensors").write_bytes(b"no")
    with pytest.raises(ModelError, match=r"model.safetensors' cannot be read"):
        resolve_model(f"timm:{folder}")
    (folder / "config.json").write_text(json.dumps({**config, "architecture": "mine"}))
    with pytest.raises(ModelError, match="the architecture 'mine', which the installed timm lacks"):
        resolve_model(f"timm:{folder}")
    (folder / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="cannot be read"):
        resolve_model(f"timm:{folder}")


def test_without_timm_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(DependencyError, match="needs timm and torchvision: pip install timm"):
        resolve_model("timm:resnet18")
