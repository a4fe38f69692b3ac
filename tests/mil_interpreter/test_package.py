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
from mil_interpreter.errors import PackageError, UnsupportedError
from mil_interpreter.interpreter import Interpreter
from mil_interpreter.package import WeightFile, parse
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


def rewritten(file: Path, edit: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Gives a file of a package other bytes."""
    return lambda path: (path / file).write_bytes(edit((path / file).read_bytes()))


def changed(edit: Callable[[Any], object]) -> Callable[[Path], object]:
    """Changes the program."""

    def change(data: bytes) -> bytes:
        model = parse(data)
        edit(model)
        return bytes(model.SerializeToString())

    return rewritten(MODEL, change)


def blob(model: Any) -> Any:
    main = model.mlProgram.functions["main"]
    operations = main.block_specializations[main.opset].operations
    values = (operation.attributes["val"] for operation in operations)
    return next(value.blobFileValue for value in values if value.WhichOneof("value") == "blobFileValue")


MANIFEST = Path("Manifest.json")
OUTSIDE = b"../../../model.mlmodel"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda path: (path / MANIFEST).unlink(), "is not a Core ML package: it has no Manifest.json"),
    "no model": (lambda path: (path / MODEL).unlink(), "model.mlmodel' is damaged"),
    "no weights": (lambda path: (path / WEIGHTS).unlink(), "weight.bin' cannot be read"),
    "empty weights": (rewritten(WEIGHTS, lambda _: b""), "weight.bin' cannot be read"),
    "cut weights": (rewritten(WEIGHTS, lambda data: data[:-8]), "weight.bin' is cut off"),
    "cut header": (rewritten(WEIGHTS, lambda data: data[:40]), "weight.bin' is cut off: its header"),
    "another version": (
        rewritten(WEIGHTS, lambda data: b"\x01\0\0\0\x09" + data[5:]),
        "has no valid header .version 9.",
    ),
    "another sentinel": (
        rewritten(WEIGHTS, lambda data: data[:64] + bytes(4) + data[68:]),
        "is damaged at 64 .no blob starts there.",
    ),
    "another size": (
        rewritten(WEIGHTS, lambda data: data[:72] + struct.pack("<Q", 1 << 60) + data[80:]),
        "is damaged at 64 .it has 1152921504606846976 bytes",
    ),
    "another offset of the data": (
        rewritten(WEIGHTS, lambda data: data[:80] + struct.pack("<Q", 1 << 62) + data[88:]),
        "weight.bin' is cut off: a blob of",
    ),
    "cut model": (rewritten(MODEL, lambda data: data[:-20]), "model.mlmodel' is damaged"),
    "no JSON": (rewritten(MANIFEST, lambda _: b"{"), "Manifest.json' is damaged"),
    "a list": (rewritten(MANIFEST, lambda _: b"[1, 2]"), "Manifest.json' is damaged"),
    "a model outside": (
        rewritten(MANIFEST, lambda data: data.replace(b"com.apple.CoreML/model.mlmodel", OUTSIDE)),
        "names a file outside the package",
    ),
    "weights outside": (
        changed(lambda model: setattr(blob(model), "fileName", "@model_path/../../../../secret.bin")),
        "names a weight file outside its package",
    ),
    "misplaced blob": (changed(lambda model: setattr(blob(model), "offset", 65)), "is damaged at 65"),
    "no main": (changed(lambda model: model.mlProgram.functions.pop("main")), "has no function 'main'"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_one_sentence(made: Path, name: str) -> None:
    damage, sentence = DAMAGE[name]
    damage(made)
    with pytest.raises(PackageError, match=sentence) as caught:
        read_package(made)
    assert "\n" not in str(caught.value)


def test_a_model_that_is_no_ml_program_is_not_verified_here(made: Path) -> None:
    changed(lambda model: model.neuralNetwork.SetInParent())(made)
    with pytest.raises(UnsupportedError, match=r"the interpreter runs only ML Programs\. .* holds 'neuralNetwork'"):
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
    with pytest.raises(PackageError, match="the program declares"):
        WeightFile(tmp_path / "weight.bin").read(64, TensorType(dtype, (2, 4)))
