import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgekit.artifact.fact import Code
from edgekit.errors import RecordError
from edgekit.judge import verdict
from edgekit.judge.limits import FP32
from edgekit.model.evaluation_set import evaluation_of
from edgekit.model.sources import resolve_model
from edgekit.reference import adopt, store
from edgekit.reference.adopt import obtain
from edgekit.reference.batches import Batch, batches_for
from edgekit.reference.info import INFO, INPUTS, ReferenceInfo, read_info
from edgekit.reference.record import record_reference
from edgekit.reference.store import read_reference, write_reference
from edgekit.storage.files import digest_file
from edgekit.storage.verified_io import seal_record
from edgekit.testing import SMALL


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference") / "reference"
    record_reference(resolve_model(SMALL), folder)
    return folder


def test_only_the_evaluation_inputs_are_stored_and_all_others_are_made_again(recorded: Path) -> None:
    spec = resolve_model(SMALL)
    stored = load_file(recorded / INPUTS)
    assert set(stored) == {"evaluation/images", "evaluation/queries"}
    asked = {batch.name: batch for batch in batches_for(spec, evaluation_of(spec))}
    for batch in read_reference(recorded).batches:
        for name, array in batch.inputs.items():
            assert array.dtype == asked[batch.name].inputs[name].dtype
            np.testing.assert_array_equal(array, asked[batch.name].inputs[name])


def test_pictures_of_8_bits_are_stored_as_bytes_and_read_bit_for_bit(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32)).astype(np.float32) / np.float32(255)
    drawn = np.random.default_rng(1).random((2, 3, 32, 32), np.float32)
    signed = pixels.copy()
    signed[0, 0, 0] = -0.0
    turned = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)  # channels last in memory
    inputs = {"pixels": pixels, "drawn": drawn, "signed": signed, "unknown": np.full_like(pixels, np.nan)}
    inputs["turned"] = turned
    batch = Batch("evaluation", inputs, {"y": np.zeros((2, 1), np.float32)}, {}, ("one", "two"))
    write_reference(tmp_path / "reference", (batch,), {"noise": {}}, with_inputs=True)
    assert [n for n, a in load_file(tmp_path / "reference" / INPUTS).items() if a.dtype == np.uint8] == [
        "evaluation/pixels",
        "evaluation/turned",
    ]
    for name, array in read_reference(tmp_path / "reference").batches[0].inputs.items():
        assert array.tobytes() == inputs[name].tobytes()
        assert array.strides == inputs[name].strides
    info = read_info(tmp_path / "reference")
    assert info.image_input() == "evaluation/drawn"
    for name in ("evaluation/pixels", "evaluation/turned"):
        picture = info.picture(name, 1)
        assert picture is not None
        np.testing.assert_array_equal(picture, np.rint(pixels[1] * 255).transpose(1, 2, 0))


def test_inputs_that_would_be_too_large_to_make_again_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LARGEST", 1)
    record_reference(resolve_model(SMALL), tmp_path / "whole")
    whole = read_reference(tmp_path / "whole")
    assert {name.partition("/")[0] for name in load_file(tmp_path / "whole" / INPUTS)} == {
        b.name for b in whole.batches
    }


def test_a_changed_declaration_of_the_inputs_is_refused(recorded: Path, tmp_path: Path) -> None:
    changes: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
        ("changed after it was recorded", lambda d: d["inputs"][1].update(dtype="float64")),
        ("cannot be regenerated", lambda d: d["inputs"][0].update(high=0.5)),  # names of changed inputs say it
        ("changed after it was recorded", lambda d: d["axes"]["height"].update(default=1 << 40)),
        ("cannot be regenerated", lambda d: d["inputs"][0].update(dtype="float99")),
        ("cannot be regenerated", lambda d: d.pop("axes")),
        ("cannot be regenerated", lambda d: d["axes"]["batch"].update(default=-1)),
    ]
    for number, (sentence, change) in enumerate(changes):
        copy = tmp_path / str(number)
        shutil.copytree(recorded, copy)
        info = json.loads((copy / INFO).read_text())
        change(info["declared"])
        (copy / INFO).write_text(seal_record(info))
        with pytest.raises(RecordError, match=sentence):
            read_reference(copy)


class RecordedError(Exception):
    """Raised in place of recording."""


@pytest.fixture
def no_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RecordedError

    monkeypatch.setattr(adopt, "record", refuse)


@pytest.mark.usefixtures("no_recording")
def test_a_build_keeps_its_reference_until_weights_or_inputs_change(recorded: Path, tmp_path: Path) -> None:
    import torch

    spec = resolve_model(SMALL)
    assert obtain(spec, recorded).sha256 == digest_file(recorded / INFO)
    with pytest.raises(RecordedError):
        obtain(spec, tmp_path / "none")
    assert spec.evaluation is not None
    real = spec.evaluation()
    turned = replace(real, inputs={**real.inputs, "queries": real.inputs["queries"][::-1].copy()})
    with pytest.raises(RecordedError):
        obtain(replace(spec, evaluation=lambda: turned), recorded)
    with torch.no_grad():
        spec.module.get_parameter("norm.bias").add_(1)
    with pytest.raises(RecordedError):
        obtain(spec, recorded)


