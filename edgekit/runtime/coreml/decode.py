"""The MIL protobuf -> records: types, values, operations and blocks of one program.

Definitions: `MIL.proto` in coremltools' `mlmodel/format`. Nothing here trusts the file: sizes are checked against the
data that carry them before an array is made.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.errors import ArtifactError, NotVerifiedHere
from edgekit.runtime.coreml.blob import WeightFile
from edgekit.runtime.coreml.proto import Message
from edgekit.runtime.coreml.records import (
    WORKING_DTYPES,
    Constant,
    MilBlock,
    Operation,
    OperationResult,
    Shape,
    TensorType,
    Value,
)

MODEL_PATH = "@model_path/"  # how a program names the folder of its model.mlmodel
LARGEST_TENSOR = 1 << 28  # elements (1 GiB of fp32): a declaration beyond it is damage, not a phone's model
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


class Decoder:
    """Decodes one program's messages; holds its open weight files.

    Args:
        folder: The folder of `model.mlmodel`, which weight files are named relative to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._files: dict[str, WeightFile] = {}

    def block(self, message: Message) -> MilBlock:
        """A block with everything nested in it."""
        return MilBlock(
            inputs=tuple(self.result(i) for i in message.inputs),
            operations=tuple(self._operation(o) for o in message.operations),
            outputs=tuple(message.outputs),
        )

    def result(self, message: Message) -> OperationResult:
        """A NamedValueType."""
        return OperationResult(message.name, self._type(message.type))

    def _operation(self, message: Message) -> Operation:
        attributes = {key: self.value(v) for key, v in message.attributes.items() if v.WhichOneof("value")}
        name = attributes.pop("name", "")
        return Operation(
            kind=message.type,
            name=name if isinstance(name, str) else "",
            inputs={key: tuple(self._binding(b) for b in given.arguments) for key, given in message.inputs.items()},
            attributes=attributes,
            outputs=tuple(self.result(o) for o in message.outputs),
            blocks=tuple(self.block(b) for b in message.blocks),
        )

    def _binding(self, message: Message) -> str | Constant:
        return str(message.name) if message.WhichOneof("binding") == "name" else Constant(self.value(message.value))

    def value(self, message: Message) -> Value:
        """A constant, from the program itself or from its weight file.

        Raises:
            ArtifactError: If data are missing, cut off or not what their type says.
            NotVerifiedHere: If the interpreter has no such kind of value.
        """
        if message.type.WhichOneof("type") != "tensorType":
            return self._collection(message)
        declared = self._type(message.type)
        if message.WhichOneof("value") == "blobFileValue":
            return self._file(message.blobFileValue.fileName).read(message.blobFileValue.offset, declared)
        return _immediate(message.immediateValue.tensor, declared)

    def _collection(self, message: Message) -> Value:
        kind = message.immediateValue.WhichOneof("value")
        if kind not in ("tuple", "list"):
            raise NotVerifiedHere(f"the Core ML interpreter has no values of the kind '{kind or 'state'}'")
        return tuple(self.value(v) for v in getattr(message.immediateValue, kind).values)

    def _type(self, message: Message) -> TensorType:
        kind = message.WhichOneof("type")
        if kind != "tensorType":
            raise NotVerifiedHere(f"the Core ML interpreter has no values of the type '{kind}'")
        tensor = message.tensorType
        dtype = _DTYPES.get(tensor.dataType)
        if dtype is None:
            raise NotVerifiedHere(f"the Core ML interpreter has no elements of the MIL type {tensor.dataType}")
        shape: Shape = tuple(
            int(d.constant.size) if d.WhichOneof("dimension") == "constant" else None for d in tensor.dimensions
        )
        if np.prod([n for n in shape if n is not None], dtype=object) > LARGEST_TENSOR:
            raise ArtifactError(f"a tensor of the sizes {shape} has more than {LARGEST_TENSOR} elements")
        return TensorType(dtype, shape)

    def _file(self, name: str) -> WeightFile:
        if name not in self._files:
            path = (self._folder / name.removeprefix(MODEL_PATH)).resolve()
            if not name.startswith(MODEL_PATH) or not path.is_relative_to(self._folder):
                raise ArtifactError(f"the program names a weight file outside its package, {name!r}: export again")
            self._files[name] = WeightFile(path)
        return self._files[name]


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
        raise ArtifactError(f"a constant of the sizes {shape} carries {flat.size} values: the program is damaged")
    return flat.reshape(shape).astype(WORKING_DTYPES[declared.dtype])
