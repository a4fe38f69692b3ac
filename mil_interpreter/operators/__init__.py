"""The operators of the ML Program interpreter: one table, put together from one file a family.

An operator is a function whose parameters have MIL's names. To add one, write it in its family's file, name it in that
file's `TABLE`, and give it a row in `tests/mil_interpreter/`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mil_interpreter.operators import (
    activation,
    constexpr,
    conv,
    elementwise,
    gather,
    linear,
    norm,
    reduce,
    resize,
    shape,
)
from mil_interpreter.operators.arguments import Operator

OPERATORS: Mapping[str, Operator] = {
    name: operator
    for family in (elementwise, activation, linear, conv, norm, reduce, shape, gather, resize, constexpr)
    for name, operator in family.TABLE.items()
}
"""Every supported operator by MIL name."""

EXACT = frozenset(shape.TABLE)
"""Operators that only move values: what they give is as exact as what they got."""
