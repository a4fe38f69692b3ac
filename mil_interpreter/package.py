"""A saved `.mlpackage`: read from disk as records, and written so that equal programs give equal bytes.

Layout: `Manifest.json` names items under `Data/`. The root item is `model.mlmodel` (a `Model` protobuf with the ML
Program), the other one the folder of its weight files. Definitions: `Model.proto`, `FeatureTypes.proto` and `MIL.proto`
in coremltools' `mlmodel/format`, and `ModelPackage.cpp` in its `modelpackage/src` for the manifest. Nothing here trusts
the file: sizes are checked against the data that carry them before an array is made.

Core ML's protobuf classes come from coremltools without an import of all of it. `import coremltools` also imports its
converters, torch and scikit-learn (10 s, and a page of warnings), and its `proto` folder needs none of them. So that
folder is imported alone, under another name. If coremltools is loaded already, its own classes are used (protobuf makes
both the same).

Weight files (`weights/weight.bin`): Core ML's blob storage, version 2, read with every bound checked. The format,
little-endian, from coremltools' `mlmodel/src/MILBlob/Blob/StorageFormat.hpp`:

- a header of 64 bytes: uint32 number of blobs, uint32 version (2), the rest reserved;
- for each blob, at a multiple of 64: uint32 0xDEADBEEF, uint32 element type, uint64 size in bytes, uint64 offset of the
  data (again a multiple of 64), uint64 padding in bits (of sub-byte types), 32 reserved bytes.

A program names a blob by the offset of its 64-byte description.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mil_interpreter.errors import PackageError, UnsupportedError
from mil_interpreter.records import (
    LARGEST_TENSOR,
    WORKING_DTYPES,
    Array,
    Constant,
    Feature,
    MilBlock,
    Operation,
    OperationResult,
    Package,
    Shape,
    TensorType,
    Value,
)

_AUTHOR = "com.apple.CoreML"
# Fixed, since coremltools draws a random one for every save.
_MODEL_ID = "A1B3C1E2-6F0D-5E5B-9C1B-0A6D3F6A0001"
_WEIGHTS_ID = "A1B3C1E2-6F0D-5E5B-9C1B-0A6D3F6A0002"
_ITEMS = {
    _MODEL_ID: {
        "author": _AUTHOR,
        "description": "CoreML Model Specification",
        "name": "model.mlmodel",
        "path": f"{_AUTHOR}/model.mlmodel",
    },
    _WEIGHTS_ID: {
        "author": _AUTHOR,
        "description": "CoreML Model Weights",
        "name": "weights",
        "path": f"{_AUTHOR}/weights",
    },
}
# In bytes.
_LARGEST_JSON = 1 << 20
_ARRAY_TYPES = {65568: "fp32", 65600: "fp64", 131104: "int32", 131080: "int8", 65552: "fp16"}
_COLOURS = {10: "GRAYSCALE", 20: "RGB", 30: "BGR", 40: "GRAYSCALE_FLOAT16"}
Message = Any
"""A protobuf message. coremltools has no types for its classes."""
_PROTO_PACKAGE = "mil_interpreter_coremltools_proto"
# The folder of a program's model.mlmodel, in the program.
MODEL_PATH = "@model_path/"
_DTYPES = {
    1: "bool",
    2: "string",
    10: "fp16",
    11: "fp32",
    12: "fp64",
    21: "int8",
    22: "int16",
    23: "int32",
    24: "int64",
    31: "uint8",
    32: "uint16",
    33: "uint32",
    34: "uint64",
}
_IN_BYTES = {"fp16": "<f2", "int8": "i1", "uint8": "u1", "int16": "<i2", "uint16": "<u2", "uint32": "<u4"}
# In bytes.
_ALIGNMENT = 64
_VERSION = 2
_SENTINEL = 0xDEADBEEF
_HEADER = struct.Struct("<II56x")
_DESCRIPTION = struct.Struct("<IIQQQ32x")
# MIL element type -> (blob element type, NumPy dtype in the file).
_STORED: dict[str, tuple[int, str]] = {
    "fp16": (1, "<f2"),
    "fp32": (2, "<f4"),
    "uint8": (3, "u1"),
    "int8": (4, "i1"),
    "int16": (6, "<i2"),
    "uint16": (7, "<u2"),
    "int32": (14, "<i4"),
    "uint32": (15, "<u4"),
}


def read_package(path: Path | str) -> Package:
    """Read a package from disk, with every constant of its program.

    Raises:
        PackageError: If it is not a package, or damaged.
        UnsupportedError: If it is a Core ML model of a kind that the interpreter does not run.
        ModuleNotFoundError: If coremltools, which has the protobuf classes, is not installed.
    """
    path = Path(path)
    model_file = _root(path)
    try:
        model = parse(model_file.read_bytes())
    except (OSError, ValueError) as error:
        raise PackageError(f"the model '{model_file}' is damaged ({error})") from error
    if model.WhichOneof("Type") != "mlProgram":
        raise UnsupportedError(f"the interpreter runs only ML Programs. '{path}' holds {model.WhichOneof('Type')!r}")
    main = model.mlProgram.functions.get("main")
    if main is None or main.opset not in main.block_specializations:
        raise PackageError(f"the program in '{path}' has no function 'main' for its opset")
    decoder = Decoder(model_file.parent)
    try:
        block = decoder.block(main.block_specializations[main.opset])
        arguments = tuple(decoder.result(i) for i in main.inputs)
    except PackageError as error:
        raise PackageError(f"'{path}' is damaged: {error}") from error
    inputs = tuple(_feature(f) for f in model.description.input)
    outputs = tuple(_feature(f) for f in model.description.output)
    if {f.name for f in inputs} != {a.name for a in arguments} or not {f.name for f in outputs} <= set(block.outputs):
        raise PackageError(f"the description in '{path}' names other inputs or outputs than its program")
    description = model.description.metadata
    return Package(
        path=path,
        inputs=inputs,
        outputs=outputs,
        arguments=arguments,
        main=block,
        opset=main.opset,
        metadata={
            "author": description.author,
            "license": description.license,
            "version": description.versionString,
            "description": description.shortDescription,
            **{key: description.userDefined[key] for key in sorted(description.userDefined)},
        },
    )


def write_package(model: Message, weights: Path | None, path: Path) -> None:
    """Write a package whose bytes depend only on the program: fixed identifiers, sorted maps, no dates or paths.

    Args:
        model: A `Model` protobuf, whose blobs are in `weights/weight.bin`.
        weights: The weight file, or None for a program without weights.
        path: The `.mlpackage` to make. Its parent exists.
    """
    folder = path / "Data" / _AUTHOR
    folder.mkdir(parents=True)
    (folder / "model.mlmodel").write_bytes(model.SerializeToString(deterministic=True))
    if weights is not None:
        (folder / "weights").mkdir()
        shutil.copyfile(weights, folder / "weights" / "weight.bin")
    manifest = {
        "fileFormatVersion": "1.0.0",
        "itemInfoEntries": _ITEMS if weights is not None else {_MODEL_ID: _ITEMS[_MODEL_ID]},
        "rootModelIdentifier": _MODEL_ID,
    }
    (path / "Manifest.json").write_text(json.dumps(manifest, indent=4, sort_keys=True) + "\n")


def _root(path: Path) -> Path:
    """Return the file of the manifest's root model, after a check that it lies inside the package."""
    manifest = path / "Manifest.json"
    try:
        if manifest.stat().st_size > _LARGEST_JSON:
            raise ValueError(f"larger than {_LARGEST_JSON} bytes")
        entries = json.loads(manifest.read_bytes())
        relative = entries["itemInfoEntries"][entries["rootModelIdentifier"]]["path"]
        root: Path = (path / "Data" / relative).resolve()
    except FileNotFoundError:
        raise PackageError(f"'{path}' is not a Core ML package: it has no Manifest.json") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PackageError(f"the manifest '{manifest}' is damaged ({error!r})") from error
    if not root.is_relative_to((path / "Data").resolve()) or (path / "Data" / relative).is_symlink():
        raise PackageError(f"the manifest '{manifest}' names a file outside the package, {relative!r}")
    return root


