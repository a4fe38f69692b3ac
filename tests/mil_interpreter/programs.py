"""What the tests of the Core ML interpreter share: programs built operator by operator, saved, and read from disk."""

from __future__ import annotations

import contextlib
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mil_interpreter import read_package, write_package
from mil_interpreter.interpreter import Interpreter
from mil_interpreter.records import Array

FP16_STEP = 2.0**-10  # spacing of fp16 numbers relative to their size: one step is what another rounding may change
FP32_NOISE = 3e-7  # what fp32 arithmetic inside an operator may differ by from fp64, of the peak (at least 1)
FP16_TINY = 2.0**-24  # spacing of the smallest ones
WRONG_INFERENCE = {
    "cumsum": "exclusive sums raise a TypeError",
    "flatten2d": "fails on a vector",
    "argsort": "orders equal values by an unstable sort",
    "scatter_along_axis": "ignores its mode",
    "topk": "orders equal values by an unstable sort",
}
"""Operators whose value inference in coremltools 9.0 is wrong itself."""
SPECIFICATION = {17: 8, 18: 9}  # iOS version -> Core ML specification version


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """coremltools logs a page about libraries it was not tested with, and casts constants to fp16 with warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


with quiet():
    import coremltools as ct
    from coremltools.converters.mil.backend.mil.load import load as serialize
    from coremltools.converters.mil.mil import Builder as mb  # noqa: N813 - coremltools' own custom
    from coremltools.converters.mil.mil import Function, Program, types

Build = Callable[[Mapping[str, Any]], Any]
builder: Any = mb
"""What makes an operation of each operator."""


@dataclass(frozen=True)
class Saved:
    """Builds programs with coremltools' builder, saves them and computes them from disk."""

    folder: Path

    def save(self, inputs: Mapping[str, Array], build: Build, dtype: str = "fp32", ios: int = 17) -> Path:
        """A package whose main function takes the inputs by name and returns what `build` makes of them."""
        path = self.folder / "Program.mlpackage"
        shutil.rmtree(path, ignore_errors=True)
        weights = self.folder / "weights"
        shutil.rmtree(weights, ignore_errors=True)
        weights.mkdir()
        specs = {name: mb.placeholder(shape=a.shape, dtype=_stored_type(a, dtype)) for name, a in inputs.items()}
        opset = getattr(ct.target, f"iOS{ios}")
        with quiet():
            program = Program()
            with Function(specs, opset_version=opset) as function:
                made = build({name: _restored(function.inputs[name], a) for name, a in inputs.items()})
                function.set_outputs([_plain(v) for v in (made if isinstance(made, (list, tuple)) else [made])])
                program.add_function("main", function)
            model = serialize(
                program, weights_dir=str(weights), specification_version=SPECIFICATION[ios], resume_on_errors=False
            )
        blob = weights / "weight.bin"
        write_package(model, blob if blob.exists() else None, path)
        return path

    def run(self, inputs: Mapping[str, Array], build: Build, dtype: str = "fp32", ios: int = 17) -> list[Array]:
        """What the interpreter answers, read back from disk."""
        path = self.save(inputs, build, dtype, ios)
        return list(Interpreter(read_package(path)).run(inputs).values())

    def check(
        self,
        operator: str,
        inputs: Mapping[str, Array],
        wanted: Callable[..., Any],
        constants: Mapping[str, Any] | None = None,
        dtype: str = "fp32",
        tolerance: float = 1e-5,
        ios: int = 17,
    ) -> None:
        """One operator from disk against a function of the same inputs.

        Args:
            operator: MIL name.
            inputs: What it computes from; rounded to fp16 first where `dtype` says so.
            wanted: Takes the inputs as torch tensors, in order; gives one tensor or several.
            constants: Further parameters; floats are stored as `dtype`.
            dtype: "fp32" or "fp16".
            tolerance: Of fp32 results, relative to the largest magnitude (at least 1).
            ios: Which operator set.
        """
        import torch

        given = {name: rounded(a, dtype) for name, a in inputs.items()}
        fixed = {name: _constant(v, dtype) for name, v in (constants or {}).items()}
        got = self.run(given, lambda v: getattr(mb, operator)(**v, **fixed), dtype, ios)
        with torch.no_grad():
            wide = (a.astype(np.float64) if a.dtype.kind == "f" else a for a in given.values())
            answer = wanted(*map(torch.from_numpy, wide))
        for mine, right in zip(got, answer if isinstance(answer, (list, tuple)) else [answer], strict=True):
            agree(mine, np.asarray(right), dtype, tolerance)
        if dtype == "fp32" and operator not in WRONG_INFERENCE:
            for mine, right in zip(got, infer(operator, given, fixed, ios), strict=False):
                agree(mine, right.astype(np.float32) if right.dtype.kind == "f" else right, dtype, tolerance)

    def check_both(
        self,
        operator: str,
        inputs: Mapping[str, Array],
        wanted: Callable[..., Any],
        constants: Mapping[str, Any] | None = None,
        tolerance: float = 1e-5,
        ios: int = 17,
    ) -> None:
        """`check` in fp32 and in fp16."""
        for dtype in ("fp32", "fp16"):
            self.check(operator, inputs, wanted, constants, dtype, tolerance, ios)


