"""A saved ML Program, checked and computed with NumPy, and rounded after each operator to its declared type.

A `Plan` is a prepared block: constants decompressed once, operators looked up, every name and parameter checked. A
`Step` is one operation of it: its function, its arguments, and the check of its results.

The interpreter models fp16 storage. An operator's inputs are fp16 numbers, it computes in fp32 or fp64, and its result
is rounded to the declared type. It does not model the accumulators of a particular chip, which may be narrower. It also
does not model the fusions of Apple's compiler, which may skip a rounding.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mil_interpreter.errors import PackageError, UnsupportedError
from mil_interpreter.operators import EXACT, OPERATORS
from mil_interpreter.operators.arguments import Operator
from mil_interpreter.records import (
    WORKING_DTYPES,
    Array,
    Constant,
    MilBlock,
    Operation,
    OperationResult,
    Package,
    TensorType,
    Value,
)

# Turns of a while_loop. A program that needs more is damaged.
LONGEST_LOOP = 100_000
# iOS 15, 16 and 17. They define the operators' parameters.
_OPSETS = ("CoreML5", "CoreML6", "CoreML7")
CONTROL = frozenset({"cond", "while_loop"})
_CONSTANT = "const"
# Always tuples.
_VARIADIC = frozenset({"values", "loop_vars", "ref_tensors", "begins", "ends", "end_masks"})
_FAILURES = (ArithmeticError, LookupError, MemoryError, TypeError, ValueError)
"""Errors of an operator whose arguments do not fit, as in a damaged program."""


class Interpreter:
    """A package's program, ready to run. Every constant is read and decompressed once, here.

    Raises:
        PackageError: If the program is damaged.
        UnsupportedError: If it uses operators that the interpreter lacks. The message names them all.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        self._plan = prepare(package)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the main function's outputs by name, in the working dtypes of their declared types.

        Args:
            inputs: Arrays by name, rounded here to the declared types. An image has pixel values in [0, 255],
                [1, channels, height, width].

        Raises:
            InputError: If an input is missing or has a shape that the package does not accept.
            UnsupportedError: If the interpreter lacks a kind of input that the package has.
            PackageError: If an operator cannot be computed, or returns another shape than the program declares.
        """
        features = {feature.name: feature for feature in self.package.inputs}
        values: dict[str, Value] = {}
        for argument in self.package.arguments:
            value = cast_result(features[argument.name].array(inputs), argument.type)
            if not fits(value.shape, argument.type):
                raise PackageError(
                    f"the program of '{self.package.path}' declares '{argument.name}' as {argument.type.shape}, "
                    f"but its package passes {value.shape}"
                )
            values[argument.name] = value
        # Overflow to infinity and NaN are results, as on a device.
        with np.errstate(all="ignore"):
            answers = _walk(self._plan, values)
        return {name: np.asarray(value) for name, value in zip(self._plan.outputs, answers, strict=True)}


def _walk(plan: Plan, outer: Mapping[str, Value]) -> list[Value]:
    values = dict(outer) | dict(plan.constants)
    for step, nested in plan.steps:
        results = _control(step, nested, values) if step.operator is None else step.compute(values)
        for output, result in zip(step.operation.outputs, results, strict=True):
            values[output.name] = result
        for name in step.drop:
            del values[name]
    return [values[name] for name in plan.outputs]


def _control(step: Step, nested: tuple[Plan, ...], values: Mapping[str, Value]) -> Sequence[Value]:
    """Run MIL's `cond` (blocks: then, else) or `while_loop` (blocks: condition, body). MIL module: `control_flow`."""
    if len(nested) != 2:
        raise invalid_operation(step.operation, step.where, f"has {len(nested)} blocks where two are needed")
    first, second = nested
    if step.operation.kind == "cond":
        return _check(step, _walk(first if step.argument("pred", values) else second, values))
    state: Sequence[Value] = _check(step, tuple(step.argument("loop_vars", values)))
    for _ in range(LONGEST_LOOP):
        if not _walk(first, _bound(step, first, state, values))[0]:
            return state
        state = _check(step, _walk(second, _bound(step, second, state, values)))
    raise invalid_operation(step.operation, step.where, f"does not end within {LONGEST_LOOP} turns")


def _bound(step: Step, plan: Plan, state: Sequence[Value], values: Mapping[str, Value]) -> dict[str, Value]:
    if len(plan.inputs) != len(state) or not plan.outputs:
        raise invalid_operation(step.operation, step.where, f"binds {len(state)} values to {len(plan.inputs)} names")
    return dict(values) | {i.name: value for i, value in zip(plan.inputs, state, strict=True)}


