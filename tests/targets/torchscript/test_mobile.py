from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edgekit.artifact.store import __file__, commit, read_artifact
from edgekit.errors import ArtifactError, UsageError
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.spec import ModelSpec
from edgekit.target import Target
from edgekit.testing import TargetContract
from edgekit_targets.torchscript import export as torchscript
from edgekit_targets.torchscript import mobile as torch_mobile
from tests.targets import phone_models

TARGETS = {"torch-mobile": torch_mobile.TARGET, "torchscript": torchscript.TARGET}


class TestTorchMobile(TargetContract):
    name = "torch-mobile"


class TestTorchscript(TargetContract):
    name = "torchscript"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arr-coc-small")
    for name, target in TARGETS.items():
        phone_models.made(target, name, phone_models.arr_coc(), folder)
    return folder


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("sizes", [(1, 96, 96), (2, 96, 96), (3, 64, 160), (8, 112, 80)])
def test_answers_like_the_module_at_every_advertised_size(name: str, sizes: tuple[int, int, int], folder: Path) -> None:
    spec = phone_models.arr_coc()
    runtime = phone_models.opened(TARGETS[name], folder / name)
    assert_same(spec, TARGETS[name], folder / name, dict(zip(("batch", "height", "width"), sizes, strict=True)))
    assert ("lite" in runtime.device) == (name == "torch-mobile")
    runtime.close()


@pytest.mark.parametrize("name", TARGETS)
def test_takes_no_more_than_the_weights(name: str, folder: Path) -> None:
    weights = sum(4 * p.numel() for p in phone_models.arr_coc().module.parameters())
    whole = read_artifact(folder / name)
    models = [f for f in whole.files if f.path.endswith((".ptl", ".pt"))]
    # 40 KB of graph weigh more in 130 thousand weights than in arr-coc-tiny's 3.3 million, where 1.05 is held.
    assert all(f.size <= 1.05 * weights + 60_000 for f in models)


def test_says_its_operators_and_versions(folder: Path) -> None:
    manifest = read_artifact(folder / "torch-mobile")
    operators = (folder / "torch-mobile" / torch_mobile.OPERATORS).read_text().split("\n- ")
    assert "aten::topk" in operators
    notes = " ".join(manifest.notes)
    assert "bytecode version 8" in notes
    assert "aten::topk" in notes
    assert "XNNPACK" in notes


@pytest.mark.parametrize("name", TARGETS)
def test_holds_no_path_of_this_machine_and_is_aligned(name: str, folder: Path) -> None:
    manifest = read_artifact(folder / name)
    for path in (folder / name / f.path for f in manifest.files if zipfile.is_zipfile(folder / name / f.path)):
        with zipfile.ZipFile(path) as archive, path.open("rb") as stream:
            for entry in archive.infolist():
                record = archive.read(entry)
                assert b"site-packages" not in record
                assert str(Path(__file__).parent).encode() not in record
                stream.seek(entry.header_offset + 26)
                name_length, extra_length = np.frombuffer(stream.read(4), "<u2")
                assert (entry.header_offset + 30 + int(name_length) + int(extra_length)) % 64 == 0
                assert entry.compress_type == zipfile.ZIP_STORED


@pytest.mark.nightly
def test_takes_architectures_that_are_not_ours(tmp_path: Path) -> None:
    """Both targets compile alike; the mobile interpreter has fewer operators."""
    spec, target = phone_models.mobilevit(), torch_mobile.TARGET
    made = phone_models.made(target, "torch-mobile", spec, tmp_path)
    assert read_artifact(made).axes["batch"].dynamic
    for batch in (1, 2, 3, 8):
        assert_same(spec, target, made, {"batch": batch})


@pytest.mark.parametrize("name", TARGETS)
def test_refuses_a_damaged_file_with_a_sentence(name: str, folder: Path, tmp_path: Path) -> None:
    whole = (folder / name / TARGETS[name].load.__globals__["ENTRY"]).read_bytes()  # type: ignore[attr-defined]
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    cases = {"cut": whole[: len(whole) // 2], "flipped": bytes(flipped), "text": b"not a model", "empty": b""}
    manifest = read_artifact(folder / name)
    for case, content in cases.items():
        broken = tmp_path / case
        broken.mkdir()
        (broken / manifest.entry).write_bytes(content)
        commit(broken, manifest)
        with pytest.raises(ArtifactError, match=r"export again|refuses"):
            phone_models.opened(TARGETS[name], broken)


def test_refuses_a_size_that_is_fixed(tmp_path: Path) -> None:
    made = phone_models.made(torch_mobile.TARGET, "torch-mobile", phone_models.vit(), tmp_path)
    runtime = phone_models.opened(torch_mobile.TARGET, made)
    with pytest.raises(UsageError, match=r"takes 'images' as \[any, 3, 64, 64\], not \[1, 3, 32, 64\]"):
        runtime.run({"images": np.zeros((1, 3, 32, 64), np.float32)})


def test_leaves_the_callers_arrays_alone(folder: Path) -> None:
    runtime = phone_models.opened(torch_mobile.TARGET, folder / "torch-mobile")
    inputs = phone_models.arr_coc_inputs(0)
    before = hashlib.sha256(inputs["images"].tobytes()).digest()
    runtime.run(inputs)
    assert hashlib.sha256(inputs["images"].tobytes()).digest() == before


def assert_same(spec: ModelSpec, target: Target, folder: Path, sizes: dict[str, int]) -> None:
    import torch

    runtime = phone_models.opened(target, folder)
    inputs = spec.random(5, sizes)
    got = runtime.run(inputs)
    with torch.no_grad():
        wanted = named_outputs(spec, spec.module(*to_tensors(spec, inputs)))
    for name in wanted:
        np.testing.assert_allclose(got[name], wanted[name], rtol=0, atol=1e-5, err_msg=name)
    runtime.close()
