"""GELU by a sigmoid, for runtimes that compute the exact one slowly, or put tanh's approximation in its place.

    x -> Gelu                 x * Phi(x), with the normal distribution's Phi
    x -> Mul(x, Sigmoid(x * P(x * x)))

P is a polynomial: that of the logit of Phi, divided by x. Tanh's approximation is off by up to 4.7e-4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit_targets.onnx.passes.graph import Step, graph_pass, unfolded

if TYPE_CHECKING:
    import onnx

COEFFICIENTS = (1.59565627, 7.2937582e-2, -2.49723353e-4, -6.11619966e-5, 2.23816345e-6)
"""Of P, the constant first: least squares, weighted again until the largest error on [0, 7] was least."""
LARGEST_ERROR = 3.5e-6
"""Of the result, for every x, in fp32."""


@graph_pass
def by_sigmoid(graph: onnx.ModelProto) -> onnx.ModelProto:
    """A graph whose exact GELUs are sigmoids; those that a model itself approximates by tanh stay."""
    coefficients = {_constant(power): value for power, value in enumerate(COEFFICIENTS)}
    return unfolded(graph, _is_exact, _sigmoid, "sigmoid", coefficients)


def _is_exact(node: onnx.NodeProto) -> bool:
    return node.op_type == "Gelu" and node.domain == "" and not any(a.s == b"tanh" for a in node.attribute)


def _sigmoid(step: Step, x: str, result: str) -> None:
    square = step("Mul", x, x)
    total = step("Mul", square, _constant(len(COEFFICIENTS) - 1))
    for power in reversed(range(len(COEFFICIENTS) - 1)):  # by Horner's rule
        total = step("Mul", step("Add", total, _constant(power)), square if power else x)
    step("Mul", x, step("Sigmoid", total), output=result)


def _constant(power: int) -> str:
    return f"gelu/coefficient_{power}"