def _check(step: Step, results: Sequence[Value]) -> Sequence[Value]:
    if len(results) != len(step.operation.outputs):
        raise invalid_operation(
            step.operation, step.where, f"returns {len(results)} values for {len(step.operation.outputs)}"
        )
    return results


@dataclass(frozen=True)
class Plan:
    """A block, ready to run: its constants, its other operations in order, and the plans of their nested blocks."""

    inputs: tuple[OperationResult, ...]
    constants: Mapping[str, Value]
    steps: tuple[tuple[Step, tuple[Plan, ...]], ...]
    outputs: tuple[str, ...]


def prepare(package: Package) -> Plan:
    """Return the plan of a package's main function.

    Raises:
        PackageError: If the program is damaged.
        UnsupportedError: If it uses operators or parameters that the interpreter does not have.
    """
    where = f"the program of '{package.path}'"
    unknown = sorted(set(_kinds(package.main)) - OPERATORS.keys() - CONTROL - {_CONSTANT})
    if unknown:
        raise UnsupportedError(
            f"{where} uses the operators {quote_names(unknown)}, which the Core ML interpreter lacks"
        )
    return _Planner(where, package.opset).plan(package.main, frozenset(a.name for a in package.arguments), {})


@dataclass(frozen=True)
class _Planner:
    where: str
    opset: str

    def plan(self, block: MilBlock, outer: frozenset[str], constants: Mapping[str, Value]) -> Plan:
        """Plan a block that sees the computed values `outer` and some constants."""
        own: dict[str, Value] = {}
        values = dict(constants)
        visible = set(outer) | {i.name for i in block.inputs}
        steps: list[tuple[Step, tuple[Plan, ...]]] = []
        for operation in block.operations:
            defined = [r.name for r in operation.outputs]
            if not defined or any(name in visible or name in values for name in defined):
                raise invalid_operation(operation, self.where, "defines no value, or one that exists")
            if operation.kind == _CONSTANT:
                if "val" not in operation.attributes:
                    raise invalid_operation(operation, self.where, "has no value")
                own[defined[0]] = values[defined[0]] = operation.attributes["val"]
                continue
            if operation.kind.startswith("constexpr_"):
                with np.errstate(all="ignore"):
                    own[defined[0]] = values[defined[0]] = self._step(operation, set(), values).compute({})[0]
                continue
            nested = tuple(self.plan(b, frozenset(visible), values) for b in operation.blocks)
            steps.append((self._step(operation, visible, values), nested))
            visible.update(defined)
        missing = [name for name in block.outputs if name not in visible and name not in values]
        if missing:
            raise PackageError(f"{self.where} never defines {quote_names(missing)}")
        return Plan(block.inputs, own, _with_drops(steps, outer | set(block.outputs)), block.outputs)

    def _step(self, operation: Operation, visible: set[str], constants: Mapping[str, Value]) -> Step:
        wired: dict[str, str | tuple[str, ...]] = {}
        fixed: dict[str, Value] = dict(operation.attributes)
        for parameter, bindings in operation.inputs.items():
            undefined = [b for b in bindings if isinstance(b, str) and b not in visible and b not in constants]
            if undefined or not bindings or (len(bindings) > 1 and parameter not in _VARIADIC):
                raise invalid_operation(
                    operation, self.where, f"has {quote_names(undefined) or len(bindings)} for {parameter!r}"
                )
            constant = [b for b in bindings if isinstance(b, Constant) or b in constants]
            values = [b.value if isinstance(b, Constant) else constants[b] for b in constant]
            if len(values) == len(bindings):
                fixed[parameter] = tuple(values) if parameter in _VARIADIC else values[0]
            elif any(isinstance(b, Constant) for b in bindings):
                raise UnsupportedError(
                    f"{describe_operation(operation, self.where)} mixes names and values in {parameter!r}"
                )
            else:
                names = tuple(str(b) for b in bindings)
                wired[parameter] = names if parameter in _VARIADIC else names[0]
        if operation.kind not in CONTROL:
            self._check_parameters(operation, wired.keys() | fixed.keys())
        return Step(operation, OPERATORS.get(operation.kind), fixed, wired, self.where)

    def _check_parameters(self, operation: Operation, names: set[str]) -> None:
        parameters = inspect.signature(OPERATORS[operation.kind]).parameters
        unknown = sorted(names - parameters.keys())
        if unknown:
            raise UnsupportedError(
                f"{describe_operation(operation, self.where)} has {quote_names(unknown)}, which is not supported here"
            )
        missing = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in names]
        # iOS 18 has some operators under the same name in another form.
        if missing and self.opset not in _OPSETS:
            raise UnsupportedError(
                f"{describe_operation(operation, self.where)} lacks {quote_names(missing)} in the opset {self.opset!r}"
            )
        if missing:
            raise invalid_operation(operation, self.where, f"lacks {quote_names(missing)}")


