"""Rules that take out what changes nothing take out only that.

    x + 0 -> x        x * 1 -> x        x + 1e-8, as an epsilon before a root or a division: stays

onnxscript's rules compare constants with a tolerance (1e-8, and 1e-5 of the value), and so drop an epsilon as if it
were zero: a division by zero where the module has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxscript.rewriter._pattern_ir import Constant

TOLERANCES = ("_rel_tol", "_abs_tol")


@contextmanager
def exact() -> Iterator[None]:
    """While it lasts, onnxscript's rules take a constant for 0 or 1 only where it is that."""
    constants = _constants()
    kept = [{name: getattr(constant, name) for name in TOLERANCES} for constant in constants]
    try:
        for constant in constants:
            constant._rel_tol = constant._abs_tol = 0.0
        yield
    finally:
        for constant, own in zip(constants, kept, strict=True):
            for name, value in own.items():
                setattr(constant, name, value)


def _constants() -> list[Constant]:
    """What the rules without effect compare with."""
    from onnxscript.rewriter._pattern_ir import Constant
    from onnxscript.rewriter.rules.common import _no_op

    values = (v for rule in _no_op.rules for node in rule._target_pattern for v in node.inputs)
    return [value for value in values if isinstance(value, Constant)]
