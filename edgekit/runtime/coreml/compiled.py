"""From a program to a plan: constants read and decompressed once, operators found, every name and parameter checked."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgekit.errors import ArtifactError, NotVerifiedHere
from edgekit.runtime.coreml.operators import OPERATORS
from edgekit.runtime.coreml.records import Constant, MilBlock, Operation, OperationResult, Package, Value
from edgekit.runtime.coreml.step import Step, called, damaged, listed

_OPSETS = ("CoreML5", "CoreML6", "CoreML7")  # iOS 15, 16 and 17: what the operators' parameters are those of
CONTROL = frozenset({"cond", "while_loop"})
_CONSTANT = "const"
_VARIADIC = frozenset({"values", "loop_vars", "ref_tensors", "begins", "ends", "end_masks"})  # always tuples


@dataclass(frozen=True)
class CompiledProgram:
    """A block, ready to run: its constants, its other operations in order, and the plans of their nested blocks."""

    inputs: tuple[OperationResult, ...]
    constants: Mapping[str, Value]
    steps: tuple[tuple[Step, tuple[CompiledProgram, ...]], ...]
    outputs: tuple[str, ...]


def prepare(package: Package) -> CompiledProgram:
    """The plan of a package's main function.

    Raises:
        ArtifactError: If the program is damaged.
        NotVerifiedHere: If it uses operators or parameters that the interpreter does not have.
    """
    where = f"the program of '{package.path}'"
    unknown = sorted(set(_kinds(package.main)) - OPERATORS.keys() - CONTROL - {_CONSTANT})
    if unknown:
        raise NotVerifiedHere(
            f"{where} uses the operators {listed(unknown)}, which the Core ML interpreter does not have"
        )
    return _Planner(where, package.opset).plan(package.main, frozenset(a.name for a in package.arguments), {})


@dataclass(frozen=True)
class _Planner:
    where: str
    opset: str

    def plan(self, block: MilBlock, outer: frozenset[str], constants: Mapping[str, Value]) -> CompiledProgram:
        """Plan a block that sees the computed values `outer` and some constants."""
        own: dict[str, Value] = {}
        known = dict(constants)
        visible = set(outer) | {i.name for i in block.inputs}
        steps: list[tuple[Step, tuple[CompiledProgram, ...]]] = []
        for operation in block.operations:
            defined = [r.name for r in operation.outputs]
            if not defined or any(name in visible or name in known for name in defined):
                raise damaged(operation, self.where, "defines no value, or one that exists")
            if operation.kind == _CONSTANT or operation.kind.startswith("constexpr_"):
                own[defined[0]] = known[defined[0]] = self._constant(operation, known)
                continue
            nested = tuple(self.plan(b, frozenset(visible), known) for b in operation.blocks)
            steps.append((self._step(operation, visible, known), nested))
            visible.update(defined)
        missing = [name for name in block.outputs if name not in visible and name not in known]
        if missing:
            raise ArtifactError(f"{self.where} never defines {listed(missing)}: export again")
        return CompiledProgram(block.inputs, own, _with_drops(steps, outer | set(block.outputs)), block.outputs)

    def _constant(self, operation: Operation, known: Mapping[str, Value]) -> Value:
        if operation.kind == _CONSTANT:
            if "val" not in operation.attributes:
                raise damaged(operation, self.where, "has no value")
            return operation.attributes["val"]
        with np.errstate(all="ignore"):
            return self._step(operation, set(), known).compute({})[0]

    def _step(self, operation: Operation, visible: set[str], known: Mapping[str, Value]) -> Step:
        wired: dict[str, str | tuple[str, ...]] = {}
        fixed: dict[str, Value] = dict(operation.attributes)
        for parameter, bindings in operation.inputs.items():
            undefined = [b for b in bindings if isinstance(b, str) and b not in visible and b not in known]
            if undefined or not bindings or (len(bindings) > 1 and parameter not in _VARIADIC):
                raise damaged(operation, self.where, f"has {listed(undefined) or len(bindings)} for {parameter!r}")
            constant = [b for b in bindings if isinstance(b, Constant) or b in known]
            values = [b.value if isinstance(b, Constant) else known[b] for b in constant]
            if len(values) == len(bindings):
                fixed[parameter] = tuple(values) if parameter in _VARIADIC else values[0]
            elif any(isinstance(b, Constant) for b in bindings):
                raise NotVerifiedHere(f"{called(operation, self.where)} mixes names and values in {parameter!r}")
            else:
                names = tuple(str(b) for b in bindings)
                wired[parameter] = names if parameter in _VARIADIC else names[0]
        if operation.kind not in CONTROL:
            self._check_parameters(operation, wired.keys() | fixed.keys())
        return Step(operation, OPERATORS.get(operation.kind), fixed, wired, self.where)

    def _check_parameters(self, operation: Operation, given: set[str]) -> None:
        parameters = inspect.signature(OPERATORS[operation.kind]).parameters
        unknown = sorted(given - parameters.keys())
        if unknown:
            raise NotVerifiedHere(f"{called(operation, self.where)} has {listed(unknown)}, which is not supported here")
        missing = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in given]
        if missing and self.opset not in _OPSETS:  # iOS 18 has some operators under the same name in another form
            raise NotVerifiedHere(
                f"{called(operation, self.where)} lacks {listed(missing)} in the opset {self.opset!r}"
            )
        if missing:
            raise damaged(operation, self.where, f"lacks {listed(missing)}")


def _with_drops(
    steps: list[tuple[Step, tuple[CompiledProgram, ...]]], kept: frozenset[str]
) -> tuple[tuple[Step, tuple[CompiledProgram, ...]], ...]:
    """The steps, each with the values that it is the last to use; without this a large model keeps them all."""
    computed = {r.name for step, _ in steps for r in step.operation.outputs} - kept
    last = {name: i for i, (step, _) in enumerate(steps) for name in _used(step.operation)}
    drops: dict[int, list[str]] = {}
    for name in sorted(computed & last.keys()):
        drops.setdefault(last[name], []).append(name)
    return tuple((replace(step, drop=tuple(drops.get(i, ()))), nested) for i, (step, nested) in enumerate(steps))


def _kinds(block: MilBlock) -> list[str]:
    return [kind for o in block.operations for kind in [o.kind, *(k for b in o.blocks for k in _kinds(b))]]


def _used(operation: Operation) -> list[str]:
    """Names that an operation needs, also inside its blocks."""
    own = [b for bindings in operation.inputs.values() for b in bindings if isinstance(b, str)]
    inner = [name for block in operation.blocks for o in block.operations for name in _used(o)]
    return [*own, *inner, *(name for block in operation.blocks for name in block.outputs)]
