import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from edgekit.errors import CheckpointError, EdgekitError, ModelError, UsageError
from edgekit.model.folder import load_declaration, load_model, map_weights, save_model
from edgekit.model.records import CONFIG, WEIGHTS
from edgekit.model.sources import checkpoint, resolve_model
from edgekit.model.sources.checkpoint import weights_digest, with_weights
from edgekit.model.sources.onnx import file_of
from edgekit.runtime.eager import EagerRuntime
from edgekit.testing import SMALL
from tests import modules


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("arr-coc-tny", UsageError, "mean 'arr-coc-tiny'"),
        ("nonsense", UsageError, "Possible: arr-coc"),
        ("microsoft/swin-tiny", UsageError, "downloads nothing. Name a folder"),
        ("timm/resnet18", UsageError, "package.module:factory"),
        ("gone.onnx", UsageError, "file does not exist"),
        ("gone.safetensors", UsageError, "gone.safetensors"),
        ("no.such.module:factory", ModelError, "cannot import 'no.such.module'"),
        ("tests.models:gone", ModelError, "has no function 'gone'"),
        ("tests.models:raising", ModelError, "raised ValueError: the weights are on another machine at"),
        ("tests.models:no_spec", UsageError, "needs the shape of 'input'. Add --inputs input:shape="),
        ("tests.models:odd_size", ModelError, "axis 'height' of 'small': the default 100 is not a multiple of 16"),
    ],
)
def test_what_is_no_model_is_one_sentence(name: str, kind: type[EdgekitError], sentence: str) -> None:
    with pytest.raises(kind, match=re.escape(sentence)) as caught:
        resolve_model(name)
    assert "\n" not in str(caught.value)