def infer(operator: str, inputs: Mapping[str, Array], constants: Mapping[str, Any], ios: int = 17) -> list[Array]:
    """What coremltools' own value inference says of an operator with constant inputs; nothing if it has none."""
    with quiet(), np.errstate(all="ignore"), Function({}, opset_version=getattr(ct.target, f"iOS{ios}")):
        made = getattr(mb, operator)(**inputs, **constants)
    results = made if isinstance(made, (list, tuple)) else [made]
    return [np.asarray(v.val) for v in results if v.val is not None]


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rounded(array: Array, dtype: str) -> Array:
    """Floats as the dtype keeps them, held as fp32."""
    if array.dtype.kind != "f":
        return array
    return array.astype(np.float16 if dtype == "fp16" else np.float32).astype(np.float32)


def agree(mine: Array, right: Array, dtype: str = "fp32", tolerance: float = 1e-5) -> None:
    """Equal integers; floats within `tolerance` of the peak (fp32), or within one step of rounding (fp16)."""
    assert mine.shape == right.shape
    if right.dtype.kind != "f":
        np.testing.assert_array_equal(mine.astype(np.int64), right.astype(np.int64))
        return
    assert mine.dtype == np.float32
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            half = right.astype(np.float16).astype(np.float64)
            np.testing.assert_array_equal(mine, mine.astype(np.float16).astype(np.float32), "is not stored as fp16")
        finite = np.isfinite(half)
        np.testing.assert_array_equal(mine[~finite], half[~finite])
        bound = FP16_STEP * np.abs(half[finite]) + FP16_TINY + FP32_NOISE * np.max(np.abs(half[finite]), initial=1)
        assert np.all(np.abs(mine[finite] - half[finite]) <= bound)
        return
    finite = np.isfinite(right)
    np.testing.assert_array_equal(mine[~finite], right[~finite].astype(np.float32))
    peak = max(1.0, float(np.max(np.abs(right[finite]), initial=0)))
    assert np.max(np.abs(mine[finite] - right[finite]), initial=0) <= tolerance * peak


def _stored_type(array: Array, dtype: str) -> Any:
    if array.dtype.kind == "f":
        return types.fp16 if dtype == "fp16" else types.fp32
    return types.int32  # Core ML's inputs know no other integers, and no booleans


def _restored(variable: Any, array: Array) -> Any:
    """The input as the type that the operator is to see."""
    names = {"b": "bool", "i": "int32", "f": ""}
    wanted = "uint16" if array.dtype == np.uint16 else names[array.dtype.kind]
    return variable if wanted in ("", "int32") else mb.cast(x=variable, dtype=wanted)


def _plain(variable: Any) -> Any:
    """The output as a type that Core ML hands back."""
    return (
        mb.cast(x=variable, dtype="int32")
        if variable.dtype in (types.bool, types.uint16, types.uint8, types.int8)
        else variable
    )


def _constant(value: Any, dtype: str) -> Any:
    kind = np.asarray(value).dtype.kind if not isinstance(value, (str, list, tuple)) else ""
    return np.asarray(value).astype(np.float16 if dtype == "fp16" else np.float32)[()] if kind == "f" else value
