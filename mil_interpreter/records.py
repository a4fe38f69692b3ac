"""An ML Program as plain records: types, values, operations, blocks, functions, and the package around them.

The names are those of the MIL protobuf (`MIL.proto`, `Model.proto` in coremltools' `mlmodel/format`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mil_interpreter.errors import InputError, UnsupportedError

Array = npt.NDArray[Any]
"""A NumPy array of any dtype. Docstrings give shapes."""

Value = Array | str | tuple["Value", ...]
"""A decoded constant: an array in its working dtype, a text, or a tuple of these."""

Shape = tuple[int | None, ...]
"""Sizes. None means that the program leaves a size open."""

WORKING_DTYPES: Mapping[str, np.dtype[np.generic]] = {
    name: np.dtype(working)
    for name, working in {
        "bool": np.bool_,
        # The values are fp16 numbers. Arithmetic widens them, and `store` rounds them again.
        "fp16": np.float32,
        "fp32": np.float32,
        "fp64": np.float64,
        "int8": np.int8,
        "int16": np.int16,
        "int32": np.int32,
        "int64": np.int64,
        "uint8": np.uint8,
        "uint16": np.uint16,
        "uint32": np.uint32,
        "uint64": np.uint64,
    }.items()
}
"""MIL element type -> NumPy dtype that holds its values while the interpreter computes."""

# Elements (1 GiB of fp32). A declaration beyond it is damage, and not a phone's model.
LARGEST_TENSOR = 1 << 28
_CHANNELS = {"RGB": 3, "GRAYSCALE": 1}


@dataclass(frozen=True)
class TensorType:
    """Element type by MIL name ("fp16", "string", ...) and sizes. A scalar has no sizes."""

    dtype: str
    shape: Shape = ()


@dataclass(frozen=True)
class OperationResult:
    """A named value that an operation or a block's head defines."""

    name: str
    type: TensorType


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        kind: The operator, by MIL name.
        name: The converter's name for this use of it.
        inputs: Arguments by parameter: names of values, or constants written in place.
        attributes: Constants by parameter. `const` keeps its value here, and constexpr operators keep all of them.
        outputs: Its results, in order.
        blocks: Nested blocks of control flow.
    """

    kind: str
    name: str
    inputs: Mapping[str, tuple[str | Constant, ...]]
    attributes: Mapping[str, Value]
    outputs: tuple[OperationResult, ...]
    blocks: tuple[MilBlock, ...] = ()


@dataclass(frozen=True)
class Constant:
    """A constant written in place of a name."""

    value: Value


@dataclass(frozen=True)
class MilBlock:
    """Operations in order, the outer values that they may use by name, and the names that they return."""

    inputs: tuple[OperationResult, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Feature:
    """An input or output of the package, for an app.

    Attributes:
        name: Its name.
        kind: "tensor" (MLMultiArray), "image" (a pixel buffer of 8-bit values) or "other".
        dtype: MIL element type of a tensor.
        shape: Default sizes of a tensor, or (height, width) of an image.
        shapes: Every allowed shape, if they are enumerated.
        bounds: Smallest and largest size of each dimension, if ranges are allowed. None means no limit.
        colours: Colour layout of an image: "RGB", "BGR", "GRAYSCALE" ...
    """

    name: str
    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    bounds: tuple[tuple[int, int | None], ...] = ()
    colours: str = ""

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Return whether a tensor may have this shape."""
        if self.shapes:
            return shape in self.shapes
        if self.bounds:
            return len(shape) == len(self.bounds) and all(
                low <= size and (high is None or size <= high)
                for size, (low, high) in zip(shape, self.bounds, strict=True)
            )
        return shape == self.shape

    def array(self, inputs: Mapping[str, Array]) -> Array:
        """Return this input of some arrays by name, in its working dtype.

        Args:
            inputs: Arrays by name. An image has pixel values in [0, 255], [1, channels, height, width].

        Raises:
            InputError: If it is missing, or has a shape that the package does not accept.
            UnsupportedError: If the interpreter does not take inputs of its kind.
        """
        if self.name not in inputs:
            raise InputError(f"the input '{self.name}' is missing. Pass it")
        array = inputs[self.name]
        if self.kind == "image":
            if self.colours not in _CHANNELS:
                raise UnsupportedError(
                    f"the image '{self.name}' is {self.colours}. Only RGB and GRAYSCALE are supported"
                )
            shape: tuple[int, ...] = (1, _CHANNELS[self.colours], *self.shape)
            if array.shape != shape:
                raise InputError(f"the image '{self.name}' has the shape {array.shape}. The package takes {shape}")
            return np.asarray(array, dtype=np.float32)
        if self.kind != "tensor" or self.dtype not in WORKING_DTYPES:
            raise UnsupportedError(f"the interpreter does not take inputs of the kind of '{self.name}'")
        if not self.accepts(array.shape):
            takes = self.shapes or self.bounds or self.shape
            raise InputError(f"the input '{self.name}' has the shape {array.shape}. The package takes {takes}")
        return np.asarray(array, dtype=WORKING_DTYPES[self.dtype])


@dataclass(frozen=True)
class Package:
    """A saved ML Program.

    Attributes:
        path: The `.mlpackage` folder.
        inputs: An app's inputs.
        outputs: An app's outputs.
        arguments: The main function's arguments.
        main: The main function's block.
        opset: The operator set that the block is written for, for example "CoreML7".
        metadata: Author, licence, version, description and the user-defined entries.
    """

    path: Path
    inputs: tuple[Feature, ...]
    outputs: tuple[Feature, ...]
    arguments: tuple[OperationResult, ...]
    main: MilBlock
    opset: str
    metadata: Mapping[str, str] = field(default_factory=dict)