def test_a_model_folder_gives_the_same_model_again(tmp_path: Path) -> None:
    spec = resolve_model(SMALL)
    with torch.no_grad():
        spec.module.get_parameter("norm.bias").fill_(0.25)  # other weights than the factory's
    save_model(spec, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.factory == SMALL
    assert weights_digest(again) == weights_digest(spec)
    assert weights_digest(resolve_model(SMALL)) != weights_digest(spec)


def test_saving_the_same_model_again_changes_nothing(tmp_path: Path) -> None:
    save_model(resolve_model(SMALL), tmp_path / "model")
    before = {p.name: p.stat().st_ino for p in (tmp_path / "model").iterdir()}
    save_model(resolve_model(SMALL), tmp_path / "model")
    assert {p.name: p.stat().st_ino for p in (tmp_path / "model").iterdir()} == before


def test_weights_that_a_folder_holds_are_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = resolve_model(SMALL)
    save_model(spec, tmp_path / "model")
    write = Mock(wraps=checkpoint.write_checkpoint)
    monkeypatch.setattr(checkpoint, "write_checkpoint", write)
    save_model(spec, tmp_path / "model")
    assert not write.called
    with torch.no_grad():
        spec.module.get_parameter("norm.bias").fill_(0.25)
    save_model(spec, tmp_path / "model")
    assert write.call_count == 1
    assert weights_digest(load_model(tmp_path / "model")) == weights_digest(spec)


def test_a_changed_model_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_model(resolve_model(SMALL), folder)
    tensors = checkpoint.read_checkpoint(folder / WEIGHTS)
    tensors["norm.bias"] += 1
    checkpoint.write_checkpoint(folder / WEIGHTS, tensors)
    with pytest.raises(ModelError, match="has changed since it was written"):
        load_model(folder)
    (folder / CONFIG).write_text("{}")
    with pytest.raises(ModelError, match="is not a model folder"):
        load_model(folder)


def test_a_checkpoint_becomes_the_preset_it_belongs_to(tmp_path: Path) -> None:
    tiny = resolve_model("arr-coc-tiny")
    path = tmp_path / "mine.pt"
    torch.save({"state_dict": tiny.module.state_dict()}, path)
    spec = resolve_model(str(path))
    assert spec.name == "arr-coc-tiny"
    assert weights_digest(spec) == weights_digest(tiny)
    torch.save({"other.weight": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError, match=re.escape("package.module:factory --weights FILE")):
        resolve_model(str(path))


@pytest.mark.parametrize("prefix", ["", "model.", "module.net."])
@pytest.mark.parametrize("factory", ["recurrent", "dictionary"])
def test_a_file_of_weights_fills_a_factory_and_names_it(factory: str, prefix: str, tmp_path: Path) -> None:
    spec = resolve_model(f"tests.modules:{factory}")
    theirs = getattr(modules, factory)().module.state_dict()
    path = tmp_path / "Best U-Net.pt"
    torch.save({f"{prefix}{name}": tensor + 1 for name, tensor in theirs.items()}, path)
    made = with_weights(spec, path)
    assert (made.name, made.author, made.licence, made.reference) == ("theirs-best-u-net", "", "", None)
    filled = list(made.module.state_dict().values())
    assert all(torch.equal(own, other + 1) for own, other in zip(filled, theirs.values(), strict=True))
    save_model(made, tmp_path / "model")
    assert weights_digest(load_model(tmp_path / "model")) == weights_digest(made)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    torch.save({"other.weight": torch.zeros(2)}, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=r"read as 'theirs', is of another model \(missing"):
        with_weights(resolve_model("tests.modules:recurrent"), tmp_path / "other.pt")


def test_fine_tuned_weights_have_a_name_and_an_author_of_their_own(tmp_path: Path) -> None:
    tiny = resolve_model("arr-coc-tiny")
    with torch.no_grad():
        next(tiny.module.parameters()).add_(0.001)
    path = tmp_path / "Tuned on birds.pt"
    torch.save(tiny.module.state_dict(), path)
    spec = resolve_model(str(path))
    assert (spec.name, spec.author, spec.licence) == ("arr-coc-tiny-tuned-on-birds", "", "")
    save_model(spec, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert (again.name, again.author, again.licence) == (spec.name, "", "")


def test_a_declaration_has_all_but_the_module(tmp_path: Path) -> None:
    spec = resolve_model(SMALL)
    save_model(spec, tmp_path / "model")
    declared = load_declaration(tmp_path / "model")
    assert not list(declared.module.parameters())
    for name in ("name", "inputs", "outputs", "axes", "licence", "author", "description", "trained_on", "facts"):
        assert getattr(declared, name) == getattr(spec, name)
    save_model(replace(spec, factory=""), tmp_path / "captured")
    assert list(load_declaration(tmp_path / "captured").module.parameters())


def test_a_factory_of_an_onnx_file_is_declared_with_its_file(tmp_path: Path) -> None:
    spec = resolve_model("tests.models:onnx_file")
    save_model(spec, tmp_path / "model")
    files = [file_of(each.module) for each in (spec, load_declaration(tmp_path / "model"))]
    first, second = (file.read_bytes() for file in files if file is not None)
    assert first == second


def test_mapped_weights_are_the_same_and_tied_ones_stay_tied(tmp_path: Path) -> None:
    spec = resolve_model(SMALL)
    spec.module.tied = spec.module.get_parameter("norm.bias")
    save_model(spec, tmp_path / "model")
    before, inputs = weights_digest(spec), spec.random(0)
    answer = EagerRuntime(spec).run(inputs)
    own = {name: tensor.data_ptr() for name, tensor in spec.module.state_dict().items()}
    map_weights(spec, tmp_path / "model")
    mapped = {name: tensor.data_ptr() for name, tensor in spec.module.state_dict().items()}
    assert not set(own.values()) & set(mapped.values())
    assert mapped["tied"] == mapped["norm.bias"]
    assert weights_digest(spec) == before
    for name, array in EagerRuntime(spec).run(inputs).items():
        np.testing.assert_allclose(array, answer[name], rtol=1e-4, atol=1e-6)