def _feature(message: Message) -> Feature:
    kind = message.type.WhichOneof("Type")
    if kind == "imageType":
        image = message.type.imageType
        return Feature(
            message.name, "image", shape=(image.height, image.width), colours=_COLOURS.get(image.colorSpace, "unknown")
        )
    if kind != "multiArrayType":
        return Feature(message.name, "other")
    array = message.type.multiArrayType
    flexible = array.WhichOneof("ShapeFlexibility")
    ranges = array.shapeRange.sizeRanges if flexible == "shapeRange" else ()
    enumerated = array.enumeratedShapes.shapes if flexible == "enumeratedShapes" else ()
    return Feature(
        name=message.name,
        kind="tensor",
        dtype=_ARRAY_TYPES.get(array.dataType, ""),
        shape=tuple(array.shape),
        shapes=tuple(tuple(s.shape) for s in enumerated),
        bounds=tuple((r.lowerBound, None if r.upperBound < 0 else r.upperBound) for r in ranges),
    )


def parse(data: bytes) -> Message:
    """Return the `Model` protobuf in some bytes.

    Raises:
        ValueError: If they hold none.
        ModuleNotFoundError: If coremltools is not installed.
    """
    model = importlib.import_module(f"{_proto_package()}.Model_pb2").Model()
    failure = importlib.import_module("google.protobuf.message").DecodeError
    try:
        model.ParseFromString(data)
    except failure as error:
        raise ValueError(str(error)) from error
    return model


