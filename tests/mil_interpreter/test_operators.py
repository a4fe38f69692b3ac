"""The table of operators against coremltools' registry: the same names, the same parameters, and a test for each."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

from mil_interpreter.operators import EXACT, OPERATORS


def parameters_in_coremltools(name: str) -> set[str]:
    from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

    versions: dict[Any, Any] = SSAOpRegistry.core_ops[name]
    return {parameter for version in versions.values() for parameter in version.input_spec.input_types}


def test_parameters_are_those_of_mil() -> None:
    mine = {name: set(inspect.signature(operator).parameters) for name, operator in OPERATORS.items()}
    theirs = {name: parameters_in_coremltools(name) for name in OPERATORS}
    theirs["constexpr_lut_to_dense"].remove("vector_axis")  # iOS 18 reads another layout under this name
    assert mine == theirs


def test_every_operator_has_a_test_that_names_it() -> None:
    named: set[object] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        if path != Path(__file__):
            for node in ast.walk(ast.parse(path.read_text())):
                named.add(node.value if isinstance(node, ast.Constant) else getattr(node, "attr", None))
    assert OPERATORS.keys() <= named


def test_exact_operators_compute_nothing() -> None:
    assert OPERATORS.keys() >= EXACT
    assert not EXACT & {"add", "linear", "softmax", "cast", "scatter"}
