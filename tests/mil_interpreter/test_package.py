"""Packages on disk: what is written, what is read, and what damage does: a sentence, never a crash."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mil_interpreter import read_package, write_package
from mil_interpreter.blob import WeightFile
from mil_interpreter.decode import parse
from mil_interpreter.errors import PackageError, UnsupportedError
from mil_interpreter.interpreter import Interpreter
from mil_interpreter.records import TensorType

MODEL = Path("Data/com.apple.CoreML/model.mlmodel")
WEIGHTS = Path("Data/com.apple.CoreML/weights/weight.bin")
X = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)


@pytest.fixture
def made(saved: Any, tmp_path: Path) -> Path:
    from coremltools.converters.mil.mil import Builder

    weight = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)
    path = saved.save({"x": X}, lambda v: Builder.softmax(x=Builder.linear(x=v["x"], weight=weight)))
    return Path(shutil.copytree(path, tmp_path / "Layer.mlpackage"))


def files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def test_reading_gives_what_was_saved(made: Path) -> None:
    read = read_package(made)
    assert [o.kind for o in read.main.operations if o.kind != "const"] == ["linear", "softmax"]
    assert [(a.name, a.type) for a in read.arguments] == [("x", TensorType("fp32", (4, 16)))]
    assert [(f.name, f.kind, f.shape) for f in read.inputs] == [("x", "tensor", (4, 16))]
    assert read.opset == "CoreML7"


def test_writing_what_was_read_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    model = parse((made / MODEL).read_bytes())
    write_package(model, made / WEIGHTS, tmp_path / "Again.mlpackage")
    assert files(tmp_path / "Again.mlpackage") == files(made)


def test_a_package_without_weights_names_none(tmp_path: Path, made: Path) -> None:
    write_package(parse((made / MODEL).read_bytes()), None, tmp_path / "Bare.mlpackage")
    manifest = json.loads((tmp_path / "Bare.mlpackage" / "Manifest.json").read_text())
    assert [entry["name"] for entry in manifest["itemInfoEntries"].values()] == ["model.mlmodel"]


def test_coremltools_reads_what_is_written(made: Path) -> None:
    import coremltools

    assert coremltools.utils.load_spec(str(made)).WhichOneof("Type") == "mlProgram"


def no_manifest(path: Path) -> None:
    (path / "Manifest.json").unlink()


def no_model(path: Path) -> None:
    (path / MODEL).unlink()


def no_weights(path: Path) -> None:
    (path / WEIGHTS).unlink()


def empty_weights(path: Path) -> None:
    (path / WEIGHTS).write_bytes(b"")


def cut_weights(path: Path) -> None:
    (path / WEIGHTS).write_bytes((path / WEIGHTS).read_bytes()[:-8])


def cut_weights_header(path: Path) -> None:
    (path / WEIGHTS).write_bytes((path / WEIGHTS).read_bytes()[:40])


def wrong_version(path: Path) -> None:
    (path / WEIGHTS).write_bytes(b"\x01\0\0\0\x09" + (path / WEIGHTS).read_bytes()[5:])


def wrong_sentinel(path: Path) -> None:
    data = (path / WEIGHTS).read_bytes()
    (path / WEIGHTS).write_bytes(data[:64] + b"\0\0\0\0" + data[68:])


def wrong_size(path: Path) -> None:
    data = (path / WEIGHTS).read_bytes()
    (path / WEIGHTS).write_bytes(data[:72] + struct.pack("<Q", 1 << 60) + data[80:])


def wrong_data_offset(path: Path) -> None:
    data = (path / WEIGHTS).read_bytes()
    (path / WEIGHTS).write_bytes(data[:80] + struct.pack("<Q", 1 << 62) + data[88:])


def cut_model(path: Path) -> None:
    (path / MODEL).write_bytes((path / MODEL).read_bytes()[:-20])


def no_json(path: Path) -> None:
    (path / "Manifest.json").write_text("{")


def other_json(path: Path) -> None:
    (path / "Manifest.json").write_text("[1, 2]")


def escape(path: Path) -> None:
    text = (path / "Manifest.json").read_text()
    (path / "Manifest.json").write_text(text.replace("com.apple.CoreML/model.mlmodel", "../../../model.mlmodel"))


def change(path: Path, edit: Callable[[Any], None]) -> None:
    model = parse((path / MODEL).read_bytes())
    edit(model)
    (path / MODEL).write_bytes(model.SerializeToString())


def escaping_weights(path: Path) -> None:
    change(path, lambda model: _blob(model).__setattr__("fileName", "@model_path/../../../../secret.bin"))


def misplaced_blob(path: Path) -> None:
    change(path, lambda model: _blob(model).__setattr__("offset", 65))


def no_main(path: Path) -> None:
    change(path, lambda model: model.mlProgram.functions.pop("main"))


def _blob(model: Any) -> Any:
    main = model.mlProgram.functions["main"]
    operations = main.block_specializations[main.opset].operations
    return next(
        o.attributes["val"].blobFileValue
        for o in operations
        if o.attributes["val"].WhichOneof("value") == "blobFileValue"
    )


DAMAGE: dict[Callable[[Path], None], str] = {
    no_manifest: "is not a Core ML package: it has no Manifest.json",
    no_model: "model.mlmodel' is damaged",
    no_weights: "weight.bin' cannot be read",
    empty_weights: "weight.bin' cannot be read",
    cut_weights: "weight.bin' is cut off",
    cut_weights_header: "weight.bin' is cut off: its header",
    wrong_version: "has no valid header .version 9.",
    wrong_sentinel: "is damaged at 64 .no blob starts there.",
    wrong_size: "is damaged at 64 .1152921504606846976 bytes",
    wrong_data_offset: "weight.bin' is cut off: a blob of",
    cut_model: "model.mlmodel' is damaged",
    no_json: "Manifest.json' is damaged",
    other_json: "Manifest.json' is damaged",
    escape: "names a file outside the package",
    escaping_weights: "names a weight file outside its package",
    misplaced_blob: "is damaged at 65",
    no_main: "has no function 'main'",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda d: d.__name__)
def test_damage_is_one_sentence(made: Path, damage: Callable[[Path], None]) -> None:
    damage(made)
    with pytest.raises(PackageError, match=DAMAGE[damage]) as caught:
        read_package(made)
    assert "\n" not in str(caught.value)


def test_a_model_that_is_no_ml_program_is_not_verified_here(made: Path) -> None:
    change(made, lambda model: model.neuralNetwork.SetInParent())
    with pytest.raises(UnsupportedError, match=r"the interpreter runs ML Programs; .* holds 'neuralNetwork'"):
        read_package(made)


@pytest.mark.parametrize("file", [MODEL, WEIGHTS, Path("Manifest.json")], ids=lambda f: f.name)
def test_flipped_bytes_never_crash(made: Path, file: Path) -> None:
    """Each package answers, or is refused with one sentence. Manifest hashes are what tells a changed weight."""
    good = (made / file).read_bytes()
    random = np.random.default_rng(7)
    sentences: list[str] = []
    for position in random.integers(0, min(len(good), 4096), 150):
        (made / file).write_bytes(
            good[:position] + bytes([good[position] ^ int(random.integers(1, 256))]) + good[position + 1 :]
        )
        try:
            Interpreter(read_package(made)).run({"x": X})
        except (PackageError, UnsupportedError) as error:
            sentences.append(str(error))
    assert len(sentences) > 5
    assert not [s for s in sentences if "\n" in s]


def test_truncation_anywhere_is_refused(made: Path) -> None:
    for file in (MODEL, WEIGHTS):
        good = (made / file).read_bytes()
        for size in range(0, len(good) - 64, 97):
            (made / file).write_bytes(good[:size])
            with pytest.raises((PackageError, UnsupportedError)):
                Interpreter(read_package(made)).run({"x": X})
        (made / file).write_bytes(good)


BLOBS = {"fp16": (1, "<f2"), "fp32": (2, "<f4"), "uint8": (3, "u1"), "int8": (4, "i1"), "int32": (14, "<i4")}


@pytest.mark.parametrize("dtype", BLOBS)
def test_blobs_of_every_type(tmp_path: Path, dtype: str) -> None:
    kind, stored = BLOBS[dtype]
    values = np.array([[1, 2, 3], [4, 5, 6]], stored)
    header = struct.pack("<II56x", 1, 2)
    description = struct.pack("<IIQQQ32x", 0xDEADBEEF, kind, values.nbytes, 128, 0)
    (tmp_path / "weight.bin").write_bytes(header + description + values.tobytes())
    read = WeightFile(tmp_path / "weight.bin").read(64, TensorType(dtype, (2, 3)))
    np.testing.assert_array_equal(read, values)
    with pytest.raises(PackageError, match="the program says"):
        WeightFile(tmp_path / "weight.bin").read(64, TensorType(dtype, (2, 4)))