def _proto_package() -> str:
    if "coremltools.proto" in sys.modules:
        return "coremltools.proto"
    if _PROTO_PACKAGE not in sys.modules:
        coremltools = importlib.util.find_spec("coremltools")
        if coremltools is None or coremltools.origin is None:
            raise ModuleNotFoundError("reading a Core ML package needs coremltools. Run: pip install coremltools")
        folder = Path(coremltools.origin).parent / "proto"
        spec = importlib.util.spec_from_file_location(
            _PROTO_PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"coremltools in '{folder.parent}' has no protobuf classes. Install it again")
        module = importlib.util.module_from_spec(spec)
        sys.modules[_PROTO_PACKAGE] = module
        spec.loader.exec_module(module)
    return _PROTO_PACKAGE


class Decoder:
    """Decoder of one program's messages, with its open weight files.

    Args:
        folder: The folder of `model.mlmodel`. Names of weight files are relative to it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._files: dict[str, WeightFile] = {}

    def block(self, message: Message) -> MilBlock:
        """Return a block with everything nested in it."""
        return MilBlock(
            inputs=tuple(self.result(i) for i in message.inputs),
            operations=tuple(self._operation(o) for o in message.operations),
            outputs=tuple(message.outputs),
        )

    def result(self, message: Message) -> OperationResult:
        """Return a NamedValueType."""
        return OperationResult(message.name, self._type(message.type))

    def _operation(self, message: Message) -> Operation:
        attributes = {key: self.value(v) for key, v in message.attributes.items() if v.WhichOneof("value")}
        name = attributes.pop("name", "")
        return Operation(
            kind=message.type,
            name=name if isinstance(name, str) else "",
            inputs={
                key: tuple(
                    (str(b.name) if b.WhichOneof("binding") == "name" else Constant(self.value(b.value)))
                    for b in argument.arguments
                )
                for key, argument in message.inputs.items()
            },
            attributes=attributes,
            outputs=tuple(self.result(o) for o in message.outputs),
            blocks=tuple(self.block(b) for b in message.blocks),
        )

    def value(self, message: Message) -> Value:
        """Return a constant, from the program itself or from its weight file.

        Raises:
            PackageError: If data are missing, cut off or differ from their type.
            UnsupportedError: If the interpreter lacks this kind of value.
        """
        if message.type.WhichOneof("type") != "tensorType":
            kind = message.immediateValue.WhichOneof("value")
            if kind not in ("tuple", "list"):
                raise UnsupportedError(f"the Core ML interpreter lacks values of the kind '{kind or 'state'}'")
            return tuple(self.value(v) for v in getattr(message.immediateValue, kind).values)
        declared = self._type(message.type)
        if message.WhichOneof("value") == "blobFileValue":
            if message.blobFileValue.fileName not in self._files:
                path = (self._folder / message.blobFileValue.fileName.removeprefix(MODEL_PATH)).resolve()
                if not message.blobFileValue.fileName.startswith(MODEL_PATH) or not path.is_relative_to(self._folder):
                    raise PackageError(
                        f"the program names a weight file outside its package, {message.blobFileValue.fileName!r}"
                    )
                self._files[message.blobFileValue.fileName] = WeightFile(path)
            file = self._files[message.blobFileValue.fileName]
            return file.read(message.blobFileValue.offset, declared)
        return _immediate(message.immediateValue.tensor, declared)

    def _type(self, message: Message) -> TensorType:
        kind = message.WhichOneof("type")
        if kind != "tensorType":
            raise UnsupportedError(f"the Core ML interpreter lacks values of the type '{kind}'")
        tensor = message.tensorType
        dtype = _DTYPES.get(tensor.dataType)
        if dtype is None:
            raise UnsupportedError(f"the Core ML interpreter lacks elements of the MIL type {tensor.dataType}")
        shape: Shape = tuple(
            int(d.constant.size) if d.WhichOneof("dimension") == "constant" else None for d in tensor.dimensions
        )
        if np.prod([n for n in shape if n is not None], dtype=object) > LARGEST_TENSOR:
            raise PackageError(f"a tensor of the sizes {shape} has more than {LARGEST_TENSOR} elements")
        return TensorType(dtype, shape)


def _immediate(message: Message, declared: TensorType) -> Value:
    kind = message.WhichOneof("value")
    if declared.dtype == "string":
        texts = list(message.strings.values)
        return texts[0] if declared.shape == () and texts else tuple(texts)
    if kind == "bytes" and declared.dtype in _IN_BYTES:
        stored = np.dtype(_IN_BYTES[declared.dtype])
        data = message.bytes.values
        flat = np.frombuffer(data[: len(data) // stored.itemsize * stored.itemsize], dtype=stored)
    else:
        flat = np.array(getattr(message, kind).values if kind and kind not in ("bytes", "strings") else ())
    shape = tuple(flat.size if n is None else n for n in declared.shape)
    if flat.size != np.prod([1, *shape], dtype=object):
        raise PackageError(f"a constant of the sizes {shape} has {flat.size} values, so the program is damaged")
    return flat.reshape(shape).astype(WORKING_DTYPES[declared.dtype])


class WeightFile:
    """One weight file, opened once. `read` copies a blob from it in its working dtype."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        # ValueError: an empty file cannot be mapped.
        except (OSError, ValueError) as error:
            raise PackageError(f"the weight file '{path}' cannot be read ({error})") from error
        count, version = _HEADER.unpack(self._piece(0, _HEADER.size, "its header").tobytes())
        if version != _VERSION or count == 0:
            raise PackageError(f"the weight file '{path}' has no valid header (version {version})")

    def read(self, offset: int, declared: TensorType) -> Array:
        """Return the blob described at `offset`, which must match the program's declaration.

        Raises:
            PackageError: If the description or the data lie outside the file or are of another type or size.
        """
        if offset % _ALIGNMENT or declared.dtype not in _STORED or None in declared.shape:
            raise self._damage_error(offset, f"a tensor of {declared.dtype} cannot lie there")
        described = self._piece(offset, _DESCRIPTION.size, "a description").tobytes()
        sentinel, kind, size, start, _ = _DESCRIPTION.unpack(described)
        wanted_kind, dtype = _STORED[declared.dtype]
        shape = tuple(int(n or 0) for n in declared.shape)
        wanted_size = int(np.prod([1, *shape], dtype=object)) * np.dtype(dtype).itemsize
        if sentinel != _SENTINEL:
            raise self._damage_error(offset, "no blob starts there")
        if kind != wanted_kind or size != wanted_size:
            raise self._damage_error(
                offset, f"it has {size} bytes of type {kind}, but the program declares {wanted_size} of {wanted_kind}"
            )
        if start % _ALIGNMENT:
            raise self._damage_error(offset, f"its data start at {start}, which is not a multiple of {_ALIGNMENT}")
        stored = self._piece(start, size, "a blob").view(dtype).reshape(shape)
        return np.array(stored, dtype=WORKING_DTYPES[declared.dtype])

    def _piece(self, start: int, size: int, what: str) -> Array:
        if start < 0 or start + size > len(self._bytes):
            raise PackageError(
                f"the weight file '{self.path}' is cut off: {what} of {size} bytes at {start} lies beyond its "
                f"{len(self._bytes)} bytes"
            )
        return self._bytes[start : start + size]

    def _damage_error(self, offset: int, why: str) -> PackageError:
        return PackageError(f"the weight file '{self.path}' is damaged at {offset} ({why})")
