"""One operation of a program, ready to run: its function, its arguments, and the check of what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import ArtifactError
from edgekit.model.spec import Array
from edgekit.runtime.coreml.operators import EXACT
from edgekit.runtime.coreml.operators.arguments import Operator
from edgekit.runtime.coreml.records import WORKING_DTYPES, Operation, TensorType, Value

_FAILURES = (ArithmeticError, LookupError, MemoryError, TypeError, ValueError)
"""What an operator raises when a damaged program feeds it arguments that do not fit."""


@dataclass(frozen=True)
class Step:
    """One operation, ready to run.

    Attributes:
        operation: What the program says.
        operator: Its function; None for control flow.
        fixed: Constant arguments by parameter.
        wired: Computed arguments by parameter: the name of one value, or of several for a tuple of tensors.
        where: The program, in words.
        drop: Values that no later step needs.
    """

    operation: Operation
    operator: Operator | None
    fixed: Mapping[str, Value]
    wired: Mapping[str, str | tuple[str, ...]]
    where: str
    drop: tuple[str, ...] = ()

    def argument(self, parameter: str, values: Mapping[str, Value]) -> Value:
        """One argument, constant or computed.

        Raises:
            ArtifactError: If the operation has no such argument.
        """
        if parameter in self.fixed:
            return self.fixed[parameter]
        names = self.wired.get(parameter)
        if names is None:
            raise damaged(self.operation, self.where, f"lacks {parameter!r}")
        return values[names] if isinstance(names, str) else tuple(values[n] for n in names)

    def compute(self, values: Mapping[str, Value]) -> Sequence[Value]:
        """The operation's outputs, stored as the program declares them.

        Raises:
            ArtifactError: If it cannot be computed, or gives another number or shape of results than declared.
        """
        if self.operator is None:
            raise damaged(self.operation, self.where, "is control flow and computes nothing itself")
        arguments = {p: self.argument(p, values) for p in (*self.fixed, *self.wired)}
        exact = self.operation.kind in EXACT
        try:
            answer = self.operator(**arguments)
            results = answer if isinstance(answer, tuple) else (answer,)
            kept = [stored(r, o.type, exact) for r, o in zip(results, self.operation.outputs, strict=True)]
        except _FAILURES as error:
            first = (str(error) or type(error).__name__).splitlines()[0]
            raise damaged(self.operation, self.where, f"cannot be computed ({first})") from error
        for result, output in zip(kept, self.operation.outputs, strict=True):
            if not fits(result.shape, output.type):
                why = f"gives the sizes {result.shape} where {output.type.shape} are declared"
                raise damaged(self.operation, self.where, why)
        return kept


def stored(value: Array, declared: TensorType, exact: bool = False) -> Array:
    """A result as its declared type keeps it: fp16 numbers rounded to nearest even, in the working dtype.

    Args:
        value: The result.
        declared: Its type in the program.
        exact: Whether it is known to hold fp16 numbers already.
    """
    if declared.dtype == "fp16" and not exact:
        with np.errstate(over="ignore"):
            value = np.asarray(value).astype(np.float16)
    return np.asarray(value, dtype=WORKING_DTYPES.get(declared.dtype))


def fits(shape: tuple[int, ...], declared: TensorType) -> bool:
    """Whether a shape is what a program declares, where it leaves some sizes open."""
    return len(shape) == len(declared.shape) and all(
        n is None or n == m for m, n in zip(shape, declared.shape, strict=True)
    )


def damaged(operation: Operation, where: str, why: str) -> ArtifactError:
    """The error of an operation that makes no sense."""
    return ArtifactError(f"{called(operation, where)} {why}: export again")


def called(operation: Operation, where: str) -> str:
    """An operation in words."""
    return f"operator {operation.kind!r} ({operation.name!r}) in {where}"


def listed(names: Sequence[str]) -> str:
    """Names in quotes, with commas; what a damaged file puts into a name cannot break the line."""
    return ", ".join(map(repr, names))
