"""Walks a saved ML Program and computes it with NumPy, rounding after each operator as the program declares its types.

What it models: fp16 storage. An operator's inputs are fp16 numbers, its inside runs in fp32 or fp64, and its result is
rounded to the declared type. What it does not model: the accumulators of a particular chip, which may be narrower, and
the fusions of Apple's compiler, which may skip a rounding.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import ArtifactError, NotVerifiedHere
from edgekit.runtime.coreml.operators import EXACT, OPERATORS
from edgekit.runtime.coreml.operators.arguments import Operator
from edgekit.runtime.coreml.records import (
    WORKING_DTYPES,
    Block,
    Constant,
    Operation,
    Package,
    Result,
    TensorType,
    Value,
)
from edgekit.spec import Array

LONGEST_LOOP = 100_000  # turns of a while_loop: a program that needs more is damaged
_VARIADIC = frozenset({"values", "loop_vars", "ref_tensors", "begins", "ends", "end_masks"})  # always tuples
_CONTROL = frozenset({"cond", "while_loop"})
_FAILURES = (ArithmeticError, LookupError, MemoryError, TypeError, ValueError)
"""What an operator raises when a damaged program feeds it arguments that do not fit."""


@dataclass(frozen=True)
class Step:
    """One operation, ready to run.

    Attributes:
        operation: What the program says.
        operator: Its function; None for control flow.
        fixed: Constant arguments.
        wired: Arguments that are computed: one name, or several for a tuple of tensors.
        blocks: Nested plans.
        drop: Values that no later step needs.
    """

    operation: Operation
    operator: Operator | None
    fixed: Mapping[str, Value]
    wired: Mapping[str, str | tuple[str, ...]]
    blocks: tuple[Plan, ...]
    drop: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """A block, ready to run: its constants and its other operations."""

    inputs: tuple[Result, ...]
    constants: Mapping[str, Value]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]


class Interpreter:
    """A package's program, ready to run; every constant is read and decompressed once, here.

    Raises:
        ArtifactError: If the program is damaged.
        NotVerifiedHere: If it uses operators that the interpreter does not have; the message names them all.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        self._where = f"the program of '{package.path}'"
        unknown = sorted(set(_kinds(package.main)) - OPERATORS.keys() - _CONTROL - {"const"})
        if unknown:
            raise NotVerifiedHere(f"{self._where} uses {_listed(unknown)}, which the Core ML interpreter does not have")
        self._plan = self._prepare(package.main, {a.name for a in package.arguments}, {}, set(package.main.outputs))

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The main function's outputs by name, in the working dtypes of their declared types.

        Args:
            inputs: Its arguments by name; values are rounded to the declared types.

        Raises:
            ArtifactError: If an operator cannot be computed, or gives another shape than the program declares.
        """
        values: dict[str, Value] = {}
        for argument in self.package.arguments:
            given = stored(np.asarray(inputs[argument.name]), argument.type)
            if not _fits(given.shape, argument.type):
                raise ArtifactError(
                    f"{self._where} declares '{argument.name}' as {argument.type.shape}, it was given {given.shape}"
                )
            values[argument.name] = given
        with np.errstate(all="ignore"):  # overflow to infinity and NaN are answers here, and the judge sees them
            answers = self._walk(self._plan, values)
        return {name: np.asarray(value) for name, value in zip(self._plan.outputs, answers, strict=True)}

    def _prepare(self, block: Block, outer: set[str], outer_constants: Mapping[str, Value], kept: set[str]) -> Plan:
        constants: dict[str, Value] = {}
        visible: set[str] = outer | {i.name for i in block.inputs}
        known: dict[str, Value] = dict(outer_constants)
        steps: list[Step] = []
        last_use = {name: i for i, o in enumerate(block.operations) for name in _used(o)}
        for i, operation in enumerate(block.operations):
            defined = [r.name for r in operation.outputs]
            if not defined or any(name in visible or name in known for name in defined):
                raise self._damaged(operation, "defines no value, or one that exists")
            if operation.kind == "const" or operation.kind.startswith("constexpr_"):
                constants[defined[0]] = known[defined[0]] = self._constant(operation, known)
                continue
            wired, fixed = self._arguments(operation, visible, known)
            own = [n for n in _used(operation) if last_use[n] == i and n in visible - outer - kept]
            nested = tuple(self._prepare(b, visible, known, set(b.outputs)) for b in operation.blocks)
            steps.append(Step(operation, OPERATORS.get(operation.kind), fixed, wired, nested, tuple(own)))
            visible.update(defined)
        missing = [name for name in block.outputs if name not in visible and name not in known]
        if missing:
            raise ArtifactError(f"{self._where} never defines {_listed(missing)}: export again")
        return Plan(block.inputs, constants, tuple(steps), block.outputs)

    def _constant(self, operation: Operation, known: Mapping[str, Value]) -> Value:
        if operation.kind == "const":
            value = operation.attributes.get("val")
            if value is None:
                raise self._damaged(operation, "has no value")
            return value
        wired, fixed = self._arguments(operation, set(), known)
        with np.errstate(all="ignore"):
            return self._compute(Step(operation, OPERATORS[operation.kind], fixed, wired, (), ()), {})[0]

    def _arguments(
        self, operation: Operation, visible: set[str], known: Mapping[str, Value]
    ) -> tuple[dict[str, str | tuple[str, ...]], dict[str, Value]]:
        """Which arguments are computed (by name) and which are constant, checked against the operator's parameters."""
        wired: dict[str, str | tuple[str, ...]] = {}
        fixed: dict[str, Value] = dict(operation.attributes)
        for parameter, bindings in operation.inputs.items():
            undefined = [b for b in bindings if isinstance(b, str) and b not in visible and b not in known]
            if undefined or not bindings:
                raise self._damaged(operation, f"uses {_listed(undefined) or 'nothing'} before it is defined")
            if parameter not in _VARIADIC and len(bindings) != 1:
                raise self._damaged(operation, f"has {len(bindings)} values for '{parameter}'")
            values = [b.value if isinstance(b, Constant) else known.get(b) for b in bindings]
            if all(v is not None for v in values):
                fixed[parameter] = tuple(values) if parameter in _VARIADIC else values[0]  # type: ignore[arg-type, assignment]
            elif any(isinstance(b, Constant) for b in bindings):
                raise NotVerifiedHere(f"{self._called(operation)} mixes names and values, which is not supported here")
            else:
                names = tuple(str(b) for b in bindings)
                wired[parameter] = names if parameter in _VARIADIC else names[0]
        if operation.kind not in _CONTROL:
            self._check_parameters(operation, wired.keys() | fixed.keys())
        return wired, fixed

    def _check_parameters(self, operation: Operation, given: set[str]) -> None:
        parameters = inspect.signature(OPERATORS[operation.kind]).parameters
        unknown = sorted(given - parameters.keys())
        if unknown:
            raise NotVerifiedHere(f"{self._called(operation)} has {_listed(unknown)}, which is not supported here")
        missing = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in given]
        if missing:
            raise self._damaged(operation, f"lacks {_listed(missing)}")

    def _walk(self, plan: Plan, outer: dict[str, Value]) -> list[Value]:
        values = outer | dict(plan.constants)
        for step in plan.steps:
            results = self._control(step, values) if step.operator is None else self._compute(step, values)
            for output, result in zip(step.operation.outputs, results, strict=True):
                values[output.name] = result
            for name in step.drop:
                del values[name]
        return [values[name] for name in plan.outputs]

    def _compute(self, step: Step, values: Mapping[str, Value]) -> Sequence[Value]:
        arguments: dict[str, Value] = dict(step.fixed)
        for parameter, names in step.wired.items():
            arguments[parameter] = values[names] if isinstance(names, str) else tuple(values[n] for n in names)
        assert step.operator is not None  # noqa: S101 - control flow goes to _control
        try:
            answer = step.operator(**arguments)
            results = answer if isinstance(answer, tuple) else (answer,)
            exact = step.operation.kind in EXACT
            kept = [stored(r, o.type, exact) for r, o in zip(results, step.operation.outputs, strict=True)]
        except _FAILURES as error:
            raise self._damaged(step.operation, f"cannot be computed ({_first_line(error)})") from error
        for result, output in zip(kept, step.operation.outputs, strict=True):
            if not _fits(result.shape, output.type):
                raise self._damaged(step.operation, f"gives the sizes {result.shape}, declared are {output.type.shape}")
        return kept

    def _control(self, step: Step, values: dict[str, Value]) -> Sequence[Value]:
        """MIL's `cond` (blocks: then, else) and `while_loop` (blocks: condition, body)."""
        if len(step.blocks) != 2:
            raise self._damaged(step.operation, f"has {len(step.blocks)} blocks where two are needed")
        first, second = step.blocks
        if step.operation.kind == "cond":
            holds = step.fixed["pred"] if "pred" in step.fixed else values[str(step.wired["pred"])]
            return self._walk(first if holds else second, values)
        names = step.wired.get("loop_vars", ())
        state: list[Value] = list(step.fixed.get("loop_vars", ())) or [values[n] for n in names]
        for _ in range(LONGEST_LOOP):
            if not self._walk(first, values | _bound(first, state))[0]:
                return state
            state = self._walk(second, values | _bound(second, state))
        raise self._damaged(step.operation, f"does not end within {LONGEST_LOOP} turns")

    def _called(self, operation: Operation) -> str:
        return f"operator '{operation.kind}' ('{operation.name}') in {self._where}"

    def _damaged(self, operation: Operation, why: str) -> ArtifactError:
        return ArtifactError(f"{self._called(operation)} {why}: export again")


