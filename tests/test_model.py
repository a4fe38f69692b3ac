import re
from pathlib import Path

import pytest
import torch

from edgekit import checkpoint, model
from edgekit.errors import CheckpointError, EdgekitError, ModelError, UsageError
from edgekit.testing import SMALL


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("arr-coc-tny", UsageError, "no model 'arr-coc-tny': did you mean 'arr-coc-tiny'"),
        ("nonsense", UsageError, "possible are arr-coc-tiny"),
        ("gone.safetensors", CheckpointError, "gone.safetensors"),
        ("no.such.module:factory", ModelError, "cannot import 'no.such.module'"),
        ("tests.models:gone", ModelError, "has no function 'gone'"),
        ("tests.models:raising", ModelError, "raised ValueError: the weights are on another machine at"),
        ("tests.models:no_spec", ModelError, "returned Linear, not an edgekit.model.ModelSpec"),
        ("tests.models:odd_size", ModelError, "axis 'height' of 'small': the default 100 is not a multiple of 16"),
    ],
)
def test_what_is_no_model_is_one_sentence(name: str, kind: type[EdgekitError], sentence: str) -> None:
    with pytest.raises(kind, match=re.escape(sentence)) as caught:
        model.resolve(name)
    assert "\n" not in str(caught.value)


def test_a_model_folder_gives_the_same_model_again(tmp_path: Path) -> None:
    spec = model.resolve(SMALL)
    with torch.no_grad():
        spec.module.get_parameter("norm.bias").fill_(0.25)  # other weights than the factory's
    model.save(spec, tmp_path / "model")
    again = model.load(tmp_path / "model")
    assert again.factory == SMALL
    assert model.weights_digest(again) == model.weights_digest(spec)
    assert model.weights_digest(model.resolve(SMALL)) != model.weights_digest(spec)


def test_saving_the_same_model_again_changes_nothing(tmp_path: Path) -> None:
    model.save(model.resolve(SMALL), tmp_path / "model")
    before = {p.name: p.stat().st_ino for p in (tmp_path / "model").iterdir()}
    model.save(model.resolve(SMALL), tmp_path / "model")
    assert {p.name: p.stat().st_ino for p in (tmp_path / "model").iterdir()} == before


def test_a_changed_model_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model.save(model.resolve(SMALL), folder)
    tensors = checkpoint.read(folder / model.WEIGHTS)
    tensors["norm.bias"] += 1
    checkpoint.write(folder / model.WEIGHTS, tensors)
    with pytest.raises(ModelError, match="was changed after it was written"):
        model.load(folder)
    (folder / model.CONFIG).write_text("{}")
    with pytest.raises(ModelError, match="is no model folder"):
        model.load(folder)


def test_a_checkpoint_becomes_the_preset_it_belongs_to(tmp_path: Path) -> None:
    tiny = model.resolve("arr-coc-tiny")
    path = tmp_path / "mine.pt"
    torch.save({"state_dict": tiny.module.state_dict()}, path)
    spec = model.resolve(str(path))
    assert spec.name == "arr-coc-tiny"
    assert model.weights_digest(spec) == model.weights_digest(tiny)
    torch.save({"other.weight": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError):
        model.resolve(str(path))
