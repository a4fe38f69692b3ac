"""The operators of the ML Program interpreter: one table, made from the tables of MIL's modules.

An operator is a function whose parameters have MIL's names. To add one, write it next to those of its MIL module, name
it in that module's table, and give it a row in `tests/mil_interpreter/`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mil_interpreter.operators.arguments import Operator
from mil_interpreter.operators.arithmetic import (
    ACTIVATION_OPERATORS,
    ELEMENTWISE_OPERATORS,
    LINEAR_OPERATORS,
    NORM_OPERATORS,
    REDUCE_OPERATORS,
)
from mil_interpreter.operators.constexpr import CONSTEXPR_OPERATORS
from mil_interpreter.operators.conv import CONV_OPERATORS, RESIZE_OPERATORS
from mil_interpreter.operators.shape import GATHER_OPERATORS, SHAPE_OPERATORS

OPERATORS: Mapping[str, Operator] = {
    **ELEMENTWISE_OPERATORS,
    **ACTIVATION_OPERATORS,
    **LINEAR_OPERATORS,
    **CONV_OPERATORS,
    **NORM_OPERATORS,
    **REDUCE_OPERATORS,
    **SHAPE_OPERATORS,
    **GATHER_OPERATORS,
    **RESIZE_OPERATORS,
    **CONSTEXPR_OPERATORS,
}
"""Every supported operator by MIL name."""

EXACT = frozenset(SHAPE_OPERATORS)
"""Operators that only move values. Their results are as exact as their inputs."""