def stored(value: Array, declared: TensorType, exact: bool = False) -> Array:
    """A result as its declared type keeps it: fp16 numbers rounded to nearest even, in the working dtype."""
    if declared.dtype == "fp16" and not exact:
        with np.errstate(over="ignore"):
            value = np.asarray(value).astype(np.float16)
    return np.asarray(value, dtype=WORKING_DTYPES.get(declared.dtype))


def _kinds(block: Block) -> list[str]:
    return [kind for o in block.operations for kind in [o.kind, *(k for b in o.blocks for k in _kinds(b))]]


def _used(operation: Operation) -> list[str]:
    """Names that an operation needs, also inside its blocks."""
    own = [b for bindings in operation.inputs.values() for b in bindings if isinstance(b, str)]
    inner = [name for block in operation.blocks for o in block.operations for name in _used(o)]
    return list(dict.fromkeys([*own, *inner, *(name for block in operation.blocks for name in block.outputs)]))


def _bound(plan: Plan, state: Sequence[Value]) -> dict[str, Value]:
    return {i.name: value for i, value in zip(plan.inputs, state, strict=True)}


def _fits(shape: tuple[int, ...], declared: TensorType) -> bool:
    return len(shape) == len(declared.shape) and all(
        n is None or n == m for m, n in zip(shape, declared.shape, strict=True)
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{n}'" for n in names)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
