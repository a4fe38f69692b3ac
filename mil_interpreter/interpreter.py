"""Walks a saved ML Program and computes it with NumPy, rounding after each operator as the program declares its types.

What it models: fp16 storage. An operator's inputs are fp16 numbers, its inside runs in fp32 or fp64, and its result is
rounded to the declared type. What it does not model: the accumulators of a particular chip, which may be narrower, and
the fusions of Apple's compiler, which may skip a rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mil_interpreter.errors import PackageError
from mil_interpreter.plan import Plan, Step, damaged, fits, prepare, stored
from mil_interpreter.records import Array, Package, Value

LONGEST_LOOP = 100_000  # turns of a while_loop: a program that needs more is damaged


class Interpreter:
    """A package's program, ready to run; every constant is read and decompressed once, here.

    Raises:
        PackageError: If the program is damaged.
        UnsupportedError: If it uses operators that the interpreter does not have; the message names them all.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        self._plan = prepare(package)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The main function's outputs by name, in the working dtypes of their declared types.

        Args:
            inputs: Arrays by name, rounded here to the declared types; an image as pixel values in [0, 255],
                [1, channels, height, width].

        Raises:
            InputError: If an input is missing or has a shape that the package does not accept.
            UnsupportedError: If the interpreter does not take inputs of a kind that the package has.
            PackageError: If an operator cannot be computed, or gives another shape than the program declares.
        """
        features = {feature.name: feature for feature in self.package.inputs}
        values: dict[str, Value] = {}
        for argument in self.package.arguments:
            value = stored(features[argument.name].array(inputs), argument.type)
            if not fits(value.shape, argument.type):
                raise PackageError(
                    f"the program of '{self.package.path}' declares '{argument.name}' as {argument.type.shape}, "
                    f"its package gives it {value.shape}"
                )
            values[argument.name] = value
        with np.errstate(all="ignore"):  # overflow to infinity and NaN are results, as on a device
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
    """MIL's `cond` (blocks: then, else) and `while_loop` (blocks: condition, body); MIL module `control_flow`."""
    if len(nested) != 2:
        raise damaged(step.operation, step.where, f"has {len(nested)} blocks where two are needed")
    first, second = nested
    if step.operation.kind == "cond":
        return _checked(step, _walk(first if step.argument("pred", values) else second, values))
    state: Sequence[Value] = _checked(step, tuple(step.argument("loop_vars", values)))
    for _ in range(LONGEST_LOOP):
        if not _walk(first, _bound(step, first, state, values))[0]:
            return state
        state = _checked(step, _walk(second, _bound(step, second, state, values)))
    raise damaged(step.operation, step.where, f"does not end within {LONGEST_LOOP} turns")


def _bound(step: Step, plan: Plan, state: Sequence[Value], values: Mapping[str, Value]) -> dict[str, Value]:
    if len(plan.inputs) != len(state) or not plan.outputs:
        raise damaged(step.operation, step.where, f"binds {len(state)} values to {len(plan.inputs)} names")
    return dict(values) | {i.name: value for i, value in zip(plan.inputs, state, strict=True)}


def _checked(step: Step, results: Sequence[Value]) -> Sequence[Value]:
    if len(results) != len(step.operation.outputs):
        raise damaged(step.operation, step.where, f"gives {len(results)} values for {len(step.operation.outputs)}")
    return results
