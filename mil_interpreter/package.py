"""A saved `.mlpackage`: read from disk as records, and written so that equal programs give equal bytes.

Layout: `Manifest.json` names items under `Data/`; the root item is `model.mlmodel` (a `Model` protobuf holding the ML
Program), the other one the folder of its weight files. Definitions: `Model.proto` and `FeatureTypes.proto` in
coremltools' `mlmodel/format`, and `ModelPackage.cpp` in its `modelpackage/src` for the manifest.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mil_interpreter.decode import Decoder, Message, parse
from mil_interpreter.errors import PackageError, UnsupportedError
from mil_interpreter.records import Feature, Package

_AUTHOR = "com.apple.CoreML"
_MODEL_ID = "A1B3C1E2-6F0D-5E5B-9C1B-0A6D3F6A0001"  # fixed: coremltools draws a random one for every save
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
_LARGEST_JSON = 1 << 20  # bytes
_ARRAY_TYPES = {65568: "fp32", 65600: "fp64", 131104: "int32", 131080: "int8", 65552: "fp16"}
_COLOURS = {10: "GRAYSCALE", 20: "RGB", 30: "BGR", 40: "GRAYSCALE_FLOAT16"}


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
        raise UnsupportedError(f"the interpreter runs ML Programs; '{path}' holds {model.WhichOneof('Type')!r}")
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
    return Package(
        path=path,
        inputs=inputs,
        outputs=outputs,
        arguments=arguments,
        main=block,
        opset=main.opset,
        metadata=_metadata(model.description.metadata),
    )


def write_package(model: Message, weights: Path | None, path: Path) -> None:
    """Write a package whose bytes depend on the program alone: fixed identifiers, sorted maps, no dates or paths.

    Args:
        model: A `Model` protobuf; its blobs are in `weights/weight.bin`.
        weights: The weight file, or None where the program has none.
        path: The `.mlpackage` to make; its parent exists.
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
    """The file that the manifest calls the root model, known to lie inside the package."""
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


def _metadata(message: Message) -> dict[str, str]:
    own = {
        "author": message.author,
        "license": message.license,
        "version": message.versionString,
        "description": message.shortDescription,
    }
    return own | {key: message.userDefined[key] for key in sorted(message.userDefined)}