def test_a_shipped_reference_is_adopted_by_its_model_only(
    recorded: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    import torch

    shipped = tmp_path / "shipped"
    record_reference(resolve_model(SMALL), shipped, with_inputs=False)
    assert not (shipped / INPUTS).exists()
    request.getfixturevalue("no_recording")
    spec = replace(resolve_model(SMALL), reference=shipped)
    other = obtain(spec, tmp_path / "build")
    one = read_reference(recorded)
    assert np.array_equal(one.batches[0].outputs["relevance"], other.batches[0].outputs["relevance"])
    assert np.array_equal(one.batches[0].inputs["images"], other.batches[0].inputs["images"])
    with pytest.raises(RecordedError):
        obtain(replace(spec, reference=tmp_path / "nothing"), tmp_path / "other")
    with torch.no_grad():
        spec.module.get_parameter("norm.bias").add_(1)
    with pytest.raises(RecordedError):
        obtain(spec, tmp_path / "other")


@pytest.mark.usefixtures("no_recording")
def test_what_a_shipped_reference_did_not_record_is_answered_by_the_cpu_and_said(
    recorded: Path, tmp_path: Path
) -> None:
    """Features of the fifth row on, a whole batch, and the noise of features."""
    whole, shipped = read_reference(recorded), tmp_path / "shipped"
    kept = [
        replace(b, outputs={n: a[:4] if n == "tokens" else a for n, a in b.outputs.items()}, answered_by="a GPU")
        for b in whole.batches
        if b.name != "stress"
    ]
    noise = {"relevance": whole.info.raw["noise"]["relevance"]}
    write_reference(shipped, tuple(kept), {**whole.info.raw, "device": "a GPU", "noise": noise}, with_inputs=False)
    found = obtain(replace(resolve_model(SMALL), reference=shipped), tmp_path / "build")
    batches = {b.name: b for b in found.batches}
    assert batches["stress"].answered_by.startswith("PyTorch")
    assert batches["grid-00"].answered_by == "a GPU"
    assert batches["evaluation"].answered_by.startswith("a GPU (features that it did not keep: PyTorch")
    for before, after in zip(whole.batches, found.batches, strict=True):
        assert before.outputs.keys() == after.outputs.keys()
        for name, array in before.outputs.items():
            assert np.allclose(array, after.outputs[name], rtol=0, atol=1e-5), (before.name, name)
    assert found.noise["tokens"] > 0


@pytest.mark.usefixtures("no_recording")
@pytest.mark.parametrize("file", ["reference.json", "outputs.safetensors"])
def test_a_shipped_reference_that_was_changed_is_not_adopted(recorded: Path, tmp_path: Path, file: str) -> None:
    shipped = tmp_path / "shipped"
    shutil.copytree(recorded, shipped)
    data = (shipped / file).read_bytes()
    changed = data.replace(b'"relevance"', b'"Relevance"', 1) if file == INFO else data[:-1] + bytes([data[-1] ^ 1])
    (shipped / file).write_bytes(changed)
    with pytest.raises(RecordError, match="was changed after it was recorded"):
        obtain(replace(resolve_model(SMALL), reference=shipped), tmp_path / "build")


def test_no_gpu_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RecordError, match="no CUDA device is visible"):
        record_reference(resolve_model(SMALL), tmp_path / "reference", device="cuda")
    assert not list(tmp_path.iterdir())


def test_answers_in_another_memory_layout_are_kept_as_they_are(tmp_path: Path) -> None:
    turned = np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(0, 2, 1)
    batch = Batch("evaluation", {"x": turned}, {"y": turned}, {}, ("one", "two"))
    write_reference(tmp_path / "reference", (batch,), {"noise": {}}, with_inputs=True)
    found = read_reference(tmp_path / "reference").batches[0]
    assert np.array_equal(found.inputs["x"], turned)
    assert np.array_equal(found.outputs["y"], turned)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_noise_that_is_not_finite_reaches_the_judge(recorded: Path, tmp_path: Path, bad: float) -> None:
    """Whatever stands beside it: such a reference verifies nothing."""
    copy = tmp_path / "reference"
    shutil.copytree(recorded, copy)
    info = json.loads((copy / INFO).read_text())
    info["noise"]["relevance"] = {"cpu32 cpu64": 1e-7, "cuda cpu32": bad}
    (copy / INFO).write_text(seal_record(info))
    found = read_reference(copy)
    judged = verdict.judge(FP32, found.noise)
    assert judged.status == "not verified here"
    assert judged.reasons[0].code is Code.REFERENCE_NOISE


def test_a_reference_without_real_inputs_is_whole(tmp_path: Path) -> None:
    (tmp_path / "outputs.safetensors").write_bytes(b"outputs")
    outputs = digest_file(tmp_path / "outputs.safetensors")
    assert ReferenceInfo(tmp_path, files={"outputs.safetensors": outputs, "inputs.safetensors": ""}).damage == ""
    changed = ReferenceInfo(tmp_path, files={"outputs.safetensors": "", "inputs.safetensors": ""}).damage
    assert changed == "'outputs.safetensors' is missing or was changed since it was recorded"