def _with_drops(
    steps: list[tuple[Step, tuple[Plan, ...]]], preserved: frozenset[str]
) -> tuple[tuple[Step, tuple[Plan, ...]], ...]:
    """Return the steps, each with the values of its last use. Without this a large model keeps them all."""
    computed = {r.name for step, _ in steps for r in step.operation.outputs} - preserved
    last = {name: i for i, (step, _) in enumerate(steps) for name in _used_names(step.operation)}
    drops: dict[int, list[str]] = {}
    for name in sorted(computed & last.keys()):
        drops.setdefault(last[name], []).append(name)
    return tuple((replace(step, drop=tuple(drops.get(i, ()))), nested) for i, (step, nested) in enumerate(steps))


def _kinds(block: MilBlock) -> list[str]:
    return [kind for o in block.operations for kind in [o.kind, *(k for b in o.blocks for k in _kinds(b))]]


def _used_names(operation: Operation) -> list[str]:
    """Return names that an operation needs, also inside its blocks."""
    own = [b for bindings in operation.inputs.values() for b in bindings if isinstance(b, str)]
    inner = [name for block in operation.blocks for o in block.operations for name in _used_names(o)]
    return [*own, *inner, *(name for block in operation.blocks for name in block.outputs)]


@dataclass(frozen=True)
class Step:
    """One operation, ready to run.

    Attributes:
        operation: The operation of the program.
        operator: Its function, or None for control flow.
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
        """Return one argument, constant or computed.

        Raises:
            PackageError: If the operation has no such argument.
        """
        if parameter in self.fixed:
            return self.fixed[parameter]
        names = self.wired.get(parameter)
        if names is None:
            raise invalid_operation(self.operation, self.where, f"lacks {parameter!r}")
        return values[names] if isinstance(names, str) else tuple(values[n] for n in names)

    def compute(self, values: Mapping[str, Value]) -> Sequence[Value]:
        """Return the operation's outputs, stored as the program declares them.

        Raises:
            PackageError: If it cannot be computed, or returns another number or shape of results than declared.
        """
        if self.operator is None:
            raise invalid_operation(self.operation, self.where, "is control flow and computes nothing itself")
        arguments = {p: self.argument(p, values) for p in (*self.fixed, *self.wired)}
        exact = self.operation.kind in EXACT
        try:
            answer = self.operator(**arguments)
            results = answer if isinstance(answer, tuple) else (answer,)
            results_as_stored = [
                cast_result(r, o.type, exact) for r, o in zip(results, self.operation.outputs, strict=True)
            ]
        except _FAILURES as error:
            first = (str(error) or type(error).__name__).splitlines()[0]
            raise invalid_operation(self.operation, self.where, f"cannot be computed ({first})") from error
        for result, output in zip(results_as_stored, self.operation.outputs, strict=True):
            if not fits(result.shape, output.type):
                why = f"returns the sizes {result.shape}, but {output.type.shape} are declared"
                raise invalid_operation(self.operation, self.where, why)
        return results_as_stored


def cast_result(value: Array, declared: TensorType, exact: bool = False) -> Array:
    """Return a result as its declared type stores it: fp16 numbers rounded to nearest even, in the working dtype.

    Args:
        value: The result.
        declared: Its type in the program.
        exact: Whether it already holds fp16 numbers.
    """
    if declared.dtype == "fp16" and not exact:
        with np.errstate(over="ignore"):
            value = np.asarray(value).astype(np.float16)
    return np.asarray(value, dtype=WORKING_DTYPES.get(declared.dtype))


def fits(shape: tuple[int, ...], declared: TensorType) -> bool:
    """Return whether a shape matches the program's declaration, which may leave sizes open."""
    return len(shape) == len(declared.shape) and all(
        n is None or n == m for m, n in zip(shape, declared.shape, strict=True)
    )


def invalid_operation(operation: Operation, where: str, why: str) -> PackageError:
    """Return the error of an invalid operation."""
    return PackageError(f"{describe_operation(operation, where)} {why}")


def describe_operation(operation: Operation, where: str) -> str:
    """Return a description of an operation."""
    return f"operator {operation.kind!r} ({operation.name!r}) in {where}"


def quote_names(names: Sequence[str]) -> str:
    """Return names in quotes, with commas. Characters of a damaged file cannot break the line."""
    return ", ".join(map(repr, names))
